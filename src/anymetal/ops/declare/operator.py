"""One typed function declares an operator; registration, tests, benchmarks, health and docs follow.

See the package's docstring for how to declare one.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from anymetal.ops.declare.by_hand import (
    REFUSED_KEYS,
    by_autograd,
    check_kept,
    fits,
    refuse,
    refuse_nothing,
    refuse_some_meta,
)
from anymetal.ops.declare.checks import FLOATS
from anymetal.ops.declare.derivatives import (
    Backward,
    Call,
    Gradients,
    above,
    is_plain,
    recovery_of_gradient,
    reference_gradient,
)
from anymetal.ops.declare.dtypes import Autocast, Mixed, called_in_one_dtype, register_autocast
from anymetal.ops.declare.kernel_file import SUFFIXES, kernel_file
from anymetal.ops.declare.signature import by_arguments, signature_of, tensors_of
from anymetal.policy.tuning_cache import register_source

NAMESPACE = "anymetal"
DEVICES = ("CPU", "MPS", "CUDA")
LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
OPERATORS: dict[str, AnyOperator] = {}

Function = Callable[..., Any]
Ratios = Callable[..., Mapping[str, torch.Tensor]]  # of the results and the call's arguments
Make = Callable[[torch.dtype, torch.device, torch.Generator], tuple[list[Any], dict[str, Any]]]
P = ParamSpec("P")
R = TypeVar("R")
P2 = ParamSpec("P2")
R2 = TypeVar("R2")
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Cost:
    """The least memory traffic of a call, in bytes, and its arithmetic."""

    read: int
    write: int
    flops: int = 0


@dataclass(frozen=True)
class Case:
    """One way to call an operator: `make(dtype, device, generator)` gives args and kwargs."""

    name: str
    make: Make


@dataclass(frozen=True, kw_only=True)
class operator:
    """Declares the operator that a function with typed arguments describes.

    The function checks the arguments and makes room for the results. That is all that tracing
    needs, so it is the fake too; `run` fills what it made. A leading underscore of its name is no
    part of the operator's: it leaves the name to a public function with other arguments.
    """

    source: str  # a .metal file beside the declaration
    reference: Function  # torch's operators; called in float64 to judge, and for derivatives
    cases: Sequence[Case]
    mutates: Sequence[str] = ()  # arguments that are written; such an operator has no results
    functional: Function | None = None  # gives what it writes, for autograd
    results: Sequence[str] = ("output",)
    detached: Sequence[str] = ()  # results that no gradient flows into
    in_part: bool = False  # kernels write a part of what they are given, and no more
    gradient_in_part: bool = False  # likewise those of the gradient
    no_gradient: str | None = None  # why there is none
    made_of_others: bool = False  # the function computes the results, by other operators
    twice: bool = False  # gradients of gradients are those of the reference
    again: bool = False  # a gradient that is differentiated in turn is the reference's
    mixed: Mixed | None = None
    autocast: Autocast | None = None
    dtypes: Sequence[torch.dtype] = FLOATS
    cost: Callable[..., Cost] | None = None
    baseline: Function | None = None  # torch's own, where it is not the reference
    timed: Function | None = None  # torch's own, where the reference computes more than it does
    naive: Function | None = None  # the plain composition that people write instead
    bench: Sequence[Case] = ()  # what is timed, where it is not the last cases
    ratios: Ratios | None = None  # backward errors by name: they judge results instead of errors
    gradient_errors: float = 2.0  # how many of torch's own errors a gradient may have
    name: str = ""

    def __call__(self, room: Callable[P, R]) -> Operator[P, R]:
        return Operator(room, self)


class Operator(Generic[P, R]):
    """The operator `anymetal::name`, callable as the function that declares it."""

    def __init__(self, room: Callable[P, R], declared: operator) -> None:
        functools.update_wrapper(self, room)
        self.room: Function = room
        self.name = declared.name or room.__name__.lstrip("_")
        self.signature = signature_of(room, self.name, declared.mutates)
        self.names = self.signature.names
        self.mutates, self.results = tuple(declared.mutates), tuple(declared.results)
        self.detached, self.in_part = frozenset(declared.detached), declared.in_part
        self.gradient_in_part = declared.gradient_in_part
        self.reference = by_arguments(declared.reference, self.signature)
        self.cases = list(declared.cases)
        self.baseline, self.naive = declared.baseline, declared.naive
        self.timed = by_arguments(declared.timed, self.signature) if declared.timed else None
        self.bench = list(declared.bench)
        self.ratios, self.gradient_errors = declared.ratios, declared.gradient_errors
        self.cost = by_arguments(declared.cost, self.signature) if declared.cost else None
        self.dtypes, self.mixed = tuple(declared.dtypes), declared.mixed
        self.autocast, self.twice = declared.autocast, declared.twice
        self.again = declared.again
        self.no_gradient = declared.no_gradient or "none is declared"
        self.made_of_others = declared.made_of_others
        self._through_others = declared.made_of_others and declared.no_gradient is None
        self.functional = declared.functional
        self.kernels = kernel_file(Path(inspect.getfile(room)).parent / declared.source)
        self.kept: frozenset[str] = frozenset()
        self.keep_where: dict[str, Callable[[Mapping[str, Any]], bool]] = {}
        self.optional_gradients = False
        self.forward: AnyOperator | None = None  # of which it is the gradient
        self._backward: Backward | None = None
        self._run: Function | None = None
        self._register()

    def _register(self) -> None:
        if self.name in OPERATORS:
            raise ValueError(f"operator {self.name!r} is declared twice")
        if self.functional is not None and len(self.mutates) != 1:
            raise ValueError(f"operator {self.name!r}: `functional` needs one mutated argument")
        LIBRARY.define(self.signature.schema)  # type: ignore[no-untyped-call]
        self._packet: Any = getattr(torch.ops.anymetal, self.name)
        self.overload: Any = self._packet.default
        arguments = self.overload._schema.arguments
        self.required_tensors = tuple(a.name for a in arguments if str(a.type) == "Tensor")
        for key in DEVICES:
            LIBRARY.impl(self.name, self._on_device, key)  # type: ignore[no-untyped-call]
        for key in REFUSED_KEYS:
            LIBRARY.impl(self.name, self._refuse, key)  # type: ignore[no-untyped-call]
        LIBRARY.impl(self.name, self._above_autograd, "Autograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(self.qualified, self._fake, lib=LIBRARY)
        register_autocast(self, LIBRARY)
        register_source(self.name, lambda: self.kernels.text)
        OPERATORS[self.name] = self

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if any(argument is None for argument in args):
            refuse_nothing(self, self.signature.bind(args, kwargs))
        if self.mixed is not None:
            result = called_in_one_dtype(self._packet, self.mixed, args, kwargs)
        else:
            result = self._packet(*args, **kwargs)
        if self.mutates:
            # As torch's own, it returns what it wrote; annotated with None, nobody looks.
            return self.signature.bind(args, kwargs)[self.mutates[0]]  # type: ignore[no-any-return]
        return result  # type: ignore[no-any-return]

    @property
    def qualified(self) -> str:
        return f"{NAMESPACE}::{self.name}"

    @property
    def differentiable(self) -> bool:
        return self._backward is not None or self.functional is not None or self.through_others

    @property
    def through_others(self) -> bool:
        """Whether its gradient is that of the operators it is made of."""
        return self._through_others and self._backward is None

    def outcome(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What a call gives: its results, or what it wrote where it mutates arguments.

        `function` is the operator or one with its arguments, such as the reference.
        """
        results = function(*args, **kwargs)
        if not self.mutates:
            return results
        values = self.signature.bind(args, kwargs)
        return list(tensors_of(values[name] for name in self.mutates))

    # --- kernels ----------------------------------------------------------------------------------

    def run(self, function: F) -> F:
        """Registers what fills the results: `function(results, *arguments)`.

        A mutating operator has none: `function(*arguments)` writes into its arguments. Marked by
        `on_call`, it takes the arguments as one object.
        """
        self._run = by_arguments(function, self.signature)
        return function

    def kernel(self, name: str, tensor: torch.Tensor) -> Callable[..., None]:
        """The instance of a kernel for a tensor's dtype and device."""
        return self.kernels.kernel(f"{name}_{self.suffix(tensor)}", tensor.device)

    def suffix(self, tensor: torch.Tensor) -> str:
        if tensor.dtype not in self.dtypes:
            expected = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
            raise TypeError(f"{self.name}: dtype {tensor.dtype} is not supported; use {expected}")
        return SUFFIXES[tensor.dtype]

    def _on_device(self, *args: Any, **kwargs: Any) -> Any:
        if self.forward is not None:
            check_kept(self.forward, self, self.signature.bind(args, kwargs))
        try:
            results = self.room(*args, **kwargs)
        except AttributeError:
            refuse_nothing(self, self.signature.bind(args, kwargs))
            raise
        if self.made_of_others:
            return results
        if self._run is None:
            raise NotImplementedError(f"{self.qualified}: no function is registered by `run`")
        if self.mutates:
            self._run(*args, **kwargs)
            return None
        try:
            self._run(results, *args, **kwargs)
        except Exception as error:
            recovery = recovery_of_gradient()
            if recovery is None:
                raise
            found = recovery.instead(self.qualified, error, self.reference, args, kwargs)
            for room, value in zip(tensors_of([results]), tensors_of([found]), strict=True):
                room.copy_(value)
        return results

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        refuse(self, self.signature.bind(args, kwargs))

    def _fake(self, *args: Any, **kwargs: Any) -> Any:
        refuse_some_meta(self, self.signature.bind(args, kwargs))
        results = self.room(*args, **kwargs)
        return None if self.mutates else results

    # --- derivatives ------------------------------------------------------------------------------

    def gradient(
        self,
        *,
        of: Sequence[str] = (),
        reference: Function | None = None,
        cases: Sequence[Case] | None = None,
        cost: Callable[..., Cost] | None = None,
        source: str | None = None,
        name: str = "",
    ) -> Callable[[Callable[P2, R2]], Operator[P2, R2]]:
        """Declares the operator that gives the gradients of the arguments `of`, or all tensors.

        Its arguments say what it needs, by name: `grad` (then `grad_<result>` for each further
        result), arguments of this operator, and its results. Those are kept. Reference and cases
        follow from this operator's, where it takes no results.
        """
        wanted = tuple(of) or self._tensor_names()

        def declare(room: Callable[P2, R2]) -> Operator[P2, R2]:
            declared = operator(
                source=source or str(self.kernels.path),
                reference=reference or _Derived(self, wanted),
                cases=(),
                cost=cost,
                dtypes=self.dtypes,
                in_part=self.gradient_in_part,
                no_gradient=f"{self.name} can be differentiated once",
                name=name,
            )
            made = Operator(room, declared)
            made.forward = self if fits(self, made) else None
            made.cases = list(cases) if cases is not None else _derived_cases(self, made)
            self.backward(keep=[n for n in made.names if n not in self.gradient_names()])(
                _by_operator(self, made, wanted)
            )
            self.optional_gradients = _has_optional(room, self.gradient_names())
            if isinstance(made.reference, _Derived):
                made.reference.bind(made)
            if self.twice:
                made.differentiate_by_reference()
            return made

        return declare

    def backward(
        self,
        *,
        keep: Sequence[str] = (),
        keep_where: Mapping[str, Callable[[Mapping[str, Any]], bool]] | None = None,
    ) -> Callable[[F], F]:
        """Registers `function(call, *gradients)`, which gives gradients by the arguments' names.

        `call` has the arguments as attributes; tensors, and results by their names, where `keep`
        names them, or `keep_where` with a condition on the arguments that holds. A gradient
        annotated as optional is None where no one used that result.
        """
        self.keep_where = dict(keep_where or {})
        keep = [*keep, *self.keep_where]
        unknown = set(keep) - {*self.names, *self.results}
        if unknown:
            raise ValueError(f"{self.name} keeps {sorted(unknown)}, no arguments or results of it")

        def register(function: F) -> F:
            self._backward, self.kept = function, frozenset(keep)
            hints = list(inspect.signature(function).parameters)[1:]
            self.optional_gradients = _has_optional(function, hints)
            return function

        return register

    def differentiate_by_reference(self) -> None:
        """Takes the gradients from the reference, made of torch's operators."""
        names = self._tensor_names()
        gradient = reference_gradient(self, names)

        def backward(call: Call, *gradients: torch.Tensor) -> Gradients:
            values = {name: getattr(call, name) for name in self.names}
            found = gradient(values, *gradients)
            return {name: value for name, value in found.items() if call.needs(name)}

        self._backward, self.kept = backward, frozenset(self.names)

    def differentiate(self, call: Call, *gradients: Any) -> Gradients:
        if self._backward is None:
            raise RuntimeError(f"{self.qualified} has no gradient: {self.no_gradient}")
        if self.again and torch.is_grad_enabled():
            return self._differentiate_reference(call, *gradients)
        return self._backward(call, *gradients)

    def _differentiate_reference(self, call: Call, *gradients: Any) -> Gradients:
        """Gradients made of torch's operators, which can be differentiated in turn."""
        wanted = tuple(name for name in self.names if call.needs(name))
        values = {name: getattr(call, name) for name in self.names}
        found: Gradients = reference_gradient(self, wanted)(values, *gradients)
        return found

    def below_autograd(self, values: dict[str, Any]) -> Any:
        args, kwargs = self.signature.split(values)
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*args, **kwargs)

    def _above_autograd(self, *args: Any, **kwargs: Any) -> Any:
        if not self.mutates and is_plain(args, kwargs):
            with torch._C._AutoDispatchBelowAutograd():
                return self.overload(*args, **kwargs)
        return above(self, self.signature.bind(args, kwargs))

    def gradient_names(self) -> list[str]:
        return ["grad", *(f"grad_{name}" for name in self.results[1:])]

    def _tensor_names(self) -> tuple[str, ...]:
        arguments = self.overload._schema.arguments
        return tuple(a.name for a in arguments if "Tensor" in str(a.type))


AnyOperator = Operator[..., Any]


def _has_optional(function: Function, names: Sequence[str]) -> bool:
    """Whether one of these arguments of a function may be None."""
    hints = typing.get_type_hints(function)
    return any(type(None) in typing.get_args(hints.get(name)) for name in names)


def _by_operator(forward: AnyOperator, backward: AnyOperator, wanted: Sequence[str]) -> Backward:
    """Gradients that one operator gives, in the order of `wanted`."""

    def gradient(call: Call, *gradients: Any) -> Gradients:
        given = dict(zip(forward.gradient_names(), gradients, strict=True))
        values = {n: given[n] if n in given else getattr(call, n) for n in backward.names}
        args, kwargs = backward.signature.split(values)
        with by_autograd():
            found = backward(*args, **kwargs)
        listed = [found] if isinstance(found, torch.Tensor) else found
        return {name: value for name, value in zip(wanted, listed, strict=True) if call.needs(name)}

    return gradient


class _Derived:
    """The reference of a gradient: that of the operator, differentiated by torch."""

    def __init__(self, forward: AnyOperator, wanted: tuple[str, ...]) -> None:
        self._forward, self._wanted = forward, wanted
        self._gradient = reference_gradient(forward, wanted)

    def bind(self, backward: AnyOperator) -> None:
        unknown = set(backward.names) - {*self._forward.names, *self._forward.gradient_names()}
        if unknown:
            raise ValueError(f"{backward.name} takes {sorted(unknown)}: give it a reference")
        self._signature = backward.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._signature.bind(args, kwargs)
        gradients = [given[name] for name in self._forward.gradient_names()]
        defaults = self._forward.signature.defaults
        values = {name: given.get(name, default) for name, default in defaults.items()}
        found = self._gradient(values, *gradients)
        results = tuple(found[name] for name in self._wanted)
        return results[0] if len(results) == 1 else results


def _derived_cases(forward: AnyOperator, backward: AnyOperator) -> list[Case]:
    """An operator's cases with gradients of its results, as its gradient takes them."""

    def derived(case: Case) -> Case:
        def make(
            dtype: torch.dtype, device: torch.device, generator: torch.Generator
        ) -> tuple[list[Any], dict[str, Any]]:
            args, kwargs = case.make(dtype, device, generator)
            results = forward.reference(*args, **kwargs)
            listed = [results] if isinstance(results, torch.Tensor) else list(results)
            values = forward.signature.bind(args, kwargs)
            values |= dict(zip(forward.results, listed, strict=False))
            for name, result in zip(forward.gradient_names(), listed, strict=False):
                noise = torch.randn(result.shape, generator=generator)
                values[name] = noise.to(result.dtype).to(device)
            return backward.signature.split({name: values[name] for name in backward.names})

        return Case(case.name, make)

    return [derived(case) for case in forward.cases]
