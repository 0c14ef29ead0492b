"""The functions beside a kernel: pure ones, some that write through references, recursion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import tree
from .expressions import binary, compare, literal, uint
from .scope import LANE, Local, LocalArray, Scope
from .tree import Function, Parameter, Statement

if TYPE_CHECKING:
    from .generate import Generator

SMALLEST_INPUT = 32
"""A function that gets a pointer to a buffer may read this many elements."""


def make_functions(generator: Generator) -> list[Function]:
    makers = (plain, plain, writing, on_array, on_buffer)
    count = 1 if generator.small else generator.rng.randrange(1, 4)
    functions = [
        maker(generator, f"f{number}")
        for number, maker in enumerate(generator.rng.sample(makers, count))
    ]
    if generator.chance(0.3):
        functions.append(recursive(generator))
    return functions


def _scope(generator: Generator, parameters: list[Parameter]) -> Scope:
    scope = Scope(level=LANE, depth=2, in_function=True, rounds=12)
    scope.collectives = generator.chance(0.6)
    scope.locals += [Local(p.name, p.type) for p in parameters if p.kind != "memory"]
    return scope


def _finish(
    generator: Generator, name: str, kind: str, parameters: list[Parameter], scope: Scope
) -> Function:
    """Statements, a return in the middle now and then, and one at the end."""
    spent, generator.budget = generator.budget, 5
    body: list[Statement] = generator.statements(scope, generator.rng.randrange(1, 4))
    if generator.chance(0.5):
        early = scope.inner()
        value = generator.tame(generator.expression(kind, 2, early), early)
        body.append(tree.If(generator.condition(2, early), [tree.Return(value)]))
        body += generator.statements(scope, 1)
    if generator.chance(0.3):
        body += _returning_loop(generator, kind, scope)
    body.append(tree.Return(generator.tame(generator.expression(kind, 2, scope), scope)))
    generator.budget = spent
    return Function(name, kind, parameters, body)


def _returning_loop(generator: Generator, kind: str, scope: Scope) -> list[Statement]:
    """Lanes return from the middle of a loop, and wait for the others at the function's end."""
    counter = generator.name("i")
    inner = scope.inner(loop="varying", collectives=False)
    inner.locals.append(Local(counter, "int", False))
    bound = binary("&", generator.expression("int", 1, inner), literal("int", 7))
    value = generator.tame(generator.expression(kind, 1, inner), inner)
    body: list[Statement] = [
        tree.If(generator.condition(1, inner), [tree.Return(value)]),
        *generator.assign(inner),
    ]
    return [tree.For(counter, "int", literal("int", 0), "<", bound, 1, body)]


def plain(generator: Generator, name: str) -> Function:
    kinds = [generator.rng.choice(generator.scalars) for _ in range(3)]
    parameters = [Parameter(f"p{i}", kind) for i, kind in enumerate(kinds)]
    kind = generator.rng.choice(generator.scalars)
    return _finish(generator, name, kind, parameters, _scope(generator, parameters))


def writing(generator: Generator, name: str) -> Function:
    kind = generator.rng.choice(["int", "uint"])
    parameters = [
        Parameter("p0", generator.rng.choice(generator.scalars)),
        Parameter("target", kind, "reference"),
    ]
    return _finish(generator, name, "int", parameters, _scope(generator, parameters))


def on_array(generator: Generator, name: str) -> Function:
    kind = generator.rng.choice(["int", "float"])
    parameters = [Parameter("p0", "uint"), Parameter("values", kind, "memory", "thread")]
    scope = _scope(generator, parameters)
    scope.arrays.append(LocalArray("values", kind, 4))
    return _finish(generator, name, kind, parameters, scope)


def on_buffer(generator: Generator, name: str) -> Function:
    kind = generator.rng.choice(["int", "uint", "float"])
    parameters = [Parameter("p0", "uint"), Parameter("data", kind, "memory", "device const")]
    scope = _scope(generator, parameters)
    scope.arrays.append(LocalArray("data", kind, SMALLEST_INPUT, mutable=False))
    return _finish(generator, name, kind, parameters, scope)


def recursive(generator: Generator) -> Function:
    """Cannot be inlined, so lanes call it with a mask of their own."""
    left, total = tree.Variable("uint", "left"), tree.Variable("uint", "total")
    more = binary("+", binary("*", total, uint(generator.rng.choice([3, 5]))), left)
    again = tree.Invoke("uint", "recursive", [binary("-", left, uint(1)), more])
    body: list[Statement] = [
        tree.If(compare("==", left, uint(0)), [tree.Return(total)]),
        tree.Return(again),
    ]
    return Function(
        "recursive", "uint", [Parameter("left", "uint"), Parameter("total", "uint")], body
    )
