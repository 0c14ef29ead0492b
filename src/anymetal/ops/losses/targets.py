"""What losses share: reductions by name, and targets as kernels read them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

INDICES = (torch.int64, torch.int32)
REDUCTIONS = ("mean", "sum", "none")


def check_reduction(name: str, reduction: str, known: Sequence[str] = REDUCTIONS) -> None:
    if reduction not in known:
        expected = ", ".join(repr(each) for each in known)
        raise ValueError(f"{name}: argument 'reduction' expects {expected}, got {reduction!r}")


def check_fraction(name: str, argument: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}: argument '{argument}' expects 0 to 1, got {value}")


def legacy(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """torch's older names for a reduction, which go before the new one."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def no_gradient_of(name: str, **tensors: torch.Tensor | None) -> None:
    """RuntimeError for an argument that a gradient is asked for and none is given."""
    for argument, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError(
                f"{name}: the derivative for '{argument}' is not implemented. Pass"
                f" {argument}.detach()"
            )


def words_of(indices: torch.Tensor) -> torch.Tensor:
    """Indices as words of 32 bits, which kernels read whatever the width."""
    flat = indices.contiguous().view(-1)
    return flat if indices.dtype == torch.int32 else flat.view(torch.int32)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """At least float32, as kernels accumulate."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
