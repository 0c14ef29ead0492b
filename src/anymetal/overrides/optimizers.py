"""torch's optimizers and its clipping of gradients.

A class of torch's is replaced by one that makes ours where ours takes the parameters and options,
else torch's own. Both are instances of it, and whoever derives from it derives from torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch

from anymetal import optim, settings
from anymetal.optim.stepping import Batch, Group, Stepping
from anymetal.overrides.calls import described, is_half_done, named_as, replacement
from anymetal.overrides.counts import COUNTS
from anymetal.overrides.reasons import kind_of
from anymetal.overrides.table import TABLE, Kinds, Row

Tensor = torch.Tensor

# Options that choose among torch's kernels, or that ours has not.
_CHOICES = ("foreach", "fused", "capturable", "differentiable")


def _without_hooks(step: Any) -> Any:
    """A class's step as it was before torch put the hooks of steps around it, which it does when
    the class is first used: they are around the outermost step already."""
    while hasattr(step, "hooked"):
        step = step.__wrapped__
    return step


class _WithRetreat(Stepping):
    """An optimizer of ours that can take a step by torch's class, whose states it has."""

    _theirs: type[torch.optim.Optimizer]
    _name: str

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if torch.compiler.is_compiling():
            return self._their_step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._name in COUNTS.failures or self._has_sparse():
            reason = "sparse gradients" if self._has_sparse() else "switched off after an error"
            COUNTS.keep(self._name, reason)
            self._their_step(None)
        else:
            ours: Any = super().step
            _without_hooks(ours.__func__)(self)
            COUNTS.take(self._name)
        return loss

    def _update(self, group: Group, batch: Batch) -> None:
        try:
            super()._update(group, batch)
        except Exception as error:
            if settings.OVERRIDES_STRICT.value() or is_half_done(error):
                raise
            COUNTS.switch_off(self._name, "its step", error, described(batch.params[:1], {}))
            self._step_alone(group, batch)

    def _step_alone(self, group: Group, batch: Batch) -> None:
        """torch's step of a batch's parameters: those of others have their gradients hidden."""
        if batch.fresh:  # the momentum of a first step is made of its gradient
            for param in batch.originals:
                self.state[param]["momentum_buffer"] = None
        others = [p for g in self.param_groups for p in g["params"]]
        mine = {id(p) for p in batch.originals}
        hidden = [(p, p.grad) for p in others if id(p) not in mine]
        for param, _ in hidden:
            param.grad = None
        try:
            self._their_step(None)
        finally:
            for param, grad in hidden:
                param.grad = grad

    def _has_sparse(self) -> bool:
        grads = (p.grad for group in self.param_groups for p in group["params"])
        return any(grad is not None and grad.layout != torch.strided for grad in grads)

    def _their_step(self, closure: Callable[[], Any] | None) -> Any:
        self._steps_where_torch_wants_them()
        return _without_hooks(self._theirs.step)(self, closure)

    def _steps_where_torch_wants_them(self) -> None:
        """torch counts steps on the CPU unless told otherwise."""
        for group in self.param_groups:
            for param in group["params"]:
                count = self.state.get(param, {}).get("step")
                if isinstance(count, Tensor) and not group.get("capturable"):
                    self.state[param]["step"] = count.detach().clone().cpu()


def _with_retreat(ours: type[Any], theirs: type[Any]) -> type[Any]:
    name = ours.__name__
    words = {"_theirs": theirs, "_name": f"torch.optim.{name}", "__module__": __name__}
    made = type(name, (_WithRetreat, ours), words)
    made.__qualname__ = f"{name}WithRetreat"  # by which a saved optimizer is found
    return made


SGDWithRetreat = _with_retreat(optim.SGD, torch.optim.SGD)
AdamWithRetreat = _with_retreat(optim.Adam, torch.optim.Adam)
AdamWWithRetreat = _with_retreat(optim.AdamW, torch.optim.AdamW)


class _InPlace(type):
    """The class of what stands in the place of an optimizer's class."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        made = cls.__dict__.get("_made")
        return super().__call__(*args, **named) if made is None else made(*args, **named)

    def __instancecheck__(cls, instance: Any) -> bool:
        original = cls.__dict__.get("_original")
        return (
            super().__instancecheck__(instance)
            if original is None
            else isinstance(instance, original)
        )

    def __subclasscheck__(cls, subclass: type) -> bool:
        original = cls.__dict__.get("_original")
        return (
            super().__subclasscheck__(subclass)
            if original is None
            else issubclass(subclass, original)
        )


def class_in_place(row: Row, path: str, original: type[Any], kinds: Kinds) -> type[Any]:
    """The class that stands in the place of `original`."""
    name = f"torch.{path}"

    def made(params: Any, *args: Any, **named: Any) -> Any:
        is_listed = isinstance(params, Iterable) and not isinstance(params, Tensor | dict)
        given = list(params) if is_listed else params
        reason = _why_kept(kinds, given, args, named)
        if name in COUNTS.failures:
            reason = "switched off after an error"
        elif not _binds(original, given, args, named):
            reason = "arguments that torch has not"
        if reason is None:
            return row.ours(given, *args, **named)
        COUNTS.keep(name, reason)
        return original(given, *args, **named)

    words = {
        "_made": staticmethod(made),
        "_original": original,
        **{key: getattr(original, key) for key in ("__module__", "__qualname__", "__doc__")},
    }
    return _InPlace(original.__name__, (original,), words)


def _binds(original: type[Any], params: Any, args: Any, named: dict[str, Any]) -> bool:
    try:
        inspect.signature(original).bind(params, *args, **named)
    except TypeError:
        return False
    return True


def _why_kept(kinds: Collection[str], params: Any, args: Any, named: dict[str, Any]) -> str | None:
    for name in _CHOICES:
        if named.get(name):
            return f"{name}=True"
    if any(isinstance(value, Tensor) for value in (*args, *named.values())):
        return "an option that is a tensor"
    found = list(_tensors(params)) if isinstance(params, Iterable) else []
    return _why_not_all(kinds, found) if found else "no parameters"


def _why_not_all(kinds: Collection[str], tensors: Iterable[Any]) -> str | None:
    """Why ours does not write all of these; torch keeps states of other dtypes in those."""
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, torch.nn.Parameter):
            return f"a parameter of type {type(tensor).__name__}"
        if tensor.dtype != torch.float32 or tensor.layout != torch.strided:
            return f"a parameter of {tensor.dtype}, {tensor.layout}"
        if kind_of(tensor.device) not in kinds:
            return f"device {kind_of(tensor.device)}"
    return None


def _tensors(params: Any) -> Iterable[Any]:
    """The parameters of groups, or those given alone or with names."""
    if isinstance(params, Tensor):
        yield params
        return
    for one in [params] if isinstance(params, dict) else params:
        if isinstance(one, dict):
            inner = one.get("params", ())
            yield from [inner] if isinstance(inner, Tensor) else _tensors(list(inner))
        else:
            yield one[1] if isinstance(one, tuple) and len(one) == 2 else one


for _ours, _operator in (
    (SGDWithRetreat, "sgd_step_"),
    (AdamWithRetreat, "adam_step_"),
    (AdamWWithRetreat, "adam_step_"),
):
    TABLE.rows.append(
        Row(
            "optim",
            (f"optim.{_ours.__name__}",),
            _ours,
            (_operator,),
            applies="float32 parameters, when the optimizer is made",
            elsewhere="foreach, fused, capturable and differentiable, which choose torch's kernels;"
            " options that are tensors; other dtypes, whose states torch keeps in them; steps with"
            " sparse gradients",
            make=class_in_place,
        )
    )


# --- clipping -------------------------------------------------------------------------------------


def clip_in_place(row: Row, path: str, original: Any, kinds: Kinds) -> Any:
    """What stands in the place of clip_grad_norm_, which may be given a generator."""
    called = replacement(row, path, original, kinds)

    def listed(parameters: Any, *args: Any, **named: Any) -> Any:
        many = isinstance(parameters, Iterable) and not isinstance(parameters, Tensor)
        return called(list(parameters) if many else parameters, *args, **named)

    return named_as(path, listed, original)


def _clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    if error_if_nonfinite or foreach is not None:
        return "error_if_nonfinite or foreach"
    tensors = [parameters] if isinstance(parameters, Tensor) else parameters
    grads = [tensor.grad for tensor in tensors if tensor.grad is not None]
    if not grads:
        return "no gradients"
    if any(grad.layout != torch.strided or grad.dtype != torch.float32 for grad in grads):
        return "gradients that are sparse or not float32"
    if len({grad.device for grad in grads}) > 1:
        return "gradients on several devices"
    return optim.clip_grad_norm_(tensors, max_norm, norm_type)


TABLE.rows.append(
    Row(
        "optim",
        ("nn.utils.clip_grad_norm_", "nn.utils.clip_grad.clip_grad_norm_"),
        _clip_grad_norm,
        ("clip_gradients_",),
        applies="float32 gradients on one device",
        elsewhere="error_if_nonfinite; foreach; sparse gradients and other dtypes",
        dtypes=(torch.float32,),
        compiled=False,
        in_place=True,
        make=clip_in_place,
    )
)
