"""Bytes between the members of a structure hold nothing, so nobody asks who wrote them.

A copy of a whole structure reads and writes its padding too. Here each copy becomes one of every
part between the padding, where the code tells what is copied; parts that may be padding or not, or
a member of a union or not, are copied with a mark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from anymetal.ir import (
    I8,
    PTR,
    Builder,
    Function,
    Instruction,
    Layout,
    Module,
    Operand,
    Type,
    Vector,
    i64,
)
from anymetal.ir.tokens import Reader
from anymetal.ir.types import Array, Named, Structure
from anymetal.nouns import AddedBytes
from anymetal.passes.accesses import alignment
from anymetal.passes.check.debug_info import DebugInfo
from anymetal.passes.rewrite import rewrite

# Copies in more parts than this stay whole, and nobody asks whether all of it was written.
_MOST_PARTS = 32


@dataclass(frozen=True)
class Run:
    """Bytes of members, from the first up to the last + 1. Open ones are clang's, or a union's,
    which may be any of its members: whoever copies them need not have written all of them."""

    start: int
    end: int
    is_open: bool


class Padding:
    """Which bytes of a type belong to no member. `added` is what clang says of structures: in IR
    its padding is a member like any other, an array of bytes or a single one."""

    def __init__(self, layout: Layout, added: Collection[AddedBytes]) -> None:
        self._layout = layout
        self._added = added

    def runs(self, kind: Type) -> list[Run]:
        """Everything but the holes that LLVM's own layout has, neighbours joined."""
        runs: list[Run] = []
        for part in self._parts(kind, 0):
            if runs and runs[-1].end == part.start and runs[-1].is_open == part.is_open:
                runs[-1] = Run(runs[-1].start, part.end, part.is_open)
            else:
                runs.append(part)
        return runs

    def _parts(self, kind: Type, start: int) -> Iterator[Run]:
        resolved = self._layout.resolved(kind)
        if is_union(kind):
            yield Run(start, start + self._layout.size(kind), is_open=True)
        elif isinstance(resolved, Array) and not self.is_in(resolved.element):
            yield Run(start, start + self._layout.size(resolved), is_open=False)
        elif isinstance(resolved, Structure | Array):
            for number, part in enumerate(self._layout.parts(resolved)):
                place = start + self._layout.offset(resolved, number)
                if isinstance(kind, Named) and self._is_added(kind, resolved, number):
                    yield Run(place, place + self._layout.size(part), is_open=True)
                else:
                    yield from self._parts(part, place)
        else:
            yield Run(start, start + self._layout.access_size(resolved), is_open=False)

    def _is_added(self, kind: Named, resolved: Structure | Array, number: int) -> bool:
        """Whether a member is clang's."""
        parts = self._layout.parts(resolved)
        count = _bytes_in(parts[number])
        is_last = number == len(parts) - 1
        if AddedBytes(_name(kind), count, at_end=is_last) not in self._added:
            return False
        # What it fills up to is a multiple of a power of two, and what follows needs that.
        end = self._layout.offset(resolved, number) + count
        if is_last:
            return end == self._layout.size(resolved)
        return end % (1 << count.bit_length()) == 0 and not _bytes_in(parts[number + 1])

    def is_in(self, kind: Type) -> bool:
        """Whether some bytes of a variable of this type need not be written."""
        if not isinstance(kind, Vector | Array | Structure | Named):
            return False
        return self.runs(kind) != [Run(0, self._layout.size(kind), is_open=False)]


def _bytes_in(kind: Type) -> int:
    """The length of an array of bytes, 1 for a byte, 0 for all else."""
    if isinstance(kind, Array) and kind.element is I8:
        return kind.count
    return 1 if kind is I8 else 0


_SUFFIX = re.compile(r"(?:\.base)?(?:\.\d+)?$")


def _name(kind: Named) -> str:
    """The structure's name as the author wrote it: `%"struct.a::Pair.3"` is `a::Pair`."""
    return _SUFFIX.sub("", kind.text.strip('%"').partition(".")[2])


def is_union(kind: Type) -> bool:
    """Whether it is a union."""
    return isinstance(kind, Named) and kind.text.strip('%"').startswith("union.")


def split_copies(function: Function, module: Module, padding: Padding, info: DebugInfo) -> None:
    """Makes each copy of a padded structure copies of its parts."""
    copies = [i for i in function.instructions() if (i.callee or "").startswith("llvm.memcpy")]
    if not copies:
        return
    pointees = _Pointees(function, module.layout(), padding)

    def emit(build: Builder, call: Instruction) -> bool:
        if not (call.callee or "").startswith("llvm.memcpy"):
            return False
        kind, size = pointees.copied(call), call.operands[2].integer
        runs = padding.runs(kind) if kind is not None else []
        if size is None or not runs or runs == [Run(0, size, is_open=False)]:
            return False
        if len(runs) > _MOST_PARTS:
            runs = [Run(0, size, is_open=True)]
        runs = [Run(r.start, min(r.end, size), r.is_open) for r in runs if r.start < size]
        for run in runs:
            _copy(build, call, run)
            place = call.metadata.get("dbg")
            if place is not None:
                build.made[-1].attach("dbg", info.opened(place, module) if run.is_open else place)
        return True

    rewrite(function, emit)


def _copy(build: Builder, call: Instruction, run: Run) -> None:
    """The part of a copy that a run of bytes is."""
    places = [_moved(build, pointer, run.start) for pointer in call.operands[:2]]
    operands = [*places, i64(run.end - run.start), call.operands[3]]
    aligned = [(f"align {_alignment(call, place, run.start)}",) for place in (0, 1)]
    build.call(call.type, str(call.callee), operands, attributes=[*aligned, (), ()])


def _alignment(call: Instruction, place: int, distance: int) -> int:
    """Of a place in what is copied."""
    return math.gcd(alignment(call, place), distance)


def _moved(build: Builder, pointer: Operand, distance: int) -> Operand:
    return build.offset(pointer, distance) if distance else Operand(PTR, pointer.text)


class _Pointees:
    """What the pointers of a function point to, from the variables and the steps they are used
    with."""

    def __init__(self, function: Function, layout: Layout, padding: Padding) -> None:
        self._layout = layout
        self._padding = padding
        self._definitions = function.definitions()
        self._results = {
            parameter.name: Reader(attribute.removeprefix("sret(").removesuffix(")")).type()
            for parameter in function.parameters
            for attribute in parameter.attributes
            if attribute.startswith("sret(")
        }
        self._stepped: dict[str, set[Type]] = {}
        for step in function.instructions():
            if step.opcode == "getelementptr" and step.element is not None:
                kinds = self._stepped.setdefault(self._variable(step.pointer.text), set())
                kinds.add(step.element)

    def copied(self, call: Instruction) -> Type | None:
        """The type of what a copy copies, if one of its pointers tells."""
        size = call.operands[2].integer
        if size is None:
            return None
        kinds = [kind for pointer in call.operands[:2] for kind in self._candidates(pointer.text)]
        for kind in kinds:
            if self._layout.size(kind) == size:
                return kind
        # An assignment leaves out what is behind the last member.
        return next((kind for kind in kinds if self._ends_within(kind, size)), None)

    def _ends_within(self, kind: Type, size: int) -> bool:
        runs = self._padding.runs(kind) if isinstance(kind, Named) else []
        closed = [run.end for run in runs if not run.is_open]
        return bool(closed) and closed[-1] <= size < self._layout.size(kind)

    def _candidates(self, pointer: str) -> Iterator[Type]:
        made = self._definitions.get(pointer)
        if pointer in self._results:
            yield self._results[pointer]
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
