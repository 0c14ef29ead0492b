"""The example's operators once more, by `compile_shader` alone: what the extension must equal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

import anymetal

_FILE = Path(__file__).parents[2] / "examples/extension/patterns/kernels/patterns.metal"
_library = anymetal.compile_shader(_FILE.read_text(), name=str(_FILE), fast_math=False)
_NAMES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}
_PART = 4096
_CASTS = "int32"


def scale(x: torch.Tensor, bias: torch.Tensor | None, factor: float, clamped: bool) -> torch.Tensor:
    out = torch.empty_like(x)
    constants: dict[int | str, bool] = {
        "clamped": clamped,
        "biased": bias is not None,
        "vectors": x.storage_offset() % 4 == 0,
    }
    kernel = _library.specialize(f"scale_{_NAMES[x.dtype]}", constants)
    casts = {4: _CASTS, 5: _CASTS}
    numbers = (factor, x.shape[-1], x.numel())
    threads = -(-x.numel() // 4)
    other = x if bias is None else bias
    kernel(x, other, out, *numbers, threads=threads, group_size=256, arg_casts=casts)
    return out


def row_sums(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    parts = -(-columns // _PART)
    sums = x.new_empty(rows)
    partial = x.new_empty(rows, parts) if parts > 1 else sums
    _row_sums(x, partial, columns, parts, min(columns, _PART))
    if parts > 1:
        _row_sums(partial, sums, parts, 1, parts)
    return sums


def _row_sums(x: torch.Tensor, sums: torch.Tensor, columns: int, parts: int, length: int) -> None:
    group = min(max(-(-length // 32) * 32, 32), 256)
    _library.row_sums(
        *(x, sums, columns, length),
        threads=(parts * group, sums.numel() // parts),
        group_size=(group, 1),
        arg_casts={2: _CASTS, 3: _CASTS},
        threadgroup_memory={0: -(-(group // 32 * 4) // 16) * 16},
    )


def sgd_step(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    momenta: Sequence[torch.Tensor],
    rate: float,
    momentum: float,
) -> None:
    for parameter, gradient, velocity in zip(parameters, gradients, momenta, strict=True):
        rates = torch.tensor([rate, momentum], device=parameter.device)
        count = parameter.numel()
        _library.sgd_step(
            *(parameter, gradient, velocity, rates, count), threads=count, arg_casts={4: _CASTS}
        )


def gated_silu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    _library.gated_silu(x, gate, out, x.numel(), threads=x.numel(), arg_casts={3: _CASTS})
    return out


def gated_silu_backward(
    grad: torch.Tensor, x: torch.Tensor, gate: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    grads = torch.empty_like(x), torch.empty_like(x)
    count = x.numel()
    _library.gated_silu_backward(
        *(grad, x, gate, *grads, count), threads=count, arg_casts={5: _CASTS}
    )
    return grads
