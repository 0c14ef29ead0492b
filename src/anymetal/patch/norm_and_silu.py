"""A GroupNorm whose result goes through SiLU and nowhere else: one operator for both.

A block's forward calls the two one after the other, `x = self.norm1(x)` and then
`x = self.nonlinearity(x)`, and the SiLU for other tensors as well. So the norm computes both and
marks its result, and the SiLU gives a marked tensor back as it is.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeGuard

import torch
from torch import nn

from anymetal import ops
from anymetal.patch.handle import Handle, foreign, patched
from anymetal.patch.layers import takes

Tensor = torch.Tensor
_MARK = "_anymetal_activated"


def patch_norms_with_silu(handle: Handle, name: str, module: nn.Module) -> None:
    """The GroupNorms of a block that SiLU follows; the block itself stays as it is."""
    for norm_name, silu_name in _pairs(module):
        norm, silu = getattr(module, norm_name, None), getattr(module, silu_name, None)
        if type(norm) is not nn.GroupNorm or type(silu) is not nn.SiLU:
            continue
        if foreign(norm) or (foreign(silu) and not patched(silu)):
            continue
        place = f"{name}.{norm_name}".strip(".")
        handle.forward(place, norm, "GroupNorm with SiLU", _NORM, "ops.group_norm_silu")
        if not patched(silu):
            place = f"{name}.{silu_name}".strip(".")
            handle.forward(place, silu, "SiLU", _SILU, "ops.silu")


def _activated_norm(self: Any, input: Tensor) -> Tensor:
    """Both at once, where nobody listens to the norm alone."""
    if not takes(input, self.weight, self.bias):
        return nn.GroupNorm.forward(self, input)
    if torch.compiler.is_compiling() or self._forward_hooks:
        return ops.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)
    result = ops.group_norm_silu(input, self.num_groups, self.weight, self.bias, self.eps)
    setattr(result, _MARK, True)
    return result


def _silu_of_others(self: Any, input: Tensor) -> Tensor:
    if getattr(input, _MARK, False):
        delattr(input, _MARK)  # a second SiLU would be one
        return input
    return ops.silu(input) if takes(input) else nn.SiLU.forward(self, input)


_NORM: Any = _activated_norm
_SILU: Any = _silu_of_others


# --- reading --------------------------------------------------------------------------------------


def _pairs(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Modules of this one that its forward calls in a row, the first for nothing else."""
    of: Any = type(module)
    steps = list(_steps(module, _body(of.forward)))
    used = Counter(
        node.attr for step in steps for node in ast.walk(step) if isinstance(node, ast.Attribute)
    )
    for first, second in itertools.pairwise(_call(step) for step in steps):
        if first and second and first[1] == second[1] == second[2] and used[first[0]] == 1:
            yield first[0], second[0]


@functools.cache
def _body(forward: Any) -> list[ast.stmt]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return []
    function = tree.body[0]
    return function.body if isinstance(function, ast.FunctionDef) else []


def _steps(module: nn.Module, body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a forward; of branches that depend on the module alone, the one taken."""
    for statement in body:
        taken = _taken(module, statement) if isinstance(statement, ast.If) else None
        if isinstance(statement, ast.If) and taken is not None:
            yield from _steps(module, statement.body if taken else statement.orelse)
        else:
            yield statement


def _taken(module: nn.Module, statement: ast.If) -> bool | None:
    """Whether `self.x == "word"`, `self.x is None` or `self.x` holds; None for other tests."""
    test = statement.test
    if _is_own(test):
        return bool(getattr(module, test.attr, None))
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, right = test.left, test.comparators[0]
    if not _is_own(left) or not isinstance(right, ast.Constant):
        return None
    same = getattr(module, left.attr, None) == right.value
    if isinstance(test.ops[0], ast.Eq | ast.Is):
        return same
    return not same if isinstance(test.ops[0], ast.NotEq | ast.IsNot) else None


def _is_own(node: ast.expr) -> TypeGuard[ast.Attribute]:
    """`self.name`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _call(statement: ast.stmt) -> tuple[str, str, str] | None:
    """`x = self.name(y)` as (name, x, y)."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if (
        isinstance(target, ast.Name)
        and isinstance(value, ast.Call)
        and _is_own(value.func)
        and len(value.args) == 1
        and not value.keywords
        and isinstance(value.args[0], ast.Name)
    ):
        return value.func.attr, target.id, value.args[0].id
    return None
