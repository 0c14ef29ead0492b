"""A call goes in; out comes why torch keeps it, or None. What only one function asks is its row's.

These questions are the same for all: what the arguments are, where they are, and whether someone
watches torch's functions, who must see torch's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from anymetal.device.enabling import is_enabled
from anymetal.ops.declare.checks import MAX_ELEMENTS
from anymetal.overrides.table import Kinds, Row

KINDS = ("cpu", "mps", "virtual-mps", "cuda")
_HAS_NAMES = hasattr(torch.Tensor, "names")  # until torch 2.12
_PLAIN = (bool, int, float, str, torch.dtype)


def kind_of(device: torch.device) -> str:
    """A device as verdicts know it; the virtual one is another machine than a Mac's GPU."""
    return "virtual-mps" if device.type == "mps" and is_enabled() else device.type


def why_kept(row: Row, kinds: Kinds, args: Sequence[Any], named: dict[str, Any]) -> str | None:
    """Why torch keeps a call, as far as its arguments tell; torch.compile traces this."""
    first: torch.Tensor | None = None  # with elements of a floating-point dtype
    largest = 0
    for value in _flat((*args, *named.values())):
        if isinstance(value, torch.Tensor):
            reason = _why_not_tensor(row, kinds, value)
            if reason is not None:
                return reason
            largest = max(largest, value.numel())
            if value.dtype.is_floating_point:
                if first is not None and _differ(row, first, value):
                    return "tensors of several dtypes"
                first = value if first is None else first
        elif not _is_plain(value):
            return f"an argument of type {type(value).__name__}"
    if first is None:
        return "no tensor of floating-point numbers"
    if not row.autocast and torch.is_autocast_enabled(first.device.type):
        return "torch.autocast"
    if largest < kinds.get(kind_of(first.device), 0):
        return "too few elements to gain"
    return "tensors on several devices" if _scattered(first, args, named) else None


def _why_not_tensor(row: Row, kinds: Collection[str], tensor: torch.Tensor) -> str | None:
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return f"a tensor of class {type(tensor).__name__}"
    if tensor.layout is not torch.strided:
        return f"layout {tensor.layout}"
    if tensor.dtype not in row.dtypes and tensor.dtype not in row.integers:
        return f"dtype {tensor.dtype}"
    if kind_of(tensor.device) not in kinds:
        return f"device {kind_of(tensor.device)}"
    return "too many elements" if tensor.numel() > MAX_ELEMENTS else None


def _differ(row: Row, first: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two dtypes are too many; torch.autocast makes them one."""
    if first.dtype == other.dtype:
        return False
    return not (row.autocast and torch.is_autocast_enabled(first.device.type))


def _scattered(first: torch.Tensor, args: Sequence[Any], named: dict[str, Any]) -> bool:
    values = _flat((*args, *named.values()))
    return any(isinstance(v, torch.Tensor) and v.device != first.device for v in values)


def _flat(values: Sequence[Any]) -> list[Any]:
    """The values, and those in lists among them."""
    found: list[Any] = []
    for value in values:
        found += value if isinstance(value, list | tuple) else [value]
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, _PLAIN)


def why_watched() -> str | None:
    """Why torch keeps a call that is not being compiled: someone must see torch's own function.

    It is asked before anything else: those who watch see every look at a tensor.
    """
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch._C._are_functorch_transforms_active():
        return "inside a transform of torch.func"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives"
    if torch._C._len_torch_dispatch_stack():
        return "inside a TorchDispatchMode"
    for i in range(torch._C._len_torch_function_stack()):
        mode = torch._C._get_function_stack_at(i)
        if not isinstance(mode, DeviceContext):  # torch.set_default_device, which looks on
            return f"inside a {type(mode).__name__}"
    return None


def why_strange(values: Iterable[Any]) -> str | None:
    """Why torch keeps tensors that torch.compile does not have."""
    for tensor in values:
        if isinstance(tensor, torch.Tensor):
            if tensor.is_neg():
                return "a tensor whose signs are lazy"
            if _HAS_NAMES and any(getattr(tensor, "names", ())):
                return "named dimensions"
    return None
