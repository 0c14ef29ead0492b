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


# torch's own names for dtypes, in its messages.
_NAMES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}
# How torch begins its messages where that is not "linalg." and the function's name.
_BEGINNINGS = {
    "cholesky_ex": "linalg.cholesky",
    "cholesky_inverse": "cholesky_inverse",
    "solve_ex": "linalg.solve",
    "inv_ex": "linalg.inv",
    "geqrf": "torch.geqrf",
    "householder_product": "torch.linalg.householder_product",
    "ormqr": "torch.ormqr",
    "lstsq": "torch.linalg.lstsq",
    "matrix_rank": "torch.linalg.matrix_rank",
}
# What it says of tensors with fewer than two dimensions, where that is not the usual.
_EXPECTED = "Expected tensor with 2 or more dimensions. Got size: {shape} instead"
_TOO_FLAT = {
    "lu": f"linalg.lu: {_EXPECTED}",
    "lu_factor": f"torch.lu_factor: {_EXPECTED}",
    "lu_factor_ex": f"torch.lu_factor: {_EXPECTED}",
    "geqrf": "torch.geqrf: input must have at least 2 dimensions.",
    "householder_product": "torch.linalg.householder_product: input must have at least 2"
    " dimensions.",
    "ormqr": "torch.ormqr: {argument} must have at least 2 dimensions.",
    "lstsq": "torch.linalg.lstsq: input must have at least 2 dimensions.",
    "pinv": "linalg.pinv({dtype}{{{shape}}}): expected a tensor with 2 or more dimensions of float,"
    " double, cfloat or cdouble types",
    "matrix_rank": "torch.linalg.matrix_rank: The input tensor input must have at least 2"
    " dimensions.",
    "cond": "linalg.cond: The input tensor must have at least 2 dimensions.",
}
_FLAT = "{begins}: The input tensor {argument} must have at least 2 dimensions."


def dtype_name(tensor: Tensor) -> str:
    return _NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


def check_matrix(
    name: str, argument: str, matrix: Tensor, *, square: bool = False, begins: str = ""
) -> None:
    """A tensor of matrices that the kernels can take."""
    check_dtype(name, argument, matrix)
    check_size(name, argument, matrix)
    if matrix.dim() >= 2 and not square:
        return
    begins = begins or _BEGINNINGS.get(name, f"linalg.{name}")
    if matrix.dim() < 2:
        known = {"shape": list(matrix.shape), "dtype": dtype_name(matrix), "argument": argument}
        raise RuntimeError(_TOO_FLAT.get(name, _FLAT).format(begins=begins, **known))
    rows, columns = matrix.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"{begins}: {argument} must be batches of square matrices, but they are {rows} by"
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


def check_together(name: str, first: Tensor, other: str, second: Tensor, given: str = "A") -> None:
    """Two tensors of one dtype and device."""
    begins = _BEGINNINGS.get(name, f"linalg.{name}")
    if first.dtype != second.dtype:
        raise RuntimeError(
            f"{begins}: Expected {given} and {other} to have the same dtype, but found {given} of"
            f" type {dtype_name(first)} and {other} of type {dtype_name(second)} instead"
        )
    check_device(begins, first, other, second, given)


def check_device(begins: str, first: Tensor, other: str, second: Tensor, given: str = "A") -> None:
    if first.device != second.device:
        raise RuntimeError(
            f"{begins}: Expected {given} and {other} to be on the same device, but found {given} on"
            f" {first.device} and {other} on {second.device} instead"
        )


def check_equation(name: str, a: Tensor, b: Tensor, *, left: bool) -> None:
    """A X = B, or X A = B, must be of matching sizes."""
    if a.shape[-1] == b.shape[-2 if left else -1]:
        return
    equation = "AX = B" if left else "XA = B"
    sizes = " and ".join("x".join(str(size) for size in m.shape[-2:]) for m in (a, b))
    begins = _BEGINNINGS.get(name, f"linalg.{name}")
    raise RuntimeError(
        f"{begins}: Incompatible shapes of A and B for the equation {equation} ({sizes})"
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
    check_broadcast(b.shape[:-2], a.shape[:-2])
    shape: torch.Size = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])  # type: ignore[no-untyped-call]
    return shape


def check_broadcast(a: Sequence[int], b: Sequence[int]) -> None:
    """Two shapes that go together, or torch's words for where they do not."""
    count = max(len(a), len(b))
    first, second = ([1] * (count - len(shape)) + list(shape) for shape in (a, b))
    for place in reversed(range(count)):
        x, y = first[place], second[place]
        if x != y and 1 not in (x, y):
            raise RuntimeError(
                f"The size of tensor a ({x}) must match the size of tensor b ({y}) at non-singleton"
                f" dimension {place}"
            )


def named(kind: str, values: Sequence[Tensor]) -> Named:
    """Results as the named tuple that torch.linalg returns."""
    return getattr(torch.return_types, kind)(tuple(values))
