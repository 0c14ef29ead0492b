"""The four workloads: their data, their launch, torch's answer, the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

KERNELS = Path(__file__).parent / "kernels"

Argument = torch.Tensor | np.uint32 | np.float32


@dataclass(frozen=True)
class Workload:
    """One kernel with its data. `arguments` are in buffer order, scalars of a width."""

    name: str
    title: str
    arguments: tuple[Argument, ...]
    output: torch.Tensor
    threads: tuple[int, ...]
    group_size: tuple[int, ...]
    torch_call: Callable[[], torch.Tensor]
    reference: Callable[[], torch.Tensor]
    tolerance: float

    def source(self, suffix: str) -> str:
        return (KERNELS / f"{self.name}.{suffix}").read_text()

    def error(self, result: torch.Tensor) -> float:
        """Largest difference from the float64 reference, relative to its largest value."""
        expected = self.reference()
        difference = (result.double() - expected).abs().max() / expected.abs().max()
        return math.inf if difference.isnan() else difference.item()


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
        torch_call=lambda: attend(query, key, value),
        reference=lambda: attend(query.double(), key.double(), value.double()),
        tolerance=5e-6,
    )


MAKERS: dict[str, Callable[[], Workload]] = {
    "silu": make_silu,
    "rmsnorm": make_rmsnorm,
    "matmul": make_matmul,
    "attention": make_attention,
}
