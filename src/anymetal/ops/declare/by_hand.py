"""Calls that torch's autograd did not make: nobody has looked at their arguments before."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from anymetal.ops.declare.checks import check_like, check_shape
from anymetal.ops.declare.signature import converted, tensors_of

if TYPE_CHECKING:
    from anymetal.ops.declare.operator import AnyOperator

# Tensors that are not laid out by strides: there are no kernels for them.
REFUSED_KEYS = ("SparseCPU", "SparseCsrCPU", "MkldnnCPU", "QuantizedCPU")


class _Thread(threading.local):
    by_autograd = False


_thread = _Thread()


@contextmanager
def by_autograd() -> Iterator[None]:
    """Around calls whose arguments a forward has checked and kept."""
    before, _thread.by_autograd = _thread.by_autograd, True
    try:
        yield
    finally:
        _thread.by_autograd = before


def refuse(operator: AnyOperator, values: Mapping[str, Any]) -> NoReturn:
    """Says which argument has no kernels."""
    refuse_nothing(operator, values)
    for name, value in values.items():
        for tensor in tensors_of([value]):
            if tensor.layout != torch.strided or tensor.is_quantized:
                kind = "quantized" if tensor.is_quantized else str(tensor.layout)
                raise TypeError(
                    f"{operator.name}: argument '{name}' expects a strided tensor, got {kind}"
                )
    raise TypeError(f"{operator.name}: no argument is a tensor with a device that has kernels")


def refuse_nothing(operator: AnyOperator, values: Mapping[str, Any]) -> None:
    """Raises where an argument that must be a tensor is None: torch's dispatcher lets it pass."""
    for name in operator.required_tensors:
        if values[name] is None:
            raise TypeError(f"{operator.name}: argument '{name}' expects a tensor, got NoneType")


def fits(forward: AnyOperator, backward: AnyOperator) -> bool:
    """Whether a gradient's arguments suffice to call the operator it is of."""
    empty = inspect.Parameter.empty
    required = [name for name, value in forward.signature.defaults.items() if value is empty]
    return not forward.made_of_others and all(name in backward.names for name in required)


def check_kept(forward: AnyOperator, backward: AnyOperator, values: Mapping[str, Any]) -> None:
    """Raises unless the arguments are such as the operator would have kept: those that it accepts,
    and tensors like its results."""
    if _thread.by_autograd:
        return
    refuse_nothing(backward, values)
    _refuse_other_devices(backward, values)
    known = {
        name: converted(values.get(name, default), _without_data)
        for name, default in forward.signature.defaults.items()
    }
    args, kwargs = forward.signature.split(known)
    with _in_the_name_of(backward, forward):
        results = list(tensors_of([forward.room(*args, **kwargs)]))
    expected = dict(zip(forward.results, results, strict=False))
    expected |= dict(zip(forward.gradient_names(), results, strict=False))
    for name, result in expected.items():
        given = values.get(name)
        if isinstance(given, torch.Tensor) and name in backward.names:
            check_like(backward.name, name, _without_data(given), "output", result)
            check_shape(backward.name, name, given, result.shape, "that of the result")


@contextmanager
def _in_the_name_of(backward: AnyOperator, forward: AnyOperator) -> Iterator[None]:
    """What the operator says of its arguments, its gradient says in its own name."""
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error).replace(f"{forward.name}:", f"{backward.name}:", 1)
        raise type(error)(text) from None


def refuse_some_meta(operator: AnyOperator, values: Mapping[str, Any]) -> None:
    """Raises where some tensors have data and others have none: the dispatcher looks at one."""
    if len({tensor.is_meta for tensor in tensors_of(values.values())}) > 1:
        _refuse_other_devices(operator, values)


def _refuse_other_devices(operator: AnyOperator, values: Mapping[str, Any]) -> None:
    first = next(tensors_of(values.values()))
    for name, value in values.items():
        for tensor in tensors_of([value]):
            if tensor.device != first.device:
                raise ValueError(
                    f"{operator.name}: argument '{name}' is on {tensor.device}, but another is on"
                    f" {first.device}. Move it with .to({str(first.device)!r})"
                )


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
