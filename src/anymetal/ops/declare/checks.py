"""What an operator requires of its tensors: each function raises with the values it found."""

from __future__ import annotations

from collections.abc import Sequence

import torch

# Kernels count elements in 32 bits.
MAX_ELEMENTS = 2**31 - 1
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_input(operator: str, tensor: torch.Tensor, name: str = "input") -> None:
    """A tensor of a dtype that kernels have, with no more elements than they count."""
    check_dtype(operator, name, tensor, FLOATS)
    check_size(operator, name, tensor)


def check_pair(operator: str, first: str, a: torch.Tensor, second: str, b: torch.Tensor) -> None:
    """Two such tensors, alike in dtype, device and shape."""
    check_input(operator, a, first)
    check_like(operator, second, b, first, a)
    check_shape(operator, second, b, a.shape, f"that of '{first}'")


def check_dtype(
    operator: str, name: str, tensor: torch.Tensor, dtypes: Sequence[torch.dtype]
) -> None:
    """TypeError unless `tensor` is a tensor of one of `dtypes`."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{operator}: argument '{name}' expects a tensor, got {type(tensor).__name__}"
        )
    if tensor.dtype not in dtypes:
        expected = ", ".join(_short(dtype) for dtype in dtypes)
        raise TypeError(
            f"{operator}: argument '{name}' expects {expected}, got {_short(tensor.dtype)}. Convert"
            " it with .to()"
        )


def check_like(
    operator: str, name: str, tensor: torch.Tensor, model: str, of: torch.Tensor
) -> None:
    """`tensor` must have the dtype and the device of the tensor `of`, called `model`."""
    check_dtype(operator, name, tensor, [of.dtype])
    if tensor.device != of.device:
        raise ValueError(
            f"{operator}: argument '{name}' is on {tensor.device}, but '{model}' is on {of.device}."
            f" Move it with .to({str(of.device)!r})"
        )


def check_shape(
    operator: str, name: str, tensor: torch.Tensor, expected: Sequence[int], why: str
) -> None:
    """ValueError unless `tensor` has exactly this shape; `why` says where the shape comes from."""
    if tuple(tensor.shape) != tuple(expected):
        raise ValueError(
            f"{operator}: argument '{name}' expects shape {list(expected)} ({why}), got"
            f" {list(tensor.shape)}"
        )


def check_size(operator: str, name: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor with more elements than kernels count."""
    if tensor.numel() > MAX_ELEMENTS:
        raise ValueError(
            f"{operator}: argument '{name}' has {tensor.numel()} elements, kernels index at most"
            f" {MAX_ELEMENTS}. Split it along a dimension"
        )


def check_writable(operator: str, name: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor with several elements in one place, which cannot be written."""
    spread = zip(tensor.shape, tensor.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in spread):
        raise ValueError(
            f"{operator}: argument '{name}' is written, but its shape {list(tensor.shape)} with"
            f" strides {list(tensor.stride())} has several elements in one place. Pass it with"
            " .clone()"
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
