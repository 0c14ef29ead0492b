"""A failing kernel in, a smaller one that fails in the same way out.

Every candidate first runs on the model: what would be a race or a wild index there is no candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from . import tree
from .flow import NEVER
from .model import Expected, run
from .scalars import is_float, width
from .tree import Expression, Kernel, Node, Statement

Fails = Callable[[Kernel, Expected], bool]
Edit = Callable[[Kernel], bool]
"""Changes a kernel in place; False where there is nothing to change."""


def shrink(kernel: Kernel, fails: Fails, seconds: float = 90) -> Kernel:
    """The smallest kernel found before the time is up. Deterministic apart from that limit."""
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for edits in (_removals, _flattenings, _launches, _simplifications):
            position = 0
            # After a success the same position holds the next candidate of the smaller kernel.
            while time.monotonic() < deadline:
                smaller = _first_failing(kernel, edits, position, fails, deadline)
                if smaller is None:
                    break
                kernel, position = smaller
                changed = True
    return without_unused(kernel, fails)


def _first_failing(
    kernel: Kernel, edits: Callable[[Kernel], Iterator[Edit]], start: int, fails: Fails, end: float
) -> tuple[Kernel, int] | None:
    for position, edit in enumerate(edits(kernel)):
        if position < start:
            continue
        if time.monotonic() > end:
            return None
        candidate = tree.copy(kernel)
        if edit(candidate) and still_fails(candidate, fails):
            return candidate, position
    return None


def still_fails(kernel: Kernel, fails: Fails) -> bool:
    try:
        expected = run(kernel)
    except Exception:  # whatever the edit broke, the model cannot say what is right any more
        return False
    return not _leaves_for_sure(kernel) and fails(kernel, expected)


def _leaves_for_sure(kernel: Kernel) -> bool:
    """Whether a compiler may prove that a loop is left: see Flow.unproven."""
    for node in tree.walk(kernel):
        for name in _statement_lists(node):
            if any(isinstance(statement, tree.Break) for statement in getattr(node, name)):
                guard = node.condition if isinstance(node, tree.If) and name == "then" else None
                if guard is None or not _is_unproven(guard):
                    return True
    return False


def _is_unproven(condition: Expression) -> bool:
    """By the question that the generator adds; or the first one of a search, for its bound."""
    if isinstance(condition, tree.Compare) and isinstance(condition.left, tree.Variable):
        return True
    numbers = [node.value for node in tree.walk(condition) if isinstance(node, tree.Literal)]
    return NEVER in numbers


# ---- Edits ---------------------------------------------------------------------------------------


def _node(kernel: Kernel, number: int) -> Node:
    for position, node in enumerate(tree.walk(kernel)):
        if position == number:
            return node
    raise IndexError(number)


def _statement_lists(node: Node) -> Iterator[str]:
    for name in ("body", "then", "otherwise"):
        if isinstance(getattr(node, name, None), list):
            yield name


def _removals(kernel: Kernel) -> Iterator[Edit]:
    """Without a run of statements: long runs first."""
    places = [
        (number, name, len(getattr(node, name)))
        for number, node in enumerate(tree.walk(kernel))
        for name in _statement_lists(node)
    ]
    size = max((length for *_, length in places), default=0)
    while size:
        for number, name, length in places:
            for start in range(0, length - size + 1, size):
                yield _removal(number, name, start, size)
        size //= 2
    for number, node in enumerate(tree.walk(kernel)):
        if isinstance(node, tree.Switch):
            for case in range(len(node.cases)):
                yield _removal(number, "cases", case, 1)


def _removal(number: int, name: str, start: int, size: int) -> Edit:
    def edit(kernel: Kernel) -> bool:
        statements = getattr(_node(kernel, number), name)
        del statements[start : start + size]
        return True

    return edit


def _flattenings(kernel: Kernel) -> Iterator[Edit]:
    """The body in place of an if, a loop or a switch."""
    for number, node in enumerate(tree.walk(kernel)):
        for name in _statement_lists(node):
            for place, statement in enumerate(getattr(node, name)):
                for which in range(len(_bodies(statement))):
                    yield _flattening(number, name, place, which)


def _bodies(statement: Statement) -> list[list[Statement]]:
    """What may stand in the statement's place."""
    if isinstance(statement, tree.If):
        return [statement.then, statement.otherwise]
    if isinstance(statement, tree.While):
        return [statement.body]
    if isinstance(statement, tree.For):
        first = tree.Declare(statement.variable, statement.type, statement.start)
        return [[first, *statement.body]]
    if isinstance(statement, tree.Switch):
        return [case.body for case in statement.cases]
    return []


def _flattening(number: int, name: str, place: int, which: int) -> Edit:
    def edit(kernel: Kernel) -> bool:
        statements = getattr(_node(kernel, number), name)
        statements[place : place + 1] = _bodies(statements[place])[which]
        return True

    return edit


def _launches(kernel: Kernel) -> Iterator[Edit]:
    for grid, group in (([32], [32]), ([64], [64]), ([64], [32]), ([20], [20])):
        if _threads(grid) < _threads(kernel.grid):
            yield _launch(grid, group)


def _threads(shape: list[int]) -> int:
    threads = 1
    for size in shape:
        threads *= size
    return threads


def _launch(grid: list[int], group: list[int]) -> Edit:
    def edit(kernel: Kernel) -> bool:
        kernel.grid, kernel.group = list(grid), list(group)
        return True

    return edit


def _simplifications(kernel: Kernel) -> Iterator[Edit]:
    """A literal, or a part of the same type, in place of an expression."""
    for number, node in enumerate(tree.walk(kernel)):
        for place, child in enumerate(tree.children(node)):
            if not isinstance(child, Expression) or isinstance(child, tree.Literal):
                continue
            if kernel.struct(child.type) or (isinstance(node, tree.Assign) and place == 0):
                continue
            if width(child.type) == 1:
                yield _replacement(number, place, _zero(child.type))
            for part in range(len(list(tree.children(child)))):
                yield _promotion(number, place, part)


def _zero(kind: str) -> tree.Literal:
    if kind == "bool":
        return tree.Literal(kind, True)
    return tree.Literal(kind, 1.0 if is_float(kind) else 1)


def _replacement(number: int, place: int, new: Expression) -> Edit:
    return lambda kernel: _set_child(_node(kernel, number), place, new)


def _promotion(number: int, place: int, part: int) -> Edit:
    def edit(kernel: Kernel) -> bool:
        node = _node(kernel, number)
        child = list(tree.children(node))[place]
        inner = list(tree.children(child))[part]
        assert isinstance(child, Expression)
        if not isinstance(inner, Expression) or inner.type != child.type:
            return False
        return _set_child(node, place, inner)

    return edit


def _set_child(node: Node, place: int, new: Expression) -> bool:
    position = 0
    for name, value in vars(node).items():
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            if not isinstance(item, Node):
                continue
            if position == place:
                if isinstance(value, list):
                    value[index] = new
                else:
                    setattr(node, name, new)
                return True
            position += 1
    return False


# ---- What nothing uses any more ------------------------------------------------------------------


def without_unused(kernel: Kernel, fails: Fails) -> Kernel:
    """Buffers, functions and structs that the code no longer names go last."""
    result = tree.copy(kernel)
    called = {node.function for node in tree.walk(result) if isinstance(node, tree.Invoke)}
    result.functions = [function for function in result.functions if function.name in called]
    named = set(_names(result))
    result.memories = [memory for memory in result.memories if memory.name in named]
    kinds = {getattr(node, "type", "") for node in tree.walk(result)}
    result.structs = [struct for struct in result.structs if struct.name in kinds]
    return result if still_fails(result, fails) else kernel


def _names(kernel: Kernel) -> Iterator[str]:
    for node in tree.walk(kernel):
        for name in ("memory", "name", "first", "second"):
            if not isinstance(node, tree.Memory):
                value = getattr(node, name, None)
                if isinstance(value, str):
                    yield value
        if isinstance(node, tree.Invoke):
            yield from node.memories
