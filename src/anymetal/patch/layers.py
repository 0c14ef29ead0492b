"""Norms, activations and gated MLPs: the patterns of what they compute, and their forwards.

A forward here reads its module's attributes at every call, so that weights may be moved, converted
or loaded afterwards, and takes torch's way where an operator does not take the tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from anymetal import ops
from anymetal.ops.declare import FLOATS
from anymetal.patch import formula
from anymetal.patch.formula import Unreadable
from anymetal.patch.handle import Handle

Tensor = torch.Tensor
Activation = Callable[[Tensor], Tensor]
Gated = Callable[[Tensor, Tensor], Tensor]

DEVICES = ("cpu", "mps")


def takes(*tensors: Tensor | None) -> bool:
    """Whether operators take these tensors together: one dtype, one device."""
    first = tensors[0]
    if first is None or first.dtype not in FLOATS or first.device.type not in DEVICES:
        return False
    return all(
        one is None or (one.dtype is first.dtype and one.device == first.device) for one in tensors
    )


# --- norms ----------------------------------------------------------------------------------------

_SCALED = "X * torch.rsqrt(X.pow(2).mean(-1, keepdim=True) + EPS)"
# What is added to the weight, by what a forward computes.
_RMS_NORMS = {
    f"WEIGHT * ({_SCALED})": 0.0,
    f"(1.0 + WEIGHT) * ({_SCALED})": 1.0,
    _SCALED: None,
}


def patch_norm(handle: Handle, name: str, module: nn.Module) -> bool:
    """Whether this was a norm: torch's own by its class, others by what they compute."""
    kind, forward = type(module).__name__, type(module).forward
    for theirs, ours in _OF_TORCH.items():
        if forward is theirs.forward:
            handle.forward(name, module, kind, ours, f"ops.{ours.__name__}")
            return True
    if "norm" not in kind.lower():
        return False
    computed = formula.forward_of(type(module))
    for pattern, offset in _RMS_NORMS.items():
        found = formula.match(pattern, computed)
        if found is not None:
            weight = None if offset is None else formula.attribute(found["WEIGHT"])
            eps = formula.attribute(found["EPS"])
            if eps is None or (offset is not None and weight is None):
                continue
            words = f"ops.rms_norm, weight_offset={offset:g}" if offset else "ops.rms_norm"
            handle.forward(name, module, kind, _rms_norm(weight, eps, offset or 0.0), words)
            return True
    raise Unreadable(f"computes {formula.words(computed)}, which no operator here does")


@functools.cache
def _rms_norm(weight_name: str | None, eps_name: str, offset: float) -> FunctionType:
    def rms_norm(self: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        (x,) = (*given, *named.values())
        weight = None if weight_name is None else getattr(self, weight_name)
        if not takes(x, weight):
            return type(self).forward(self, x)  # type: ignore[no-any-return]
        eps = getattr(self, eps_name)
        return ops.rms_norm(x, x.shape[-1:], weight, eps, weight_offset=offset)

    return rms_norm  # type: ignore[return-value]


def layer_norm(self: Any, input: Tensor) -> Tensor:
    if not takes(input, self.weight, self.bias):
        return nn.LayerNorm.forward(self, input)
    return ops.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def rms_norm(self: Any, x: Tensor) -> Tensor:
    if not takes(x, self.weight):
        return nn.RMSNorm.forward(self, x)
    return ops.rms_norm(x, self.normalized_shape, self.weight, self.eps)


def group_norm(self: Any, input: Tensor) -> Tensor:
    if not takes(input, self.weight, self.bias):
        return nn.GroupNorm.forward(self, input)
    return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


_OF_TORCH: dict[Any, Any] = {
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.GroupNorm: group_norm,
}


# --- activations ----------------------------------------------------------------------------------

_tanh_gelu = functools.partial(ops.gelu, approximate="tanh")
_TANH = "torch.tanh(math.sqrt(2.0 / math.pi) * (X + 0.044715 * torch.pow(X, 3.0)))"
_ACTIVATIONS: dict[str, tuple[str, Activation]] = {
    "nn.functional.silu(X)": ("silu", ops.silu),
    "F.silu(X, inplace=False)": ("silu", ops.silu),
    "nn.functional.gelu(X)": ("gelu", ops.gelu),
    f"0.5 * X * (1.0 + {_TANH})": ("gelu_tanh", _tanh_gelu),
    f"X * 0.5 * (1.0 + {_TANH})": ("gelu_tanh", _tanh_gelu),
    "X * 0.5 * (1.0 + torch.erf(X / math.sqrt(2.0)))": ("gelu", ops.gelu),
    "torch.square(nn.functional.relu(X))": ("relu_squared", ops.relu_squared),
}
_GATED: dict[str, Gated] = {
    "silu": ops.swiglu,
    "gelu": ops.geglu,
    "gelu_tanh": functools.partial(ops.geglu, approximate="tanh"),
}


def activation_of(module: Any) -> tuple[str, Activation] | None:
    """Which activation a module is, with our operator; None where it is none that we have."""
    if not isinstance(module, nn.Module):
        return None
    forward = type(module).forward
    if forward is nn.SiLU.forward:
        return None if module.inplace else ("silu", ops.silu)
    if forward is nn.GELU.forward:
        return ("gelu", ops.gelu) if module.approximate == "none" else ("gelu_tanh", _tanh_gelu)
    if forward is nn.Sigmoid.forward:
        return "sigmoid", ops.sigmoid
    try:
        computed = formula.forward_of(type(module))
    except Unreadable:
        return None
    if formula.match("self.act(X)", computed) is not None:
        return _held(vars(module).get("act"))
    for pattern, ours in _ACTIVATIONS.items():
        if formula.match(pattern, computed) is not None:
            return ours
    return None


def _held(act: Any) -> tuple[str, Activation] | None:
    """The activation that a module holds as a function."""
    if act is functional.gelu:
        return "gelu", ops.gelu
    if isinstance(act, functools.partial) and act.func is functional.gelu and not act.args:
        if act.keywords == {"approximate": "tanh"}:
            return "gelu_tanh", _tanh_gelu
        return ("gelu", ops.gelu) if act.keywords in ({}, {"approximate": "none"}) else None
    return None


def patch_activation(handle: Handle, name: str, module: nn.Module) -> bool:
    found = activation_of(module)
    if found is None:
        return False
    kind, ours = found
    handle.forward(name, module, type(module).__name__, _activation(ours), f"ops.{kind}")
    return True


@functools.cache
def _activation(ours: Activation) -> FunctionType:
    def activation(self: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        (x,) = (*given, *named.values())
        return ours(x) if takes(x) else type(self).forward(self, x)

    return activation  # type: ignore[return-value]


# --- gated MLPs -----------------------------------------------------------------------------------

_TWO = "DOWN(ACT(GATE(X)) * UP(X))"
_JOINT = "DOWN(JOINT(X).chunk(2, dim=-1)[1] * ACT(JOINT(X).chunk(2, dim=-1)[0]))"


def patch_gated(handle: Handle, name: str, module: nn.Module) -> bool:
    """Whether this was an MLP with a gate, by what it computes."""
    kind = type(module).__name__
    if not any(activation_of(child) for child in module.children()):
        return False
    try:
        computed = formula.forward_of(type(module))
    except Unreadable:
        return False
    for pattern, make in ((_TWO, _gated), (_JOINT, _joint)):
        found = formula.match(pattern, computed)
        names = {key: formula.attribute(value) for key, value in (found or {}).items()}
        names.pop("X", None)
        if not names or None in names.values():
            continue
        act = activation_of(getattr(module, str(names["ACT"])))
        if act is None or act[0] not in _GATED:
            raise Unreadable(f"its activation {names['ACT']} is none that gates here")
        ours = _GATED[act[0]]
        words = "ops.swiglu" if act[0] == "silu" else f"ops.geglu ({act[0]})"
        handle.forward(name, module, kind, make(ours, **names), words)
        return True
    return False


@functools.cache
def _gated(ours: Gated, DOWN: str, ACT: str, GATE: str, UP: str) -> FunctionType:
    def gated(self: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        (x,) = (*given, *named.values())
        gate, up = getattr(self, GATE)(x), getattr(self, UP)(x)
        inner = ours(gate, up) if takes(gate, up) else getattr(self, ACT)(gate) * up
        return getattr(self, DOWN)(inner)  # type: ignore[no-any-return]

    return gated  # type: ignore[return-value]


@functools.cache
def _joint(ours: Callable[[Tensor], Tensor], DOWN: str, ACT: str, JOINT: str) -> FunctionType:
    def joint(self: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
        (x,) = (*given, *named.values())
        both = getattr(self, JOINT)(x)
        if takes(both):
            return getattr(self, DOWN)(ours(both))  # type: ignore[no-any-return]
        gate, up = both.chunk(2, dim=-1)
        return getattr(self, DOWN)(getattr(self, ACT)(gate) * up)  # type: ignore[no-any-return]

    return joint  # type: ignore[return-value]
