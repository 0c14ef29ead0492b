"""The loss of a language model in training, from hidden states: the logits are not made for it."""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch import nn

from anymetal import ops
from anymetal.patch import formula
from anymetal.patch.formula import Unreadable
from anymetal.patch.handle import Handle, Row, foreign, patched
from anymetal.patch.layers import takes

Tensor = torch.Tensor

_SLICED = (
    "slice_logits_to_keep(STATES.last_hidden_state, logits_to_keep)",
    """STATES.last_hidden_state[:, slice(-logits_to_keep, None)
       if isinstance(logits_to_keep, int) else logits_to_keep, :]""",
)
_CAPPED = """torch.tanh(LOGITS / self.config.final_logit_softcapping)
    * self.config.final_logit_softcapping
    if self.config.final_logit_softcapping is not None else LOGITS"""
_LOSS = "LOSS if labels is not None else None"
_FLOAT_BYTES = 4
# Logits of this size are worth the time that it takes to compute them twice, a part at a time.
LINEAR_FROM = 256 << 20


@dataclass(frozen=True)
class Head:
    """How a model comes to its loss: a body, a linear layer, perhaps a cap on its logits."""

    body: str
    layer: str
    capped: bool
    output: str
    fields: tuple[str, ...]

    def cap(self, model: Any) -> float:
        """0 for none."""
        return float(model.config.final_logit_softcapping or 0.0) if self.capped else 0.0


def patch_loss(handle: Handle, model: nn.Module, linear_from: int) -> None:
    """`linear_from`: bytes of float32 logits from which on the loss is computed without them."""
    from transformers.loss.loss_utils import ForCausalLMLoss  # noqa: PLC0415

    kind = f"{type(model).__name__}'s loss"
    if not hasattr(model, "loss_function") or getattr(model, "lm_head", None) is None:
        return
    reason = "patched already" if patched(model) else foreign(model)
    given = vars(model).get("_loss_function")
    if reason is None and (given or model.loss_function) is not ForCausalLMLoss:
        again = given is causal_loss
        reason = "patched already" if again else "its loss is not that of causal language models"
    if reason is not None:
        handle.left("", kind, reason)
        return
    try:
        of: Any = type(model)
        head = _head(of)
        why = "ops.linear_cross_entropy"
        if linear_from:
            size = f"{linear_from / 2**20:g} MiB"
            why = f"ops.cross_entropy; {why} from {size} of logits"
        handle.forward("", model, kind, _training_forward(head, linear_from), why)
    except Unreadable as error:
        why = f"ops.cross_entropy; not linear_cross_entropy, since {error}"
        handle.rows.append(Row("", kind, True, why))
    handle.set("_loss_function", vars(model), "_loss_function", causal_loss)


# --- reading --------------------------------------------------------------------------------------


@functools.cache
def _head(of: Any) -> Head:
    computed = formula.forward_of(of)
    if not isinstance(computed, ast.Call) or not isinstance(computed.func, ast.Name):
        raise Unreadable(f"its forward returns {formula.words(computed)}")
    given = {one.arg or "**": one.value for one in computed.keywords}
    loss = formula.match(_LOSS, given.pop("loss", ast.Constant(None)))
    logits = given.pop("logits", ast.Constant(None))
    if loss is None:
        raise Unreadable("its loss is more than that of its logits")
    if not _is_loss_of(loss["LOSS"], logits):
        raise Unreadable(f"its loss is {formula.words(loss['LOSS'])}")
    capped = formula.match(_CAPPED, logits)
    product = capped["LOGITS"] if capped else logits
    found = formula.match("LAYER(SLICED)", product) or {}
    sliced = [formula.match(one, found.get("SLICED", product)) for one in _SLICED]
    states = next((one["STATES"] for one in sliced if one), None)
    layer = formula.attribute(found.get("LAYER"))
    body = _body(states)
    if layer is None or body is None or states is None:
        raise Unreadable(f"its logits are {formula.words(logits)}")
    for name, value in given.items():
        if not (isinstance(value, ast.Attribute) and value.attr == name) or (
            ast.dump(value.value) != ast.dump(states)
        ):
            raise Unreadable(f"its {name} is {formula.words(value)}")
    return Head(body, layer, capped is not None, computed.func.id, tuple(given))


def _is_loss_of(call: ast.expr, logits: ast.expr) -> bool:
    """`self.loss_function(logits, labels, vocabulary, **kwargs)`, by position or by name."""
    if not isinstance(call, ast.Call) or formula.attribute(call.func) != "loss_function":
        return False
    named = {one.arg or "**": one.value for one in call.keywords}
    first = dict(zip(("logits", "labels", "vocab_size"), call.args, strict=False))
    given = {**first, **named}
    same = ast.dump(given.get("logits", ast.Constant(None))) == ast.dump(logits)
    labels = given.get("labels")
    known = set(given) <= {"logits", "labels", "vocab_size", "**"}
    return same and known and isinstance(labels, ast.Name) and labels.id == "labels"


def _body(states: ast.expr | None) -> str | None:
    """The module that a forward hands its own arguments to, under their own names."""
    if not isinstance(states, ast.Call):
        return None
    own = all(isinstance(one, ast.Name) for one in states.args) and all(
        isinstance(one.value, ast.Name) and one.arg in (None, one.value.id)
        for one in states.keywords
    )
    return formula.attribute(states.func) if own else None


# --- computing ------------------------------------------------------------------------------------


@functools.cache
def _training_forward(head: Head, linear_from: int) -> FunctionType:
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        theirs = type(self).forward
        if torch.compiler.is_compiling() or not self.training:
            return theirs(self, *given, **named)
        call = inspect.signature(theirs).bind(self, *given, **named)
        arguments = dict(call.arguments)
        more = arguments.pop("kwargs", {})
        arguments.pop("self")
        labels = arguments.pop("labels", None)
        kept = arguments.pop("logits_to_keep", 0)
        whole = isinstance(kept, int) and kept == 0 and _returns_dict(self, more)
        layer = getattr(self, head.layer)
        if labels is None or not whole or not _is_plain(layer):
            return theirs(self, *given, **named)
        if labels.numel() * layer.weight.shape[0] * _FLOAT_BYTES < linear_from:
            return theirs(self, *given, **named)
        states = getattr(self, head.body)(**arguments, **more)
        hidden = states.last_hidden_state
        if not takes(hidden, layer.weight, layer.bias):
            return theirs(self, *given, **named)
        loss = _linear_loss(hidden, layer, labels, head.cap(self), **more)
        made = inspect.unwrap(theirs).__globals__[head.output]
        fields = {name: getattr(states, name) for name in head.fields}
        return _with_logits(made(loss=loss, **fields), layer, hidden, head.cap(self))

    return forward  # type: ignore[return-value]


def _returns_dict(model: Any, more: dict[str, Any]) -> bool:
    wanted = more.get("return_dict", getattr(model.config, "return_dict", True))
    return wanted is not False


def _is_plain(layer: nn.Module) -> bool:
    """A linear layer that nobody changed or listens to: its weight is all of it."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks)
    own = type(layer).forward is nn.Linear.forward and "forward" not in vars(layer)
    return own and not any(hooks)


def _targets(
    labels: Tensor, shift_labels: Tensor | None, ignore_index: int, device: torch.device
) -> Tensor:
    """What each position is to predict: the label after it."""
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    return shift_labels.reshape(-1).to(device)


def _shared(loss: Tensor, number: Tensor | float | None) -> Tensor:
    """A sum over positions, divided by their number in all batches of a step."""
    if number is None:
        return loss
    return loss / (number.to(loss.device) if isinstance(number, Tensor) else number)


def _linear_loss(
    hidden: Tensor,
    layer: Any,
    labels: Tensor,
    softcap: float,
    num_items_in_batch: Tensor | float | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    target = _targets(labels, shift_labels, ignore_index, hidden.device)
    loss = ops.linear_cross_entropy(
        hidden.reshape(-1, hidden.shape[-1]), layer.weight, target, layer.bias, ignore_index,
        "mean" if num_items_in_batch is None else "sum", softcap=softcap,
    )  # fmt: skip
    return _shared(loss, num_items_in_batch)


def causal_loss(
    logits: Tensor,
    labels: Tensor,
    vocab_size: int,
    num_items_in_batch: Tensor | float | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """transformers' loss of causal language models, from logits."""
    target = _targets(labels, shift_labels, ignore_index, logits.device)
    rows = logits.float().view(-1, vocab_size)
    reduction = "mean" if num_items_in_batch is None else "sum"
    cross_entropy = ops.cross_entropy if takes(rows) else nn.functional.cross_entropy
    loss = cross_entropy(rows, target, ignore_index=ignore_index, reduction=reduction)
    return _shared(loss, num_items_in_batch)


# --- logits ---------------------------------------------------------------------------------------


def _with_logits(output: Any, layer: nn.Module, hidden: Tensor, softcap: float) -> Any:
    """An output whose logits are computed when they are asked for, since training seldom does."""
    of: Any = type(output)
    output.__class__ = _lazy(of)
    vars(output)["_head"] = (layer, hidden, softcap)
    return output


@functools.cache
def _lazy(of: Any) -> type:
    def logits(self: Any) -> Tensor:
        found = vars(self).get("logits")
        if found is None:
            layer, hidden, softcap = vars(self)["_head"]
            found = layer(hidden)
            found = torch.tanh(found / softcap) * softcap if softcap else found
            vars(self)["logits"] = found
        return found  # type: ignore[no-any-return]

    def set_logits(self: Any, value: Tensor | None) -> None:
        vars(self)["logits"] = value

    return type(of.__name__, (of,), {"logits": property(logits, set_logits)})
