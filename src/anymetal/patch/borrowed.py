"""A function with the code of another, and other values under some of the names it looks up.

What a forward calls by a global name cannot be replaced for one model alone: the name belongs to
all models of that file. A copy of the forward has names of its own.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from anymetal.patch.formula import Unreadable


def with_names(function: Any, **names: Any) -> FunctionType:
    """The same code; torch.compile, too, sees the new names."""
    if not isinstance(function, FunctionType) or inspect.unwrap(function) is not function:
        raise Unreadable("its forward is wrapped by a decorator")
    around = {**function.__globals__, **names}
    del around["__name__"]  # by which torch.compile would look names up in the module itself
    made = FunctionType(
        function.__code__, around, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = __name__
    return made
