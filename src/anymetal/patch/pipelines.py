"""A pipeline of diffusers, or one of its models, with our operators in it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from anymetal import ops
from anymetal.ops.attention.arguments import MOST_WIDTH
from anymetal.patch import formula, layers, models
from anymetal.patch.borrowed import with_names
from anymetal.patch.formula import Unreadable
from anymetal.patch.handle import Handle, Row
from anymetal.patch.layers import Gated, takes
from anymetal.patch.norm_and_silu import patch_norms_with_silu

Tensor = torch.Tensor

_HALVES = "JOINT(X).chunk(2, dim=-1)[0]", "JOINT(X).chunk(2, dim=-1)[1]"
_GATES = {
    f"NPU if is_torch_npu_available() else {_HALVES[0]} * F.gelu({_HALVES[1]})": "geglu",
    f"{_HALVES[0]} * F.gelu({_HALVES[1]})": "geglu",
    f"{_HALVES[0]} * ACT({_HALVES[1]})": "swiglu",
}


def diffusers(pipeline_or_model: Any) -> Handle:
    """Gives a pipeline of diffusers, or one of its models, our operators, in place.

    Replaced are GroupNorm, with the SiLU that follows it in one, LayerNorm and RMSNorm, SiLU and
    GELU, the gated GEGLU and SwiGLU, and the attention in processors that call torch's; text
    encoders of transformers as `patch.transformers` does it. `handle.report()` says what was left
    and why, and `handle.undo()` takes it back.
    """
    models.require("diffusers", "diffusers")
    found = list(_models(pipeline_or_model))
    if not found:
        raise TypeError(
            "diffusers: argument 'pipeline_or_model' expects a pipeline or an nn.Module, got"
            f" {type(pipeline_or_model).__name__}"
        )
    handle = Handle()
    try:
        for name, model in found:
            part = models.transformers(model) if _is_text_model(model) else _patched(model)
            handle.take(part, name)
    except BaseException:
        handle.undo()
        raise
    return handle


def _models(given: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(given, nn.Module):
        yield "", given
    for name, component in (getattr(given, "components", None) or {}).items():
        if isinstance(component, nn.Module):
            yield name, component


def _is_text_model(model: nn.Module) -> bool:
    return type(model).__module__.startswith("transformers.")


def _patched(model: nn.Module) -> Handle:
    handle = Handle()
    for name, module in model.named_modules():
        patch_norms_with_silu(handle, name, module)
    models.patch_layers(handle, model, [layers.patch_norm, _patch_gate, layers.patch_activation])
    for name, module in model.named_modules():
        if callable(vars(module).get("processor")):
            _patch_processor(handle, name, module)
    return handle


# --- gates ----------------------------------------------------------------------------------------


def _patch_gate(handle: Handle, name: str, module: nn.Module) -> bool:
    """A projection whose second half gates the first."""
    kind = type(module).__name__
    if not kind.lower().endswith("glu"):
        return False
    computed = formula.forward_of(type(module))
    for pattern, operator in _GATES.items():
        found = formula.match(pattern, computed) or {}
        joint, act = formula.attribute(found.get("JOINT")), formula.attribute(found.get("ACT"))
        if joint is None or ("ACT" in found and act is None):
            continue
        if act is not None and (layers.activation_of(getattr(module, act)) or "?")[0] != "silu":
            continue
        ours: Gated = ops.geglu if operator == "geglu" else ops.swiglu
        handle.forward(name, module, kind, _gate(ours, joint), f"ops.{operator}")
        return True
    raise Unreadable(f"computes {formula.words(computed)}, which no operator here does")


@functools.cache
def _gate(ours: Gated, joint: str) -> FunctionType:
    def gate(self: nn.Module, hidden_states: Tensor, *more: Any, **named: Any) -> Tensor:
        if more or named or not takes(hidden_states):
            return type(self).forward(self, hidden_states, *more, **named)  # type: ignore[no-any-return]
        up, gates = getattr(self, joint)(hidden_states).chunk(2, dim=-1)
        return ours(gates, up)

    return gate  # type: ignore[return-value]


# --- attention ------------------------------------------------------------------------------------


def _patch_processor(handle: Handle, name: str, module: nn.Module) -> None:
    """A processor with the code of the one that is there, which calls our attention."""
    theirs = vars(module)["processor"]
    kind = f"{type(module).__name__}'s {type(theirs).__name__}"
    try:
        of: Any = type(theirs)
        ours = _processor(of)
    except Unreadable as error:
        handle.left(name, kind, str(error))
        return
    made = ours.__new__(ours)
    vars(made).update(vars(theirs))
    handle.set(f"{name}.processor", vars(module), "processor", made)
    handle.rows.append(Row(name, kind, True, "ops.scaled_dot_product_attention"))


@functools.cache
def _processor(of: Any) -> Any:
    call = of.__call__
    if call.__module__ == with_names.__module__:
        raise Unreadable("patched already")
    names = set(inspect.unwrap(call).__code__.co_names)
    around = inspect.unwrap(call).__globals__
    replaced: dict[str, Any] = {}
    if "scaled_dot_product_attention" in names and around.get("F") is functional:
        replaced["F"] = _functional()
    if "dispatch_attention_fn" in names:
        replaced["dispatch_attention_fn"] = _dispatch(around["dispatch_attention_fn"])
    if not replaced:
        raise Unreadable("it does not call torch's scaled_dot_product_attention")
    return type(of.__name__, (of,), {"__call__": with_names(call, **replaced)})


@functools.cache
def _functional() -> Any:
    """torch.nn.functional with another attention."""
    return SimpleNamespace(**{**vars(functional), "scaled_dot_product_attention": attend})


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """torch's scaled_dot_product_attention, ours where ours takes it."""
    attention: Callable[..., Tensor] = functional.scaled_dot_product_attention
    narrow = max(query.shape[-1], value.shape[-1]) <= MOST_WIDTH
    if takes(query, key, value) and narrow and not dropout_p:
        attention = ops.scaled_dot_product_attention
    return attention(
        query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal,
        scale=scale, enable_gqa=enable_gqa,
    )  # fmt: skip


def _dispatch(theirs: Any) -> Any:
    """diffusers' own choice among attentions, ours where torch's would be taken."""
    registry = theirs.__globals__["_AttentionBackendRegistry"]

    def dispatch(query: Tensor, key: Tensor, value: Tensor, **named: Any) -> Tensor:
        given = {name: one for name, one in named.items() if one is not None}
        known = given.keys() <= {"attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"}
        if not known or registry.get_active_backend()[0].value != "native":
            return theirs(query, key, value, **named)  # type: ignore[no-any-return]
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        return attend(q, k, v, **given).transpose(1, 2)

    return dispatch
