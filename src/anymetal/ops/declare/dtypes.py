"""Dtypes of arguments that differ, and autocast: tensors go in, tensors of one dtype come out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from anymetal.ops.declare.signature import converted

if TYPE_CHECKING:
    from anymetal.ops.declare.operator import AnyOperator

# What happens to tensors of several dtypes: "promote" computes in the widest of them and gives
# results of it, as torch's elementwise operators do; "first" also computes in it, and gives results
# of the first tensor's, as its norms do. Without either, an operator refuses them.
Mixed = Literal["promote", "first"]

_KEYS = {"cpu": "AutocastCPU", "mps": "AutocastMPS", "cuda": "AutocastCUDA"}


@dataclass(frozen=True)
class Autocast:
    """What torch.autocast does: on the devices where it does so to torch's own operator `like`.

    "lower" computes in autocast's dtype, "float32" in that.
    """

    to: Literal["lower", "float32"]
    like: str

    def devices(self) -> list[str]:
        has = torch._C._dispatch_has_kernel_for_dispatch_key
        return [device for device, key in _KEYS.items() if has(f"aten::{self.like}", key)]


def register_autocast(operator: AnyOperator, library: Any) -> None:
    """Registers the casts of `operator.autocast`."""
    if operator.autocast is None:
        return
    for device in operator.autocast.devices():
        kernel = functools.partial(_under_autocast, operator, operator.autocast, device)
        library.impl(operator.name, kernel, _KEYS[device])


def _under_autocast(
    operator: AnyOperator, autocast: Autocast, device: str, *args: Any, **kwargs: Any
) -> Any:
    dtype = torch.get_autocast_dtype(device) if autocast.to == "lower" else torch.float32

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        # As torch's: float64 was asked for, and integers are no values.
        eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
        return tensor.to(dtype) if eligible and tensor.device.type == device else tensor

    key = getattr(torch._C.DispatchKey, _KEYS[device])
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        return operator.overload(
            *converted(args, cast), **{name: converted(v, cast) for name, v in kwargs.items()}
        )


def called_in_one_dtype(
    call: Callable[..., Any], mixed: Mixed, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """`call` with its tensors in the widest dtype among them."""
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    first = tensors[0].dtype
    if all(tensor.dtype == first for tensor in tensors):
        return call(*args, **kwargs)
    wide = first
    for tensor in tensors:
        wide = torch.promote_types(wide, tensor.dtype)
    given = [value.to(wide) if isinstance(value, torch.Tensor) else value for value in args]
    named = {n: v.to(wide) if isinstance(v, torch.Tensor) else v for n, v in kwargs.items()}
    result = call(*given, **named)
    if mixed == "promote":
        return result
    if isinstance(result, torch.Tensor):
        return result.to(first)
    return tuple(each.to(first) for each in result)
