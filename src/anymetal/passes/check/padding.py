"""Bytes between the members of a structure hold nothing, so copies leave them out.

A copy of a whole structure reads and writes its padding too, and nobody has ever written that. Here
each copy becomes one of every part between the padding, where the code tells what is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from anymetal.ir import I8, PTR, Builder, Function, Instruction, Layout, Operand, Type, Vector, i64
from anymetal.ir.types import Array, Named, Structure
from anymetal.passes.accesses import alignment
from anymetal.passes.rewrite import rewrite

# Copies in more parts than this stay whole: what is read of a thread's own array is known anyway.
_MOST_PARTS = 32
_LARGEST_ALIGNMENT = 16


def _parts_of(layout: Layout, kind: Type, tails: bool, start: int = 0) -> Iterator[tuple[int, int]]:
    """First and last byte + 1 of everything in a type that is not padding, in order."""
    resolved = layout.resolved(kind)
    if isinstance(resolved, Structure | Array):
        parts = layout.parts(resolved)
        if isinstance(kind, Named) and _has_tail(kind, parts, tails):
            parts = parts[:-1]
        for number, part in enumerate(parts):
            yield from _parts_of(layout, part, tails, start + layout.offset(resolved, number))
    else:
        yield start, start + layout.access_size(resolved)


def _has_tail(kind: Named, parts: tuple[Type, ...], tails: bool) -> bool:
    """Whether the last member fills a structure up to its alignment: `[4 x i8]` of a float3.

    In a structure of the author's it may as well be a member; `tails` says to take it for one.
    """
    last = parts[-1] if len(parts) > 1 else None
    if not isinstance(last, Array) or last.element is not I8 or last.count >= _LARGEST_ALIGNMENT:
        return False
    return not tails or kind.text.strip('%"').startswith("struct.metal::vec")


def runs_of(layout: Layout, kind: Type, *, tails: bool) -> list[tuple[int, int]]:
    """The same with neighbours joined. A union may hold any of its members: it is all padding."""
    if is_union(kind):
        return []
    runs: list[tuple[int, int]] = []
    for start, end in _parts_of(layout, kind, tails):
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def is_union(kind: Type) -> bool:
    """Whether it is a union, or an array of them."""
    while isinstance(kind, Array):
        kind = kind.element
    return isinstance(kind, Named) and kind.text.strip('%"').startswith("union.")


def is_padded(layout: Layout, kind: Type) -> bool:
    """Whether some bytes of a variable of this type belong to nobody."""
    if not isinstance(kind, Vector | Array | Structure | Named):
        return False
    return runs_of(layout, kind, tails=False) != [(0, layout.size(kind))]


def split_copies(function: Function, layout: Layout) -> None:
    """Makes each copy of a padded structure copies of its parts."""
    copies = [i for i in function.instructions() if (i.callee or "").startswith("llvm.memcpy")]
    if not copies:
        return
    pointees = _Pointees(function, layout)

    def emit(build: Builder, call: Instruction) -> bool:
        if not (call.callee or "").startswith("llvm.memcpy"):
            return False
        kind = pointees.copied(call)
        runs = runs_of(layout, kind, tails=True) if kind is not None else []
        size = call.operands[2].integer
        if not runs or runs == [(0, size)] or len(runs) > _MOST_PARTS:
            return False
        target, source = call.operands[:2]
        for start, end in runs:
            places = [_moved(build, pointer, start) for pointer in (target, source)]
            operands = [*places, i64(end - start), call.operands[3]]
            aligned = [(f"align {_alignment(call, place, start)}",) for place in (0, 1)]
            build.call(call.type, str(call.callee), operands, attributes=[*aligned, (), ()])
            if "dbg" in call.metadata:
                build.made[-1].attach("dbg", call.metadata["dbg"])
        return True

    rewrite(function, emit)


def _alignment(call: Instruction, place: int, distance: int) -> int:
    """Of a place in what is copied."""
    return math.gcd(alignment(call, place), distance)


def _moved(build: Builder, pointer: Operand, distance: int) -> Operand:
    return build.offset(pointer, distance) if distance else Operand(PTR, pointer.text)


class _Pointees:
    """What the pointers of a function point to, from the variables and the steps they are used
    with."""

    def __init__(self, function: Function, layout: Layout) -> None:
        self._layout = layout
        self._definitions = function.definitions()
        self._stepped: dict[str, set[Type]] = {}
        for step in function.instructions():
            if step.opcode == "getelementptr" and step.element is not None:
                kinds = self._stepped.setdefault(self._variable(step.pointer.text), set())
                kinds.add(step.element)

    def copied(self, call: Instruction) -> Type | None:
        """The type of what a copy copies, if one of its pointers tells."""
        size = call.operands[2].integer
        for pointer in call.operands[:2]:
            for kind in self._candidates(pointer.text):
                if self._layout.size(kind) == size:
                    return kind
        return None

    def _candidates(self, pointer: str) -> Iterator[Type]:
        made = self._definitions.get(pointer)
        if made is not None and made.opcode == "alloca" and made.element is not None:
            yield made.element
        if made is not None and made.opcode == "getelementptr" and made.element is not None:
            kind = self._stepped_into(made)
            if kind is not None:
                yield kind
        yield from self._stepped.get(self._variable(pointer), ())

    def _variable(self, pointer: str) -> str:
        """The variable that a pointer was read from, or the pointer itself."""
        made = self._definitions.get(pointer)
        return made.pointer.text if made is not None and made.opcode == "load" else pointer

    def _stepped_into(self, step: Instruction) -> Type | None:
        """What a getelementptr gives the address of."""
        kind = step.element
        for index in step.operands[2:]:
            resolved = self._layout.resolved(kind) if kind is not None else None
            if isinstance(resolved, Structure):
                kind = resolved.members[index.integer or 0]
            elif isinstance(resolved, Array | Vector):
                kind = resolved.element
            else:
                return None
        return kind
