"""What the functions require of their matrices, in torch.linalg's words, and how they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anymetal.ops.declare.checks import FLOATS, check_size

LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
Named = Any  # one of torch.return_types, which have no types

_REASONS = {
    torch.float64: "an Apple GPU has no doubles",
    torch.complex64: "there are no complex kernels",
    torch.complex128: "there are no complex kernels",
}


def check_matrix(name: str, argument: str, matrix: Tensor, *, square: bool = False) -> None:
    """A tensor of matrices that the kernels can take."""
    check_dtype(name, argument, matrix)
    check_size(name, argument, matrix)
    if matrix.dim() < 2:
        raise RuntimeError(
            f"linalg.{name}: The input tensor {argument} must have at least 2 dimensions."
        )
    rows, columns = matrix.shape[-2:]
    if square and rows != columns:
        raise RuntimeError(
            f"linalg.{name}: {argument} must be batches of square matrices, but they are {rows} by"
            f" {columns} matrices"
        )


def check_dtype(name: str, argument: str, tensor: Tensor) -> None:
    """TypeError, with the reason, unless a tensor's dtype is one of those there are kernels for."""
    if tensor.dtype in FLOATS:
        return
    kind = str(tensor.dtype).removeprefix("torch.")
    reason = _REASONS.get(tensor.dtype, "a factorisation is made of fractions")
    raise TypeError(
        f"{name}: argument '{argument}' expects float32, float16 or bfloat16, got {kind}: {reason}."
        " Convert it with .to(torch.float32), or use torch.linalg on the CPU"
    )


def check_together(name: str, first: Tensor, other: str, second: Tensor) -> None:
    """Two tensors of one dtype and device."""
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"linalg.{name}: Expected A and {other} to have the same dtype, but found A of type"
            f" {first.dtype} and {other} of type {second.dtype} instead"
        )
    if first.device != second.device:
        raise RuntimeError(
            f"linalg.{name}: Expected A and {other} to be on the same device, but found A on"
            f" {first.device} and {other} on {second.device} instead"
        )


def check_equation(name: str, a: Tensor, b: Tensor, *, left: bool) -> None:
    """A X = B, or X A = B, must be of matching sizes."""
    if a.shape[-1] == b.shape[-2 if left else -1]:
        return
    equation = "AX = B" if left else "XA = B"
    sizes = " and ".join("x".join(str(size) for size in m.shape[-2:]) for m in (a, b))
    raise RuntimeError(
        f"linalg.{name}: Incompatible shapes of A and B for the equation {equation} ({sizes})"
    )


def raise_failed(
    info: Tensor, name: str, words: Callable[[int], str], kind: type[Exception] = LinAlgError
) -> None:
    """Raises for the first matrix whose info is not 0; this waits for the device."""
    if not bool(torch.count_nonzero(info)):
        return
    failed = info.reshape(-1).nonzero()
    index = int(failed[0])
    where = f"(Batch element {index}): " if info.dim() else ""
    raise kind(f"{name}: {where}{words(int(info.reshape(-1)[index]))}")


def wide(*tensors: Tensor) -> Any:
    """Tensors in float32: gradients are computed in it too."""
    converted = [tensor.float() for tensor in tensors]
    return converted[0] if len(converted) == 1 else converted


def in_float(function: Callable[..., Any]) -> Callable[..., Any]:
    """torch's function for the narrow dtypes it has no kernel for: computed in float32."""

    def called(*args: Any, **kwargs: Any) -> Any:
        narrow = next(a.dtype for a in args if isinstance(a, Tensor) and a.is_floating_point())
        if narrow not in (torch.float16, torch.bfloat16):
            return function(*args, **kwargs)
        floats = [a.float() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        return as_dtype(function(*floats, **kwargs), narrow)

    return called


def as_dtype(result: Any, dtype: torch.dtype) -> Any:
    """A result, or several, with floating point tensors in this dtype."""
    if not isinstance(result, Tensor):
        return tuple(as_dtype(each, dtype) for each in result)
    return result.to(dtype) if result.is_floating_point() else result


def broadcast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of matrices with the same leading dimensions."""
    batch = batch_of(a, b)
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def batch_of(a: Tensor, b: Tensor) -> torch.Size:
    """The leading dimensions of two batches of matrices, broadcast."""
    if a.shape[:-2] == b.shape[:-2]:
        return a.shape[:-2]
    shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return shape


def named(kind: str, values: Sequence[Tensor]) -> Named:
    """Results as the named tuple that torch.linalg returns."""
    return getattr(torch.return_types, kind)(tuple(values))
