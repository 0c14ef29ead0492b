"""The workloads: their data, their launch, torch's answer, the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import layer_norm, rms_norm, scaled_dot_product_attention, silu

from anymetal.evidence.judge import relative_error

KERNELS = Path(__file__).parent / "kernels"

Argument = torch.Tensor | np.uint32 | np.float32


@dataclass(frozen=True)
class Workload:
    """One kernel with its data. `arguments` are in buffer order, scalars of a width.

    `pieces` is how many independent parts the work has: rows, mostly. C is called for ranges of
    them. A kernel that adds to its output needs it `cleared` before each run.
    """

    name: str
    title: str
    arguments: tuple[Argument, ...]
    output: torch.Tensor
    threads: tuple[int, ...]
    group_size: tuple[int, ...]
    pieces: int
    torch_call: Callable[[], torch.Tensor]
    reference: Callable[[], torch.Tensor]
    tolerance: float
    cleared: bool = False

    def path(self, suffix: str) -> Path:
        return KERNELS / f"{self.name}.{suffix}"

    def source(self, suffix: str) -> str:
        return self.path(suffix).read_text()

    def spoil(self) -> None:
        """Fills the output with what no kernel computes."""
        self.output.fill_(math.nan if self.output.is_floating_point() else -1)

    def error(self, result: torch.Tensor) -> float:
        """Largest difference from the float64 reference, relative to its largest value."""
        return relative_error(result, self.reference())


def make_silu() -> Workload:
    x = torch.randn(1 << 24)
    y = torch.empty_like(x)
    return Workload(
        name="silu",
        title="SiLU 16M",
        arguments=(x, y),
        output=y,
        threads=(x.numel() // 4,),
        group_size=(256,),
        pieces=x.numel() // 16,
        torch_call=lambda: silu(x),
        reference=lambda: silu(x.double()),
        tolerance=1e-6,
    )


def make_rmsnorm() -> Workload:
    rows = columns = 4096
    epsilon = 1e-5
    x, weight = torch.randn(rows, columns), torch.randn(columns)
    y = torch.empty_like(x)
    return Workload(
        name="rmsnorm",
        title="RMSNorm 4096x4096",
        arguments=(x, weight, y, np.uint32(columns), np.float32(epsilon)),
        output=y,
        threads=(rows * 256,),
        group_size=(256,),
        pieces=rows,
        torch_call=lambda: rms_norm(x, (columns,), weight, epsilon),
        reference=lambda: rms_norm(x.double(), (columns,), weight.double(), epsilon),
        tolerance=1e-6,
    )


def make_matmul() -> Workload:
    side = 512
    a, b = torch.randn(side, side), torch.randn(side, side)
    c = torch.empty(side, side)
    return Workload(
        name="matmul",
        title="tiled matmul 512^3",
        arguments=(a, b, c, np.uint32(side)),
        output=c,
        threads=(side, side),
        group_size=(32, 32),
        pieces=side // 8,
        torch_call=lambda: a @ b,
        reference=lambda: a.double() @ b.double(),
        tolerance=5e-6,
    )


def make_attention() -> Workload:
    rows, head = 2048, 64
    query, key, value = (torch.randn(rows, head) for _ in range(3))
    output = torch.empty(rows, head)
    # Every length from 1 to 2048 once, in random order: neighbouring rows end at different times.
    lengths = (torch.randperm(rows) + 1).to(torch.int32)
    seen = torch.arange(rows)[None, :] < lengths[:, None]
    mask = torch.zeros(rows, rows).masked_fill(~seen, -math.inf)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = q[None, None], k[None, None], v[None, None]
        return scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))[0, 0]

    return Workload(
        name="attention",
        title="attention 2048x64",
        arguments=(query, key, value, output, lengths, np.float32(1 / math.sqrt(head))),
        output=output,
        threads=(rows * 128,),
        group_size=(128,),
        pieces=rows,
        torch_call=lambda: attend(query, key, value),
        reference=lambda: attend(query.double(), key.double(), value.double()),
        tolerance=5e-6,
    )


def make_softmax() -> Workload:
    rows = columns = 4096
    x = torch.randn(rows, columns) * 3
    y = torch.empty_like(x)
    return Workload(
        name="softmax",
        title="softmax 4096x4096",
        arguments=(x, y, np.uint32(columns)),
        output=y,
        threads=(rows * 256,),
        group_size=(256,),
        pieces=rows,
        torch_call=lambda: torch.softmax(x, -1),
        reference=lambda: torch.softmax(x.double(), -1),
        tolerance=5e-6,
    )


def make_layernorm() -> Workload:
    rows = columns = 4096
    epsilon = 1e-5
    x, weight, bias = torch.randn(rows, columns), torch.randn(columns), torch.randn(columns)
    y = torch.empty_like(x)
    inputs = (x, weight, bias)

    def reference() -> torch.Tensor:
        x64, weight64, bias64 = (tensor.double() for tensor in inputs)
        return layer_norm(x64, (columns,), weight64, bias64, epsilon)

    return Workload(
        name="layernorm",
        title="LayerNorm 4096x4096",
        arguments=(*inputs, y, np.uint32(columns), np.float32(epsilon)),
        output=y,
        threads=(rows * 256,),
        group_size=(256,),
        pieces=rows,
        torch_call=lambda: layer_norm(x, (columns,), weight, bias, epsilon),
        reference=reference,
        tolerance=1e-6,
    )


def make_layernorm_backward() -> Workload:
    rows = columns = 4096
    dy, x, weight = torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(columns)
    dx = torch.empty_like(x)
    mean = x.mean(-1, keepdim=True)
    scale = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    inputs = (dy, x, weight, mean, scale)

    def reference() -> torch.Tensor:
        dy64, x64, weight64, mean64, scale64 = (tensor.double() for tensor in inputs)
        normalised, gradient = (x64 - mean64) * scale64, dy64 * weight64
        along = (gradient * normalised).mean(-1, keepdim=True)
        return scale64 * (gradient - gradient.mean(-1, keepdim=True) - normalised * along)

    def torch_call() -> torch.Tensor:
        wanted = [True, False, False]
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, [columns], mean, scale, weight, None, wanted
        )[0]

    return Workload(
        name="layernorm_backward",
        title="LayerNorm backward 4096x4096",
        arguments=(*inputs, dx, np.uint32(columns)),
        output=dx,
        threads=(rows * 256,),
        group_size=(256,),
        pieces=rows,
        torch_call=torch_call,
        reference=reference,
        tolerance=1e-6,
    )


def make_int4_matvec() -> Workload:
    rows, columns, shared = 8192, 8192, 32
    values = torch.randint(0, 16, (rows, columns), dtype=torch.int32)
    scales = torch.rand(rows, columns // shared) * 0.1
    x, y = torch.randn(columns), torch.empty(rows)
    places = torch.arange(0, 32, 4, dtype=torch.int64)
    words = (values.view(rows, -1, 8).long() << places).sum(-1)
    weights = words.to(torch.int32)  # the low 32 bits
    # torch's own 4-bit product takes packed weights, and scales with a zero point beside each.
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
    pairs = torch.stack([scales.T, torch.zeros_like(scales.T)], -1).contiguous()

    def reference() -> torch.Tensor:
        result = torch.empty(rows, dtype=torch.float64)
        for part in range(0, rows, 1024):  # all weights in float64 would be half a gigabyte
            some = slice(part, part + 1024)
            dequantised = (values[some].double() - 8).view(1024, -1, shared)
            dequantised *= scales[some].double()[:, :, None]
            result[some] = dequantised.view(1024, -1) @ x.double()
        return result

    return Workload(
        name="int4_matvec",
        title="int4 matvec 8192x8192",
        arguments=(weights, scales, x, y, np.uint32(columns)),
        output=y,
        threads=(rows * 32,),
        group_size=(256,),
        pieces=rows,
        torch_call=lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(
            x[None], packed, shared, pairs
        )[0],
        reference=reference,
        tolerance=5e-6,
    )


def make_scan() -> Workload:
    rows, columns = 2048, 8192
    x = torch.randn(rows, columns)
    y = torch.empty_like(x)
    return Workload(
        name="scan",
        title="inclusive scan 2048x8192",
        arguments=(x, y, np.uint32(columns)),
        output=y,
        threads=(rows * 256,),
        group_size=(256,),
        pieces=rows,
        torch_call=lambda: torch.cumsum(x, -1),
        reference=lambda: torch.cumsum(x.double(), -1),
        tolerance=1e-5,
    )


def make_histogram() -> Workload:
    # Some bytes are far more common than others, as in real data: their atomics collide.
    data = (torch.randn(1 << 24) * 20 + 128).clamp(0, 255).to(torch.uint8)
    counts = torch.zeros(256, dtype=torch.int32)
    return Workload(
        name="histogram",
        title="histogram 16M bytes",
        arguments=(data, counts, np.uint32(data.numel())),
        output=counts,
        threads=(256 * 256,),
        group_size=(256,),
        pieces=data.numel() // 64,
        torch_call=lambda: torch.bincount(data, minlength=256),
        reference=lambda: torch.bincount(data, minlength=256).double(),
        tolerance=0,
        cleared=True,
    )


def make_simdgroup_matmul() -> Workload:
    side = 1024
    a, b = torch.randn(side, side), torch.randn(side, side)
    c = torch.empty(side, side)
    return Workload(
        name="simdgroup_matmul",
        title="simdgroup matmul 1024^3",
        arguments=(a, b, c, *(np.uint32(side) for _ in range(3))),
        output=c,
        threads=(side // 64 * 128, side // 64),
        group_size=(128, 1),
        pieces=side // 8,
        torch_call=lambda: a @ b,
        reference=lambda: a.double() @ b.double(),
        tolerance=5e-6,
    )


MAKERS: dict[str, Callable[[], Workload]] = {
    "silu": make_silu,
    "rmsnorm": make_rmsnorm,
    "matmul": make_matmul,
    "attention": make_attention,
    "softmax": make_softmax,
    "layernorm": make_layernorm,
    "layernorm_backward": make_layernorm_backward,
    "int4_matvec": make_int4_matvec,
    "scan": make_scan,
    "histogram": make_histogram,
    "simdgroup_matmul": make_simdgroup_matmul,
}
