"""`out=`: results go into tensors that the caller has, by torch's rules."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


# torch's messages have the names of C++.
_WORDS = {torch.float32: "float", torch.float64: "double", torch.int32: "int"}


def with_out(function: Callable[Parameters, Result]) -> Callable[..., Result]:
    """The function with one more keyword, `out`: a tensor, or one for each result."""

    given = inspect.signature(function)
    first = next(iter(given.parameters))

    @functools.wraps(function)
    def called(*args: Any, out: Any = None, **keywords: Any) -> Any:
        if args and not isinstance(args[0], Tensor):
            prefix = "linalg_" if hasattr(torch.linalg, called.__name__) else ""
            raise TypeError(
                f"{prefix}{called.__name__}(): argument '{first}' (position 1) must be Tensor, not"
                f" {type(args[0]).__name__}"
            )
        found = function(*args, **keywords)
        return found if out is None else _delivered(called.__name__, found, out)

    keyword = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None)
    called.__signature__ = given.replace(parameters=[*given.parameters.values(), keyword])  # type: ignore[attr-defined]
    return called


def _delivered(name: str, found: Any, out: Any) -> Any:
    if isinstance(found, Tensor):
        _fill(name, found, out)
        return out
    if not isinstance(out, tuple | list) or len(out) != len(found):
        raise TypeError(f"{name}: argument 'out' expects {len(found)} tensors, got {out!r}")
    for result, room in zip(found, out, strict=True):
        _fill(name, result, room)
    return type(found)(tuple(out))


def _word(tensor: Tensor) -> str:
    return _WORDS.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))


def _fill(name: str, found: Tensor, room: Any) -> None:
    if not isinstance(room, Tensor):
        raise TypeError(f"{name}: argument 'out' expects a tensor, got {type(room).__name__}")
    if torch.is_grad_enabled() and (found.requires_grad or room.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation,"
            " but one of the arguments requires grad."
        )
    if room.dtype != found.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {_word(found)}, but got {_word(room)} instead"
        )
    if room.device != found.device:
        raise RuntimeError(
            f"Expected out tensor to have device {found.device}, but got {room.device} instead"
        )
    if room.shape != found.shape:
        if room.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape"
                f" {list(room.shape)}, which does not match the required output shape"
                f" {list(found.shape)}.",
                stacklevel=4,
            )
        room.resize_(found.shape)
    room.copy_(found)
