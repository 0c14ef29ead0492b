"""A row and torch's function go in; out comes the function that stands in torch's place.

It calls ours where ours takes the call in full, else torch's own with the same arguments. Errors
are torch's: what ours refuses is asked of torch, and where torch refuses it too, that is the error.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from anymetal import settings
from anymetal.errors import AnymetalError, KernelFault, KernelTimeout
from anymetal.ops.declare import variants
from anymetal.ops.declare.derivatives import recovering
from anymetal.overrides.counts import COUNTS
from anymetal.overrides.reasons import why_kept, why_strange, why_watched
from anymetal.overrides.table import Kinds, Row

_thread = threading.local()

# What our operators raise for arguments that they do not take; kernels fail with other errors.
_REFUSALS = (
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
)


def replacement(row: Row, place: str, original: Any, kinds: Kinds) -> Any:
    """What stands in the place of `original`; `kinds` are the devices that it takes calls of."""
    name, is_python = f"torch.{place}", isinstance(original, FunctionType)

    def called(*args: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return _traced(row, name, original, kinds, args, named)
        if getattr(_thread, "inside", False):  # ours is made of torch's functions
            return original(*args, **named)
        values = (*args, *named.values())
        if is_python and has_torch_function(values):
            # torch's function would hand over what stands under its name, and that is not itself.
            COUNTS.keep(name, why_watched() or "a class with __torch_function__")
            return handle_torch_function(original, values, *args, **named)
        error = None
        reason = _reason(row, name, kinds, args, named)
        if reason is None:
            try:
                outcome = _ours(row, name, args, named)
            except Exception as raised:
                if settings.OVERRIDES_STRICT.value() and not is_refusal(raised):
                    raise
                if row.in_place and is_half_done(raised):
                    raise
                error, reason = raised, f"an error of ours: {raised}"
            else:
                if not isinstance(outcome, str):
                    COUNTS.take(name)
                    return outcome
                reason = outcome
        result = original(*args, **named)  # where torch raises too, that is the error
        COUNTS.keep(name, reason)
        if error is not None and not is_refusal(error):
            COUNTS.switch_off(name, variants.last() or name, error, described(args, named))
        return result

    return named_as(place, called, original)


def named_as(place: str, called: Any, original: Any) -> Any:
    """A function under torch's name: saved by it, and compiled by torch.jit.script as torch's."""
    functools.update_wrapper(called, original)
    module, _, name = f"torch.{place}".rpartition(".")
    if module == "torch.Tensor":
        module, name = "torch", f"Tensor.{name}"
    called.__module__, called.__qualname__ = module, name
    called.__prepare_scriptable__ = lambda: original
    return called


def _traced(
    row: Row,
    name: str,
    original: Any,
    kinds: Kinds,
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """A call inside torch.compile: decided once, while it is traced, and not counted."""
    if not row.compiled or torch.compiler.is_exporting() or name in COUNTS.failures:
        return original(*args, **named)
    if why_kept(row, kinds, args, named) is not None:
        return original(*args, **named)
    try:
        result = row.ours(*args, **named)
    except TypeError:
        return original(*args, **named)
    return original(*args, **named) if isinstance(result, str) else result


def _reason(
    row: Row, name: str, kinds: Kinds, args: tuple[Any, ...], named: dict[str, Any]
) -> str | None:
    if name in COUNTS.failures:
        return "switched off after an error"
    return (
        why_watched() or why_kept(row, kinds, args, named) or why_strange((*args, *named.values()))
    )


def _ours(row: Row, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    with recovering(Recovery(name)), _inside():
        return row.ours(*args, **named)


def is_refusal(error: Exception) -> bool:
    return isinstance(error, _REFUSALS) and not isinstance(error, AnymetalError)


def is_half_done(error: Exception) -> bool:
    """Whether a kernel had begun to write; those that cannot be compiled have not."""
    return isinstance(error, KernelFault | KernelTimeout)


@contextmanager
def _inside() -> Iterator[None]:
    _thread.inside = True
    try:
        yield
    finally:
        _thread.inside = False


class Recovery:
    """What happens to an error in a gradient of a call that was ours: torch's gradient instead."""

    def __init__(self, name: str) -> None:
        self._name = name

    @contextmanager
    def around(self) -> Iterator[None]:
        """Our gradients too are made of torch's own functions."""
        before = getattr(_thread, "inside", False)
        _thread.inside = True
        try:
            yield
        finally:
            _thread.inside = before

    def instead(
        self,
        operator: str,
        error: Exception,
        reference: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        if settings.OVERRIDES_STRICT.value():
            raise error
        COUNTS.switch_off(self._name, operator, error, described(args, named))
        return reference(*args, **named)


def described(args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Arguments in a line: of tensors the dtype, shape and device."""
    words = [_word(value) for value in args]
    return ", ".join([*words, *(f"{name}={_word(value)}" for name, value in named.items())])


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype}{list(value.shape)} on {value.device}"
    return repr(value)
