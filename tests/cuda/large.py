"""Operators on tensors of nearly 2^31 elements, the most that they take, beside torch's own.

    python tests/cuda/large.py --compile large.bundle
    ANYMETAL_BUNDLE=large.bundle python tests/cuda/large.py [NAME...]

The first compiles the kernels on any machine; the second needs a GPU with 100 GiB. Every element is
compared: an index that wraps around at 32 bits shows.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anymetal import linalg, ops, optim
from anymetal.linalg import LinAlgError

sys.path.insert(0, str(Path(__file__).parent))
from bundling import write_kernels

MOST = 2**31 - 1
ROWS = (524287, 4096)
WIDE = (131071, 16384)
FP32, BF16 = torch.float32, torch.bfloat16
EPSILON = {FP32: 2e-6, BF16: 1e-2}
CHUNK = 1 << 27


@dataclass(frozen=True)
class Call:
    """`ours` and `theirs` take the arguments that `make` draws, and give tensors to compare."""

    name: str
    make: Callable[[Draw], list[Any]]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    error: float = 0.0  # relative, beyond what is usual for the dtype


@dataclass(frozen=True)
class Draw:
    """Random tensors on a GPU; without contents on the CPU, where nothing is run."""

    device: str

    def normal(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        if self.device == "cpu":
            return torch.empty(shape, dtype=dtype)
        return torch.randn(shape, device=self.device, dtype=dtype)

    def below(self, end: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        if self.device == "cpu":
            return torch.zeros(shape, dtype=dtype)
        return torch.randint(max(0, end - 5000), end, shape, device=self.device, dtype=dtype)


def _of(*shape: int, dtype: torch.dtype = BF16) -> Callable[[Draw], list[Any]]:
    return lambda draw: [draw.normal(*shape, dtype=dtype)]


def _with_weights(
    shape: tuple[int, int], count: int, dtype: torch.dtype
) -> Callable[[Draw], list[Any]]:
    def make(draw: Draw) -> list[Any]:
        weights = [draw.normal(shape[1], dtype=dtype) for _ in range(count)]
        return [draw.normal(*shape, dtype=dtype), *weights]

    return make


def _with_gradients(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """The gradients of a call; what flows in is its own result."""

    def run(*inputs: Any) -> Any:
        leaves = [
            one.detach().requires_grad_() if one.is_floating_point() else one for one in inputs
        ]
        result = function(*leaves)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        return torch.autograd.grad(result, wanted, result.detach())

    return run


def _both(name: str, make: Any, ours: Any, theirs: Any) -> Iterator[Call]:
    yield Call(name, make, ours, theirs)
    yield Call(f"{name} backward", make, _with_gradients(ours), _with_gradients(theirs))


def calls() -> Iterator[Call]:
    yield from _rows()
    yield from _places()
    yield from _products()
    yield from _attention()
    yield from _steps()
    yield from _matrices()


def _rows() -> Iterator[Call]:
    yield from _both("silu", _of(MOST), ops.silu, F.silu)
    yield Call("gelu fp32", _of(MOST, dtype=FP32), ops.gelu, F.gelu)
    yield Call("swiglu of halves", _of(*ROWS), ops.swiglu, _swiglu)
    for dtype, shape in ((FP32, ROWS), (BF16, WIDE), (BF16, (3, MOST // 3))):
        make = _with_weights(shape, 1, dtype)
        yield from _both(
            f"rms_norm {shape} {dtype}", make, _normed(ops.rms_norm), _normed(F.rms_norm)
        )
    make = _with_weights(WIDE, 2, BF16)
    yield from _both(f"layer_norm {WIDE}", make, _normed(ops.layer_norm), _normed(F.layer_norm))
    for shape, dim in (((2047, 1 << 20), 1), ((1 << 20, 2047), 0), ((1 << 20, 2047), 1)):
        yield from _both(
            f"softmax {shape} along {dim}",
            _of(*shape),
            lambda x, dim=dim: ops.softmax(x, dim),
            lambda x, dim=dim: F.softmax(x, dim),
        )
    yield Call(
        "group_norm",
        _of(8, 64, 2047, 2047),
        lambda x: ops.group_norm(x, 32),
        lambda x: F.group_norm(x, 32),
    )
    yield Call("rope", _rope_inputs, lambda q, c, s: ops.rope(q, None, c, s), _torch_rope)
    yield from _both(
        "cross_entropy",
        lambda draw: [draw.normal(16383, 131071), draw.below(131071, 16383)],
        ops.cross_entropy,
        F.cross_entropy,
    )
    yield Call("copy of columns", _of(46340, 46340), lambda x: ops.copy(x.T), lambda x: x.T.clone())


def _swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _normed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *parameters: function(x, parameters[0].shape, *parameters)


def _rope_inputs(draw: Draw) -> list[Any]:
    angles = draw.normal(262143, 64, dtype=FP32)
    return [draw.normal(1, 64, 262143, 128), angles.cos().bfloat16(), angles.sin().bfloat16()]


def _torch_rope(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = q.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _places() -> Iterator[Call]:
    """The last rows of a table are asked for, or added to."""

    def with_index(draw: Draw) -> list[Any]:
        return [draw.normal(*ROWS), draw.below(ROWS[0], 3000)]

    def with_rows(draw: Draw) -> list[Any]:
        return [*with_index(draw), draw.normal(3000, ROWS[1])]

    yield from _both(
        "embedding",
        lambda draw: with_index(draw)[::-1],
        ops.embedding,
        lambda index, table: F.embedding(index, table),
    )
    yield Call(
        "index_select",
        with_index,
        lambda x, index: ops.index_select(x, 0, index),
        lambda x, index: x.index_select(0, index),
    )
    yield Call(
        "gather",
        lambda draw: [draw.normal(*ROWS), draw.below(ROWS[0], 3000, ROWS[1])],
        lambda x, index: ops.gather(x, 0, index),
        lambda x, index: x.gather(0, index),
    )
    yield Call(
        "index_add",
        with_rows,
        lambda x, index, rows: ops.index_add(x, 0, index, rows),
        lambda x, index, rows: x.index_add(0, index, rows),
    )
    yield Call(
        "scatter_add",
        with_rows,
        lambda x, index, rows: ops.scatter_add(x, 0, index[:, None].expand_as(rows), rows),
        lambda x, index, rows: x.scatter_add(0, index[:, None].expand_as(rows), rows),
    )


def _products() -> Iterator[Call]:
    shapes = (
        ("a large result", (46340, 64), (64, 46340)),
        ("a large operand", (32767, 65536), (65536, 64)),
        ("a large batch", (524287, 64, 64), (524287, 64, 64)),
        ("a matrix and a vector", (32767, 65536), (65536,)),
    )
    for name, a, b in shapes:
        yield Call(
            f"matmul, {name}",
            lambda draw, a=a, b=b: [draw.normal(*a), draw.normal(*b)],
            ops.matmul,
            torch.matmul,
        )
    for scheme in ("int4", "mlx_8bit"):
        yield Call(f"quantize, {scheme}", _of(65535, 32768), _quantised_and_back(scheme), _itself)
        yield Call(
            f"quantized_linear, {scheme}",
            lambda draw: [draw.normal(65535, 32768), draw.normal(3, 32768)],
            lambda w, x, scheme=scheme: ops.quantized_linear(x, ops.quantize(w, scheme)),
            lambda w, x, scheme=scheme: x @ ops.dequantize(ops.quantize(w, scheme)).T,
        )


def _quantised_and_back(scheme: str) -> Callable[[Tensor], Tensor]:
    return lambda w: ops.dequantize(ops.quantize(w, scheme))


def _itself(w: Tensor) -> Tensor:
    return w


def _attention() -> Iterator[Call]:
    def causal(function: Any) -> Callable[..., Tensor]:
        return lambda q, k, v: function(q, k, v, is_causal=True)

    ours, theirs = ops.scaled_dot_product_attention, F.scaled_dot_product_attention
    yield from _both(
        "attention of 65536 heads",
        lambda draw: [draw.normal(4096, 16, 255, 128) for _ in range(3)],
        causal(ours),
        causal(theirs),
    )
    yield Call(
        "attention of 2M keys",
        lambda draw: [
            draw.normal(1, 8, 1, 128),
            *(draw.normal(1, 8, 2097151, 128) for _ in range(2)),
        ],
        ours,
        theirs,
    )
    yield Call("paged attention", _paged_inputs, ops.paged_attention, _torch_paged)
    yield Call("reshape_and_cache", _cache_inputs, _cached, _torch_cached)


BLOCKS, KEYS = 131071, 4096


def _paged_inputs(draw: Draw) -> list[Any]:
    """Blocks at the end of the cache."""
    batch, width = 64, KEYS // 16
    tables = BLOCKS - 1 - torch.randperm(batch * width, dtype=torch.int32).view(batch, width)
    return [
        draw.normal(batch, 32, 128),
        *(draw.normal(BLOCKS, 16, 8, 128) for _ in range(2)),
        tables.to(draw.device),
        torch.full((batch,), KEYS, dtype=torch.int32, device=draw.device),
    ]


def _torch_paged(query: Tensor, keys: Tensor, values: Tensor, tables: Tensor, _: Tensor) -> Tensor:
    k, v = (c[tables].view(len(tables), KEYS, 8, 128).transpose(1, 2) for c in (keys, values))
    return F.scaled_dot_product_attention(query.unsqueeze(2), k, v, enable_gqa=True).squeeze(2)


def _cache_inputs(draw: Draw) -> list[Any]:
    tokens = 70_000
    slots = BLOCKS * 16 - 1 - torch.randperm(tokens)
    rows = [draw.normal(tokens, 8, 128) for _ in range(2)]
    return [*rows, draw.normal(BLOCKS, 16, 8, 128), slots.to(draw.device)]


def _cached(key: Tensor, value: Tensor, cache: Tensor, slots: Tensor) -> Any:
    found = [cache.clone(), cache.clone()]
    ops.reshape_and_cache(key, value, *found, slots)
    return found


def _torch_cached(key: Tensor, value: Tensor, cache: Tensor, slots: Tensor) -> Any:
    found = [cache.clone(), cache.clone()]
    for rows, to in zip((key, value), found, strict=True):
        to.view(-1, 8, 128)[slots] = rows
    return found


def _steps() -> Iterator[Call]:
    def step(kind: Any, **options: Any) -> Callable[..., Tensor]:
        def run(value: Tensor, grad: Tensor) -> Tensor:
            param = torch.nn.Parameter(value.clone())
            param.grad = grad
            made = kind([param], lr=1e-2, **options)
            made.step()
            made.step()
            return param.detach()

        return run

    def both(draw: Draw) -> list[Any]:
        # The kernels are those of any odd number, and a CPU would have to hold the states.
        count = 4095 if draw.device == "cpu" else MOST
        return [draw.normal(count, dtype=FP32) for _ in range(2)]

    yield Call("AdamW", both, step(optim.AdamW), step(torch.optim.AdamW, fused=True))
    yield Call(
        "SGD", both, step(optim.SGD, momentum=0.9), step(torch.optim.SGD, momentum=0.9, fused=True)
    )
    yield Call("clip_grad_norm_", _of(MOST, dtype=FP32), _clipped, _torch_clipped)


def _clipped(grad: Tensor) -> Any:
    param = torch.nn.Parameter(torch.empty_like(grad))
    param.grad = grad.clone()
    return optim.clip_grad_norm_([param], 1.0), param.grad


def _torch_clipped(grad: Tensor) -> Any:
    param = torch.nn.Parameter(torch.empty_like(grad))
    param.grad = grad.clone()
    return torch.nn.utils.clip_grad_norm_([param], 1.0), param.grad


def _matrices() -> Iterator[Call]:
    count, size = (1 << 21) - 1, 32

    def definite(draw: Draw) -> list[Any]:
        a = draw.normal(count, size, size, dtype=FP32)
        return [a if draw.device == "cpu" else a @ a.mT + size * torch.eye(size, device=a.device)]

    yield Call("cholesky", definite, linalg.cholesky, torch.linalg.cholesky)
    yield Call(
        "solve",
        lambda draw: [*definite(draw), draw.normal(count, size, 1, dtype=FP32)],
        linalg.solve,
        torch.linalg.solve,
        error=1e-5,
    )


def tensors_in(value: Any) -> Iterable[Tensor]:
    if isinstance(value, Tensor):
        yield value
    else:
        for one in value:
            yield from tensors_in(one)


def error_of(ours: Tensor, theirs: Tensor) -> float:
    """The largest relative error of a chunk: one that is wrong is not lost among the others."""
    errors = []
    a, b = ours.detach().reshape(-1), theirs.detach().reshape(-1)
    for start in range(0, a.numel(), CHUNK):
        one, other = (each[start : start + CHUNK].double() for each in (a, b))
        least = 1e-6 * float(b.numel()) ** -0.5
        errors.append((one - other).norm() / other.norm().clamp_min(least))
    return float(torch.stack(errors).max())  # NaN where one is


def judged(call: Call) -> str:
    """What is wrong with a call; nothing where all is well."""
    arguments = call.make(Draw("cuda"))
    ours = list(tensors_in(call.ours(*arguments)))
    theirs = list(tensors_in(call.theirs(*arguments)))
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        allowed = call.error or EPSILON[other.dtype]
        if call.theirs is _itself:
            allowed = 0.2  # what rounding to 4 bits costs
        error = error_of(one, other)
        if not error <= allowed:
            return f"result {number} is {error:.1e} off"
    return ""


def main(names: list[str]) -> int:
    wrong = count = 0
    for call in calls():
        if names and not any(name in call.name for name in names):
            continue
        start = time.perf_counter()
        count += 1
        try:
            said = judged(call)
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:300]}"
        torch.cuda.empty_cache()
        seconds = time.perf_counter() - start
        print(f"{'WRONG' if said else 'right'} {call.name}: {seconds:.1f} s {said}", flush=True)
        wrong += bool(said)
    print(f"{wrong} of {count} calls are wrong")
    return wrong


def _request_all() -> None:
    for call in calls():
        with contextlib.suppress(LinAlgError):  # nothing is run, so that results mean nothing
            call.ours(*call.make(Draw("cpu")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.compile:
        write_kernels(options.compile, _request_all)
    else:
        sys.exit(main(options.names))
