"""A typed Python function goes in; out come torch's schema and the arguments of a call by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import WeakSet

import torch

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Signature:
    """The arguments of an operator in their order, and the schema that torch knows it by."""

    schema: str
    defaults: Mapping[str, Any]  # by name, in the order of the arguments; `empty` where required
    keyword_only: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.defaults)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Every argument by name, in order. The dispatcher leaves out those equal to defaults."""
        given = dict(zip(self.defaults, args, strict=False)) | dict(kwargs)
        return {name: given.get(name, default) for name, default in self.defaults.items()}

    def split(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments by name as a call takes them: by position, and by name where they must be."""
        by_name = {name: value for name, value in values.items() if name in self.keyword_only}
        return [value for name, value in values.items() if name not in by_name], by_name


class Arguments(SimpleNamespace):
    """The arguments of one call as attributes, those left out with their defaults."""


def on_call(function: F) -> F:
    """Marks a function of an operator, such as its reference, that takes a call's Arguments.

    They come last, in place of the arguments themselves: a declaration alone lists those.
    """
    _ON_CALL.add(function)
    return function


_ON_CALL: WeakSet[Callable[..., Any]] = WeakSet()


def by_arguments(function: F, signature: Signature) -> F:
    """A function marked by `on_call` as one that takes the arguments of the operator."""
    if function not in _ON_CALL:
        return function
    before = len(inspect.signature(function).parameters) - 1  # results, where it takes them

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        call = Arguments(**signature.bind(args[before:], kwargs))
        return function(*args[:before], call)

    return called  # type: ignore[return-value]


def signature_of(function: Callable[..., Any], name: str, mutates: Sequence[str]) -> Signature:
    """The signature of a function that declares the operator `name`."""
    parameters = inspect.signature(function).parameters
    unknown = set(mutates) - set(parameters)
    if unknown:
        raise ValueError(f"operator {name!r} mutates {sorted(unknown)}, which it does not take")
    schema = torch.library.infer_schema(function, mutates_args=tuple(mutates), op_name=name)
    if mutates:
        # A function annotated to return what it wrote does so in Python; torch's operator does not.
        schema = f"{schema[: schema.rindex('->')]}-> ()"
    return Signature(
        schema,
        {key: parameter.default for key, parameter in parameters.items()},
        frozenset(k for k, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY),
    )


def tensors_of(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among values and in lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_of(value)


def converted(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A value with every tensor in it converted."""
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, list | tuple):
        return [converted(item, convert) for item in value]
    return value
