"""The lines of benchmarks/cuda_operators.py: inputs, our call, torch's, and the least traffic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from anymetal import compile_shader, linalg, ops, optim
from anymetal.ops.quantised.quantize import Quantized
from anymetal.ops.quantised.schemes import SCHEMES, codes_of, packed

FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
NAMES = {FP32: "fp32", BF16: "bf16", FP16: "fp16", torch.uint8: "u8"}
KERNELS = Path(__file__).parent / "kernels"
MANY = 64 * 2**20
INT4, GROUP = SCHEMES["int4"], 64
# Left to itself torch.compile calls cuBLAS for products.
TRITON_PRODUCTS = {"max_autotune": True, "max_autotune_gemm_backends": "TRITON"}

Thunk = Callable[[], Any]
Arguments = Sequence[Any]


@dataclass(frozen=True)
class Draw:
    """Makes inputs: random on a GPU, without contents on the CPU, where nothing is run."""

    device: str
    dtype: torch.dtype

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        kind = dtype or self.dtype
        if self.device == "cpu":
            return torch.empty(shape, dtype=kind)
        return torch.randn(shape, device=self.device, dtype=kind)

    def below(self, end: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        if self.device == "cpu":
            return torch.zeros(shape, dtype=dtype)
        return torch.randint(end, shape, device=self.device, dtype=dtype)


@dataclass(frozen=True)
class Row:
    """One line. `ours`, `theirs` and `triton` take the arguments and give the call that is timed.
    `flops` where arithmetic is the limit; `reads` where next to nothing is written, and a kernel
    that reads the same bytes shows what can be reached."""

    name: str
    dtype: torch.dtype
    make: Callable[[Draw], Arguments]
    ours: Callable[..., Thunk]
    theirs: Callable[..., Thunk]
    triton: Callable[..., Thunk] | None = None
    moved: Callable[[Arguments, Any], int] | None = None
    flops: int = 0
    reads: bool = False
    compares: bool = True

    @property
    def dtype_name(self) -> str:
        return NAMES[self.dtype]


def _call(function: Callable[..., Any]) -> Callable[..., Thunk]:
    return lambda *arguments: lambda: function(*arguments)


def _compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Thunk]:
    """The call as torch.compile makes it, for just these shapes."""
    return lambda *arguments: _call(torch.compile(function, dynamic=False, **options))(*arguments)


def _size(values: Any) -> int:
    if isinstance(values, Tensor):
        return values.numel() * values.element_size()
    return sum(_size(one) for one in values) if isinstance(values, list | tuple) else 0


def _all(arguments: Arguments, result: Any) -> int:
    """Every input read once, every result written once."""
    return _size(list(arguments)) + _size(result)


def _simple(
    name: str, dtype: torch.dtype, shapes: Sequence[tuple[int, ...]], ours: Any, theirs: Any
) -> Row:
    return Row(
        name,
        dtype,
        lambda draw: [draw.normal(*shape) for shape in shapes],
        _call(ours),
        _call(theirs),
        _compiled(theirs),
        _all,
    )


def _backward(
    name: str,
    dtype: torch.dtype,
    shapes: Sequence[tuple[int, ...]],
    ours: Any,
    theirs: Any,
    saved: int,
) -> Row:
    """The gradient of a call; `saved` tensors of the first one's size are read besides the
    gradient, and one is written."""

    def prepared(function: Any) -> Callable[..., Thunk]:
        def prepare(grad: Tensor, *inputs: Tensor) -> Thunk:
            leaves = [one.detach().requires_grad_() for one in inputs]
            result = function(*leaves)
            return lambda: torch.autograd.grad(result, leaves, grad, retain_graph=True)

        return prepare

    return Row(
        f"{name} backward",
        dtype,
        lambda draw: [draw.normal(*shapes[0]), *(draw.normal(*shape) for shape in shapes)],
        prepared(ours),
        prepared(theirs),
        lambda *arguments: prepared(torch.compile(theirs, dynamic=False))(*arguments),
        lambda arguments, _: (2 + saved) * _size(arguments[0]),
    )


def rows() -> list[Row]:
    """The table's lines."""
    return [
        *(row for dtype in (FP32, BF16) for row in _streaming(dtype)),
        *_losses_and_steps(),
        *_vectors(),
        *_products(),
        *_own_kernels(),
        *_linear_algebra(),
    ]


# --- streaming operators --------------------------------------------------------------------------


def _streaming(dtype: torch.dtype) -> Iterator[Row]:
    flat = (MANY,)
    yield _simple("SiLU 64M", dtype, [flat], ops.silu, F.silu)
    yield _simple("SwiGLU 64M", dtype, [flat, flat], ops.swiglu, lambda a, b: F.silu(a) * b)
    for shape in ((16384, 4096), (4096, 16384)):
        width, size = shape[-1:], f"{shape[0]} x {shape[1]}"
        cases: list[tuple[str, list[tuple[int, ...]], Any, Any, int]] = [
            ("RMSNorm", [shape, width], _rms_norm, _torch_rms_norm, 1),
            ("LayerNorm", [shape, width, width], _layer_norm, _torch_layer_norm, 1),
            ("softmax", [shape], lambda x: ops.softmax(x, -1), lambda x: F.softmax(x, -1), 1),
        ]
        for name, shapes, ours, theirs, saved in cases:
            yield _simple(f"{name} {size}", dtype, shapes, ours, theirs)
            yield _backward(f"{name} {size}", dtype, shapes, ours, theirs, saved)
    large = (16384, 4096)
    yield _simple(
        "add_rms_norm 16384 x 4096",
        dtype,
        [large, large, large[-1:]],
        lambda x, y, w: ops.add_rms_norm(x, y, w.shape, w),
        _torch_add_rms_norm,
    )
    yield _rope(dtype)


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return ops.rms_norm(x, w.shape, w)


def _torch_rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.rms_norm(x, w.shape, w)


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return ops.layer_norm(x, w.shape, w, b)


def _torch_layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, w.shape, w, b)


def _torch_add_rms_norm(x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return F.rms_norm(total, w.shape, w), total


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _rope(dtype: torch.dtype) -> Row:
    def make(draw: Draw) -> Arguments:
        angles = draw.normal(8192, 64, dtype=FP32)
        turns = (angles.cos().to(draw.dtype), angles.sin().to(draw.dtype))
        return [draw.normal(4, 32, 8192, 128), draw.normal(4, 8, 8192, 128), *turns]

    def theirs(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return _turned(q, cos, sin), _turned(k, cos, sin)

    return Row(
        "rope 4 x 32 + 8 heads x 8192 x 128",
        dtype,
        make,
        _call(ops.rope),
        _call(theirs),
        _compiled(theirs),
        _all,
    )


# --- training -------------------------------------------------------------------------------------


def _losses_and_steps() -> Iterator[Row]:
    def make(draw: Draw) -> Arguments:
        return [draw.normal(8192, 128 * 1024), draw.below(128 * 1024, 8192)]

    yield Row(
        "cross entropy 8192 x 128k",
        BF16,
        make,
        _call(ops.cross_entropy),
        _call(F.cross_entropy),
        _compiled(F.cross_entropy),
        _all,
        reads=True,
    )
    yield _step(64, 16 * 2**20)


def _step(count: int, elements: int) -> Row:
    def make(draw: Draw) -> Arguments:
        return [[draw.normal(elements) for _ in range(count)] for _ in range(2)]

    def prepared(optimizer: Any, **options: Any) -> Callable[..., Thunk]:
        def prepare(values: list[Tensor], grads: list[Tensor]) -> Thunk:
            params = [torch.nn.Parameter(value.clone()) for value in values]
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad
            step = optimizer(params, **options)

            def run() -> Tensor:
                step.step()
                return params[0]

            return run

        return prepare

    return Row(
        f"AdamW {count * elements >> 30}G in {count} tensors",
        FP32,
        make,
        prepared(optim.AdamW),
        prepared(torch.optim.AdamW, fused=True),
        lambda *arguments: torch.compile(
            prepared(torch.optim.AdamW, foreach=True)(*arguments), dynamic=False
        ),
        lambda arguments, _: 7 * _size(arguments[0]),
    )


# --- few rows -------------------------------------------------------------------------------------


def _vectors() -> Iterator[Row]:
    yield from (_matvec(4096, 14336), _matvec(8192, 8192))
    heads, keys = (1, 32, 1, 128), (1, 32, 32768, 128)
    yield Row(
        "decode attention, 32 heads, 32k keys",
        BF16,
        lambda draw: [draw.normal(*heads), draw.normal(*keys), draw.normal(*keys)],
        _call(ops.scaled_dot_product_attention),
        _call(F.scaled_dot_product_attention),
        _compiled(flex_attention),
        _all,
        reads=True,
    )
    yield _paged(32, 4096, 32, 8)


def _matvec(out: int, into: int) -> Row:
    return Row(
        f"int4 matvec {out} x {into}",
        BF16,
        lambda draw: [draw.normal(1, into), *_quantised(draw.normal(out, into))],
        _int4,
        _torch_int4,
        lambda x, words, scales: _compiled(_unpacked_product)(x, _bytes(words), scales),
        _all,
        reads=True,
    )


def _quantised(w: Tensor) -> tuple[Tensor, Tensor]:
    weight = ops.quantize(w.zero_() if w.is_cpu else w, INT4.name, GROUP)
    return weight.words, weight.scales


def _int4(x: Tensor, words: Tensor, scales: Tensor) -> Thunk:
    weight = Quantized(words, scales, None, INT4, GROUP)
    return lambda: ops.quantized_linear(x, weight)


def _bytes(words: Tensor) -> Tensor:
    """Two neighbouring codes a byte, the first in its lower half."""
    columns = words.shape[1] * 32 // INT4.bits
    return packed(codes_of(words, columns, INT4.bits), INT4.bits).view(torch.uint8)


def _torch_int4(x: Tensor, words: Tensor, scales: Tensor) -> Thunk:
    """torch's own kernel for groups of int4 weights; it takes the first code in the upper half."""
    pairs = _bytes(words)
    weight = torch._convert_weight_to_int4pack((pairs << 4) | (pairs >> 4), 8)
    scales_and_zeros = torch.stack((scales, torch.zeros_like(scales)), -1)
    table = scales_and_zeros.transpose(0, 1).contiguous()
    return lambda: torch._weight_int4pack_mm(x, weight, GROUP, table)


def _unpacked_product(x: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
    steps = torch.stack((pairs & 15, pairs >> 4), -1).view(*scales.shape, GROUP)
    weights = (steps.to(scales.dtype) - 8) * scales[..., None]
    products = weights * x.view(1, scales.shape[1], GROUP)
    return products.sum((1, 2), dtype=FP32).to(x.dtype)[None]


def _paged(batch: int, keys: int, heads: int, kv_heads: int) -> Row:
    def make(draw: Draw) -> Arguments:
        blocks = keys // 16
        caches = [draw.normal(batch * blocks, 16, kv_heads, 128) for _ in range(2)]
        order = torch.randperm(batch * blocks, dtype=torch.int32).view(batch, blocks)
        lengths = torch.full((batch,), keys, dtype=torch.int32)
        return [
            draw.normal(batch, heads, 128),
            *caches,
            order.to(draw.device),
            lengths.to(draw.device),
        ]

    def dense(function: Callable[..., Tensor]) -> Callable[..., Thunk]:
        def prepare(query: Tensor, k: Tensor, v: Tensor, tables: Tensor, _: Tensor) -> Thunk:
            k, v = (c[tables].view(batch, keys, kv_heads, 128).transpose(1, 2) for c in (k, v))
            return lambda: function(query.unsqueeze(2), k, v, enable_gqa=True).squeeze(2)

        return prepare

    return Row(
        f"paged decode, {batch} sequences of {keys} (others: dense)",
        BF16,
        make,
        _call(ops.paged_attention),
        dense(F.scaled_dot_product_attention),
        lambda *arguments: dense(torch.compile(flex_attention, dynamic=False))(*arguments),
        _all,
        reads=True,
    )


# --- products -------------------------------------------------------------------------------------


def _products() -> Iterator[Row]:
    size = 4096
    for dtype in (FP32, BF16):
        yield Row(
            f"matmul {size}^3",
            dtype,
            lambda draw: [draw.normal(size, size), draw.normal(size, size)],
            _call(ops.matmul),
            _call(torch.matmul),
            _compiled(torch.matmul, options=TRITON_PRODUCTS),
            flops=2 * size**3,
        )
    for keys in (4096, 8192):
        yield _prefill(16, keys)


def _prefill(heads: int, keys: int) -> Row:
    shape = (1, heads, keys, 128)

    def attention(function: Any) -> Callable[..., Thunk]:
        return lambda q, k, v: lambda: function(q, k, v, is_causal=True)

    return Row(
        f"causal attention, {heads} heads, {keys} keys",
        BF16,
        lambda draw: [draw.normal(*shape) for _ in range(3)],
        attention(ops.scaled_dot_product_attention),
        attention(F.scaled_dot_product_attention),
        _causal_flex_attention,
        flops=2 * heads * keys**2 * 128,
    )


def _causal_flex_attention(q: Tensor, k: Tensor, v: Tensor) -> Thunk:
    mask = create_block_mask(
        lambda _batch, _head, query, key: query >= key,
        None,
        None,
        q.shape[2],
        k.shape[2],
        device=q.device,
    )
    attention = torch.compile(flex_attention, dynamic=False)
    return lambda: attention(q, k, v, block_mask=mask)


# --- kernels of a user's --------------------------------------------------------------------------


def _own_kernels() -> Iterator[Row]:
    rows, columns = 8192, 8192
    yield Row(
        f"scan {rows} x {columns}",
        FP32,
        lambda draw: [draw.normal(rows, columns), draw.normal(rows, columns)],
        _scan,
        lambda x, _: lambda: x.cumsum(-1),
        lambda x, _: torch.compile(lambda: x.cumsum(-1), dynamic=False),
        lambda arguments, _: _size(list(arguments)),
    )
    yield Row(
        "histogram 256M bytes",
        torch.uint8,
        lambda draw: [draw.below(256, 256 * 2**20, dtype=torch.uint8)],
        _histogram,
        lambda data: lambda: torch.bincount(data, minlength=256).int(),
        _triton_histogram,
        lambda arguments, _: _size(list(arguments)),
        reads=True,
    )


def _scan(x: Tensor, y: Tensor) -> Thunk:
    kernel = compile_shader((KERNELS / "scan_held.metal").read_text()).scan

    def run() -> Tensor:
        kernel(x, y, x.shape[1], threads=x.shape[0] * 256, group_size=256)
        return y

    return run


def _histogram(data: Tensor) -> Thunk:
    kernel = compile_shader((KERNELS / "histogram_of_lanes.metal").read_text()).histogram

    def run() -> Tensor:
        counts = torch.zeros(256, dtype=torch.int32, device=data.device)
        kernel(data, counts, data.numel(), threads=132 * 2 * 512, group_size=512)
        return counts

    return run


def _triton_histogram(data: Tensor) -> Thunk:
    from triton_histogram import histogram  # noqa: PLC0415  (only a GPU's machine has Triton)

    return histogram(data)


def read_of(bytes_read: int, device: str) -> Thunk:
    """Reads so many bytes, and does no more with them than it must."""
    kernel = compile_shader((KERNELS / "read_all.metal").read_text()).read_all
    data = torch.empty(-(-bytes_read // 16), 4, dtype=torch.int32, device=device)
    found = torch.empty(1, dtype=torch.int32, device=device)
    return lambda: kernel(data, found, len(data), threads=132 * 4 * 512, group_size=512)


# --- linear algebra -------------------------------------------------------------------------------


def _linear_algebra() -> Iterator[Row]:
    count, size = 10_000, 32

    def batch(draw: Draw) -> Tensor:
        return draw.normal(count, size, size)

    def definite(draw: Draw) -> Arguments:
        a = batch(draw)
        return [a @ a.mT + size * torch.eye(size, device=a.device)]

    def symmetric(draw: Draw) -> Arguments:
        a = batch(draw)
        return [a + a.mT]

    def systems(draw: Draw) -> Arguments:
        return [batch(draw), draw.normal(count, size, 1)]

    makes = {"cholesky": definite, "qr": None, "solve": systems, "eigh": symmetric, "svd": None}
    for name, make in makes.items():
        ours, theirs = getattr(linalg, name), getattr(torch.linalg, name)
        yield Row(
            f"linalg.{name}, {count} of {size} x {size}",
            FP32,
            make or (lambda draw: [batch(draw)]),
            _call(ours),
            _call(theirs),
            compares=name in ("cholesky", "solve"),
        )
