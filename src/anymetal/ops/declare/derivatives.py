"""What autograd does with an operator, in reverse and in forward mode.

One kernel under torch's key "Autograd" serves functional and mutating operators: torch.compile sees
one operator and never looks inside. Derivatives that have no kernel of ours (tangents, gradients of
gradients) are taken from the reference, which is made of torch's own operators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.autograd import forward_ad

from anymetal.ops.declare.signature import converted, tensors_of

if TYPE_CHECKING:
    from anymetal.ops.declare.operator import AnyOperator

Gradients = Mapping[str, Any]
Backward = Callable[..., Gradients]


@dataclass(frozen=True)
class Like:
    """What is known of a tensor that was not kept."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Call:
    """A call that is being differentiated: its arguments by name, as attributes.

    Tensors are there where they were kept; of every tensor argument `like(name)` knows the shape.
    """

    def __init__(
        self, operator: str, values: dict[str, Any], likes: dict[str, Like], needed: frozenset[str]
    ) -> None:
        self._operator, self._values = operator, values
        self._likes, self._needed = likes, needed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            raise AttributeError(
                f"{self._operator}: its gradient uses {name!r}, which is not kept. Name it in keep="
            )
        return self._values[name]

    def needs(self, *names: str) -> bool:
        """Whether a gradient of one of these arguments is asked for."""
        return any(name in self._needed for name in names)

    def has(self, name: str) -> bool:
        """Whether this argument is a tensor, kept or not."""
        return name in self._likes

    def like(self, name: str) -> Like:
        return self._likes[name]


class Recovery(Protocol):
    """What a caller does about an error in a gradient of its call."""

    def around(self) -> AbstractContextManager[None]:
        """Holds while the gradient is computed."""

    def instead(
        self,
        operator: str,
        error: Exception,
        reference: Callable[..., Any],
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        """Raises, or gives what the reference gives."""


class _Thread(threading.local):
    called: Recovery | None = None  # by whoever calls operators now
    differentiating: Recovery | None = None  # by whoever called what is being differentiated


_thread = _Thread()


@contextmanager
def recovering(recovery: Recovery) -> Iterator[None]:
    """Errors in gradients of what is called in this block, whenever they come, go to `recovery`."""
    before, _thread.called = _thread.called, recovery
    try:
        yield
    finally:
        _thread.called = before


@contextmanager
def _differentiating(recovery: Recovery) -> Iterator[None]:
    before, _thread.differentiating = _thread.differentiating, recovery
    try:
        with recovery.around():
            yield
    finally:
        _thread.differentiating = before


def recovery_of_gradient() -> Recovery | None:
    """Who wants to know of an error in the gradient that this thread computes."""
    return _thread.differentiating


class _Recorded(torch.autograd.Function):
    """One call. Lists of tensors are laid out flat: autograd knows tensors alone."""

    @staticmethod
    def forward(ctx: Any, operator: AnyOperator, lengths: Any, *flat: Any) -> Any:
        values = _gathered(operator, lengths, flat)
        result = operator.below_autograd(values)
        ctx.operator, ctx.lengths = operator, lengths
        ctx.recovery = _thread.called
        _keep(ctx, operator, values, result)
        named = zip(operator.results, _listed(result), strict=False)
        ctx.mark_non_differentiable(*(value for name, value in named if name in operator.detached))
        ctx.set_materialize_grads(not operator.optional_gradients)
        return result if isinstance(result, torch.Tensor) else tuple(result)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        operator = ctx.operator
        with nullcontext() if ctx.recovery is None else _differentiating(ctx.recovery):
            found = operator.differentiate(_call(ctx), *gradients)
        unknown = set(found) - set(operator.names)
        if unknown:
            raise ValueError(f"{operator.name}: gradients of {sorted(unknown)}, no arguments of it")
        flat: list[Any] = []
        for name, length in zip(operator.names, ctx.lengths, strict=True):
            given = found.get(name)
            flat += [given] if length is None else given or [None] * length
        return (None, None, *flat)


def _keep(ctx: Any, operator: AnyOperator, values: dict[str, Any], result: Any) -> None:
    """Tensors that are asked for, and everything that is no tensor."""
    found = dict(zip(operator.results, _listed(result), strict=False)) | values
    dropped = {name for name, where in operator.keep_where.items() if not where(values)}
    kept = operator.kept - dropped
    tensors = {name: found[name] for name in kept if _holds_tensors(found[name])}
    ctx.sizes = {n: None if isinstance(v, torch.Tensor) else len(v) for n, v in tensors.items()}
    ctx.save_for_backward(*tensors_of(tensors.values()))
    ctx.plain = {name: value for name, value in values.items() if not _holds_tensors(value)}
    ctx.likes = {
        name: Like(value.shape, value.dtype, value.device)
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }


def _call(ctx: Any) -> Call:
    operator, saved = ctx.operator, iter(ctx.saved_tensors)
    values = dict(ctx.plain)
    for name, length in ctx.sizes.items():
        values[name] = next(saved) if length is None else [next(saved) for _ in range(length)]
    needed, at = [], 2
    for name, length in zip(operator.names, ctx.lengths, strict=True):
        size = 1 if length is None else length
        needed += [name] if any(ctx.needs_input_grad[at : at + size]) else []
        at += size
    return Call(operator.name, values, ctx.likes, frozenset(needed))


def _gathered(operator: AnyOperator, lengths: Any, flat: Any) -> dict[str, Any]:
    rest = iter(flat)
    return {
        name: next(rest) if length is None else [next(rest) for _ in range(length)]
        for name, length in zip(operator.names, lengths, strict=True)
    }


def _holds_tensors(value: Any) -> bool:
    return any(True for _ in tensors_of([value]))


def _listed(result: Any) -> list[Any]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def is_plain(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether autograd surely has nothing to do; lists are left to the careful way."""
    if forward_ad._current_level >= 0:
        return False
    recording = torch.is_grad_enabled()
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor):
            if recording and value.requires_grad:
                return False
        elif isinstance(value, list | tuple):
            return False
    return True


def above(operator: AnyOperator, values: dict[str, Any]) -> Any:
    """A call as autograd sees it."""
    recorded = torch.is_grad_enabled() and any(
        tensor.requires_grad for tensor in tensors_of(values.values())
    )
    forward_mode = has_tangents(values)
    if operator.mutates:
        return _mutated(operator, values, differentiated=recorded or forward_mode)
    if forward_mode:
        return with_tangents(operator, values)
    if not recorded:
        return operator.below_autograd(values)
    if operator.through_others:
        args, kwargs = operator.signature.split(values)
        return operator.room(*args, **kwargs)
    lengths = [len(v) if _is_list(v) else None for v in values.values()]
    flat = [x for v in values.values() for x in (v if _is_list(v) else [v])]
    return _Recorded.apply(operator, lengths, *flat)  # type: ignore[no-untyped-call]


def _mutated(operator: AnyOperator, values: dict[str, Any], *, differentiated: bool) -> None:
    """A call that writes. Where it is differentiated, torch's copy_ writes the functional's result.

    That is the one form that autograd, functionalisation and torch.compile all know.
    """
    if differentiated and operator.functional is None:
        raise RuntimeError(f"{operator.qualified} has no gradient: {operator.no_gradient}")
    if differentiated and operator.functional is not None:
        name = operator.mutates[0]
        # A copy, since the gradient may be made of what is overwritten.
        args, kwargs = operator.signature.split({**values, name: values[name].clone()})
        values[name].copy_(operator.functional(*args, **kwargs))
        return
    operator.below_autograd(values)
    written = tensors_of(values[name] for name in operator.mutates)
    # What autograd kept of these tensors is no longer true; this lets it notice.
    torch.autograd.graph.increment_version([t for t in written if not t.is_inference()])


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and _holds_tensors(value)


def _tangent(tensor: torch.Tensor) -> torch.Tensor | None:
    tangent: torch.Tensor | None = forward_ad.unpack_dual(tensor).tangent  # type: ignore[no-untyped-call]
    return tangent


def _primal(tensor: torch.Tensor) -> torch.Tensor:
    primal: torch.Tensor = forward_ad.unpack_dual(tensor).primal  # type: ignore[no-untyped-call]
    return primal


def has_tangents(values: dict[str, Any]) -> bool:
    # There is no other way to ask whether forward mode is on.
    if forward_ad._current_level < 0:
        return False
    return any(_tangent(tensor) is not None for tensor in tensors_of(values.values()))


def with_tangents(operator: AnyOperator, values: dict[str, Any]) -> Any:
    """Our result with the reference's tangent."""
    if not operator.differentiable:
        raise NotImplementedError(
            f"{operator.qualified} has no forward-mode derivative: {operator.no_gradient}"
        )
    args, kwargs = operator.signature.split(values)
    reference = operator.reference(*args, **kwargs)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors_of(values.values())):
        # A gradient must see the tangents of what it is made of, and kernels keep none.
        return reference
    results = operator(*converted(args, _primal), **converted_values(kwargs, _primal))
    both = zip(_listed(results), _listed(reference), strict=True)
    duals = [_dual(result, _tangent(beside)) for result, beside in both]
    return duals[0] if isinstance(results, torch.Tensor) else tuple(duals)


def _dual(result: torch.Tensor, tangent: torch.Tensor | None) -> torch.Tensor:
    if tangent is None:
        return result
    dual: torch.Tensor = forward_ad.make_dual(result, tangent.to(result.dtype))  # type: ignore[no-untyped-call]
    return dual


def converted_values(
    values: Mapping[str, Any], convert: Callable[[torch.Tensor], torch.Tensor]
) -> dict[str, Any]:
    return {name: converted(value, convert) for name, value in values.items()}


def reference_gradient(operator: AnyOperator, wanted: tuple[str, ...]) -> Backward:
    """The gradients of an operator's reference: `gradient(values, *gradients)` by name."""

    def gradient(values: Mapping[str, Any], *gradients: torch.Tensor) -> dict[str, Any]:
        given = [name for name in wanted if isinstance(values[name], torch.Tensor)]

        def function(*tensors: torch.Tensor) -> Any:
            args, kwargs = operator.signature.split(
                {**values, **dict(zip(given, tensors, strict=True))}
            )
            results = operator.reference(*args, **kwargs)
            return results if isinstance(results, torch.Tensor) else tuple(results)

        results, pull = torch.func.vjp(function, *(values[name] for name in given))[:2]
        upstream = gradients[0] if isinstance(results, torch.Tensor) else tuple(gradients)
        return dict(zip(given, pull(upstream), strict=True))

    return gradient
