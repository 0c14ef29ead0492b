"""What a forward computes, read from its source: one expression, without names of local variables.

A class's name says little: two RMSNorms differ in what they add to their weight. So a module is
replaced for the expression that its forward returns. Assignments are put in, methods of the module
and functions beside it are put in, conversions of dtype are left out, and the rest is compared with
a pattern. What cannot be read this way is `Unreadable`, and the module stays as it is.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from types import FunctionType
from typing import Any

from torch import nn

# Kernels compute in float32 and round once, whatever a forward converts on the way.
_CONVERSIONS = ("to", "float", "type_as", "contiguous")
_COMMUTATIVE = (ast.Add, ast.Mult)


class Unreadable(Exception):
    """A forward that this reader does not follow; the message says why."""


def forward_of(module: type[nn.Module]) -> ast.expr:
    """What the forward of a class returns, of `self` and its parameters."""
    owner: Any = module
    return _read(_plain(module.forward), owner)


def function(value: Any) -> ast.expr:
    """What a function returns, of its parameters; also of one that `kernels` made a module."""
    return _read(_plain(value), None)


def match(pattern: str, expression: ast.expr) -> dict[str, ast.expr] | None:
    """What the capitals of a pattern stand for in an expression, or None where it does not fit."""
    return next(_matches(_parsed(pattern), expression, {}), None)


def words(expression: ast.expr, most: int = 90) -> str:
    """An expression as text for a report."""
    text = " ".join(ast.unparse(expression).split())
    return text if len(text) <= most else text[: most - 1] + "…"


# --- reading --------------------------------------------------------------------------------------


def _plain(value: Any) -> FunctionType:
    """The function below decorators, and below the module that `kernels` makes of a function."""
    if isinstance(value, nn.Module):
        inner = inspect.getclosurevars(type(value).forward).nonlocals.get("func")
        value = value if inner is None else inner
    value = inspect.unwrap(value)
    if not isinstance(value, FunctionType):
        raise Unreadable(f"{value!r} is no function of Python")
    return value


@cache
def _read(of: FunctionType, owner: type | None) -> ast.expr:
    definition = _definition(of)
    arguments = definition.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return _Reader(of, owner, {name: ast.Name(name) for name in names}).body(definition.body)


def _definition(of: FunctionType) -> ast.FunctionDef:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(of)))
    except (OSError, TypeError, SyntaxError) as error:
        raise Unreadable(f"the source of {of.__qualname__} cannot be read: {error}") from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise Unreadable(f"{of.__qualname__} is no plain function")
    return definition


class _Reader(ast.NodeTransformer):
    """Puts the values of local variables, and the bodies of functions, in the place of names."""

    def __init__(
        self, of: FunctionType, owner: type | None, values: Mapping[str, ast.expr]
    ) -> None:
        self.of, self.owner, self.values = of, owner, dict(values)

    def body(self, statements: list[ast.stmt]) -> ast.expr:
        for i, statement in enumerate(statements):
            if isinstance(statement, ast.Return) and statement.value is not None:
                return self.value(statement.value)
            if isinstance(statement, ast.If) and _returns(statement):
                return self.either(statement, statements[i + 1 :])
            self.statement(statement)
        raise Unreadable(f"{self.of.__qualname__} returns nothing")

    def either(self, statement: ast.If, rest: list[ast.stmt]) -> ast.expr:
        """A branch that returns: both ways to the end."""
        test = self.value(statement.test)
        ways = [
            _Reader(self.of, self.owner, self.values).body([*branch, *rest])
            for branch in (statement.body, statement.orelse)
        ]
        return _choice(test, *ways)

    def statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self.assign(statement.targets[0], self.value(statement.value))
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            self.assign(statement.target, self.value(statement.value))
        elif isinstance(statement, ast.If):
            self.branch(statement)
        elif not _says_only(statement):
            line = ast.unparse(statement).split("\n")[0]
            raise Unreadable(f"{self.of.__qualname__} has a statement {line!r}")

    def branch(self, statement: ast.If) -> None:
        """Kept as a choice: `a if test else b` for every variable that the branches set."""
        test = self.value(statement.test)
        before = dict(self.values)
        for one in statement.body:
            self.statement(one)
        after, self.values = self.values, dict(before)
        for one in statement.orelse:
            self.statement(one)
        for name, value in after.items():
            other = self.values.get(name)
            if other is None or ast.dump(other) != ast.dump(value):
                self.values[name] = _choice(test, value, other or ast.Constant(...))

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.values[target.id] = value
        elif isinstance(target, ast.Tuple):
            for i, one in enumerate(target.elts):
                known = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
                part = value.elts[i] if known else ast.Subscript(value, ast.Constant(i))  # type: ignore[attr-defined]
                self.assign(one, part)
        else:
            raise Unreadable(f"{self.of.__qualname__} sets {ast.unparse(target)}")

    def value(self, expression: ast.expr) -> ast.expr:
        found: ast.expr = self.visit(copy.deepcopy(expression))
        return found

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values.get(node.id, node))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _CONVERSIONS:
            return called.value
        inner = self.inlined(called)
        if inner is None or any(isinstance(one, ast.Starred) for one in node.args):
            return node
        first = [ast.Name("self")] if isinstance(called, ast.Attribute) else []
        with suppress(Unreadable):  # then the call stays a call, which no pattern has
            return self.call(inner, [*first, *node.args], node.keywords)
        return node

    def inlined(self, called: ast.expr) -> FunctionType | None:
        """The method of the module, or the function beside its class, that a call names."""
        if isinstance(called, ast.Name):
            found = self.of.__globals__.get(called.id)
            beside = getattr(found, "__module__", None) == self.of.__module__
            return found if isinstance(found, FunctionType) and beside else None
        named = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
        if not named or called.value.id != "self":  # type: ignore[attr-defined]
            return None
        found = inspect.getattr_static(self.owner, called.attr, None)  # type: ignore[attr-defined]
        return found if isinstance(found, FunctionType) else None

    def call(
        self, inner: FunctionType, given: list[ast.expr], named: list[ast.keyword]
    ) -> ast.expr:
        definition = _definition(inspect.unwrap(inner))
        arguments = definition.args
        values = dict(zip([a.arg for a in arguments.args], given, strict=False))
        values.update({one.arg: one.value for one in named if one.arg is not None})
        defaults = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        for argument, default in zip(defaults, arguments.defaults, strict=True):
            values.setdefault(argument.arg, default)
        return _Reader(inner, self.owner, values).body(definition.body)


def _returns(statement: ast.If) -> bool:
    return any(isinstance(one, ast.Return) for one in (*statement.body, *statement.orelse))


def _choice(test: ast.expr, first: ast.expr, second: ast.expr) -> ast.expr:
    return first if ast.dump(first) == ast.dump(second) else ast.IfExp(test, first, second)


def _says_only(statement: ast.stmt) -> bool:
    """A docstring, or a call that warns of an old argument."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    called = value.func if isinstance(value, ast.Call) else None
    warns = isinstance(called, ast.Name) and called.id in ("deprecate", "warn")
    return warns or isinstance(value, ast.Constant)


# --- comparing ------------------------------------------------------------------------------------


@cache
def _parsed(pattern: str) -> ast.expr:
    return ast.parse(" ".join(pattern.split()), mode="eval").body


def _matches(pattern: Any, found: Any, known: dict[str, ast.expr]) -> Iterator[dict[str, ast.expr]]:
    """Every way to read `found` as `pattern`; sums and products in either order."""
    if isinstance(pattern, ast.Name) and pattern.id.isupper():
        held = known.get(pattern.id)
        if held is None:
            yield {**known, pattern.id: found}
        elif ast.dump(held) == ast.dump(found):
            yield known
    elif isinstance(pattern, ast.AST):
        if type(pattern) is not type(found):
            return
        yield from _all(_pairs(pattern, found), known)
        if isinstance(found, ast.BinOp) and isinstance(found.op, _COMMUTATIVE):
            swapped = ast.BinOp(found.right, found.op, found.left)
            yield from _all(_pairs(pattern, swapped), known)
    elif isinstance(pattern, list):
        if isinstance(found, list) and len(pattern) == len(found):
            yield from _all(list(zip(pattern, found, strict=True)), known)
    elif pattern == found:
        yield known


def _pairs(pattern: ast.AST, found: ast.AST) -> list[tuple[Any, Any]]:
    names = [name for name in pattern._fields if name not in ("ctx", "kind")]
    return [(getattr(pattern, name), getattr(found, name)) for name in names]


def _all(pairs: list[tuple[Any, Any]], known: dict[str, ast.expr]) -> Iterator[dict[str, ast.expr]]:
    if not pairs:
        yield known
        return
    (pattern, found), *rest = pairs
    for bound in _matches(pattern, found, known):
        yield from _all(rest, bound)


def attribute(expression: ast.expr | None) -> str | None:
    """`name` of an expression `self.name`."""
    bound = isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name)
    return expression.attr if bound and expression.value.id == "self" else None  # type: ignore[union-attr]
