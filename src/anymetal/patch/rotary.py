"""Rotary position embedding: a function beside the attention, which a copy of its forward calls."""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any

import torch
from torch import nn

from anymetal import ops
from anymetal.patch import formula
from anymetal.patch.borrowed import with_names
from anymetal.patch.formula import Unreadable
from anymetal.patch.handle import Handle, foreign, patched
from anymetal.patch.layers import takes

FUNCTION = "apply_rotary_pos_emb"

Tensor = torch.Tensor


def _turned(x: str) -> str:
    """Both halves of x turned against each other, by angles with the same two halves."""
    halves = f"torch.cat((-{x}[..., {x}.shape[-1] // 2:], {x}[..., :{x}.shape[-1] // 2]), dim=-1)"
    return f"({x} * COS.unsqueeze(DIM) + {halves} * SIN.unsqueeze(DIM))"


def _in_part(x: str) -> str:
    """The same of the first elements; the rest is as it was."""
    width = "COS.unsqueeze(DIM).shape[-1]"
    return f"torch.cat([{_turned(f'{x}[..., :{width}]')}, {x}[..., {width}:]], dim=-1)"


_ROTATIONS = [f"({form('Q')}, {form('K')})" for form in (_turned, _in_part)]
# The angles of both halves are the same, so that the operator needs one of them.
_TABLES = "(torch.cat((A, A), dim=-1).cos() * S, torch.cat((A, A), dim=-1).sin() * S)"


def patch_rotary(handle: Handle, model: nn.Module) -> None:
    """A forward with our rotation for every attention that calls one of the known form."""
    why = _tables_differ(model)
    for name, module in model.named_modules():
        forward = type(module).forward
        code = getattr(inspect.unwrap(forward), "__code__", None)
        if code is None or FUNCTION not in code.co_names:
            continue
        kind = f"{type(module).__name__}'s rotation"
        try:
            if why is not None:
                raise Unreadable(why)
            reason = "patched already" if patched(module) else foreign(module)
            if reason is not None:
                raise Unreadable(reason)
            handle.forward(name, module, kind, _with_rotation(forward), "ops.rope")
        except Unreadable as error:
            handle.left(name, kind, str(error))


def _tables_differ(model: nn.Module) -> str | None:
    """Why cos and sin may not have the same numbers in both halves; None where they do."""
    makers = {type(module) for module in model.modules() if "Rotary" in type(module).__name__}
    if not makers:
        return "the model has no module that makes its angles"
    for kind in makers:
        try:
            computed = formula.forward_of(kind)
        except Unreadable as error:
            return str(error)
        if formula.match(_TABLES, computed) is None:
            return f"{kind.__name__} computes {formula.words(computed)}"
    return None


@functools.cache
def _with_rotation(forward: Any) -> FunctionType:
    """The forward of an attention, with our rotation under the name of theirs."""
    plain = inspect.unwrap(forward)
    return with_names(forward, **{FUNCTION: _rotation(plain.__globals__[FUNCTION])})


def _rotation(theirs: Any) -> Any:
    computed = formula.function(theirs)
    found = next(filter(None, (formula.match(one, computed) for one in _ROTATIONS)), None)
    names = {key: getattr(value, "id", None) for key, value in (found or {}).items()}
    expected = {"Q": "q", "K": "k", "COS": "cos", "SIN": "sin", "DIM": "unsqueeze_dim"}
    if names != expected:
        raise Unreadable(f"{FUNCTION} computes {formula.words(computed)}")

    def rotate(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        known = unsqueeze_dim in (1, 2) and q.dim() == 4 and cos.dim() == 3 and takes(q, k)
        if not known or cos.requires_grad or sin.requires_grad:
            return theirs(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)  # type: ignore[no-any-return]
        half = cos.shape[-1] // 2
        shared = cos.shape[0] == 1
        first, second = (t[0, :, :half] if shared else t[..., :half] for t in (cos, sin))
        place = -2 if unsqueeze_dim == 1 else -3
        return ops.rope(q, k, first, second, sequence_dim=place)  # type: ignore[no-any-return]

    return rotate
