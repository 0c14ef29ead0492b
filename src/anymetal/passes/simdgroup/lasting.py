"""What a function must keep where it waits: the variables and values that are live there.

A set of them is an integer with a bit for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from anymetal.ir import Block, Instruction, Layout, Type

# Stands in vector code where a simdgroup waits, in front of a jump to where it goes on.
WAIT = "am_wait"
Named = tuple[str, Type]
NOT_KEPT = "captures(none)"  # an address, by the function that it is given to
_REGISTERS = 32 * 64  # bytes


@dataclass
class Lasting:
    """What outlasts a wait.

    `in_memory`: variables that code has addresses of, and what registers have no room for.
    `values`: results of instructions that are used behind a wait. `saved` and `restored`, for each
    block that waits: the other variables and the values that may be newer than when they were last
    saved, and those that are used before the next wait. `saved_early`, for edges: what is saved
    once, before a loop that waits. `shared`: values in memory, and the variables that they are
    copied to, where both lie in one place. `at_once`: what must not lie in one place, since it is
    kept at the same time. `unset`: variables that may be read before anything is written to them,
    by lanes that do not count.
    """

    in_memory: set[str]
    values: dict[str, Type]
    saved: dict[str, list[Named]]
    restored: dict[str, list[Named]]
    saved_early: dict[tuple[str, str], list[Named]]
    shared: dict[str, str]
    at_once: list[frozenset[str]]
    unset: list[Named]


def what_lasts(
    blocks: list[Block],
    allocas: dict[str, Instruction],
    types: Layout,
    *,
    in_memory: bool = False,
) -> Lasting:
    """`blocks` are all but the entry, `allocas` the variables; `in_memory`: all of it is there."""
    kept = _Candidates(blocks, allocas)
    flows = {block.label: _flow(block, kept) for block in blocks}
    live = _needed(flows, {})
    at_waits = {label: live[flow.after[0]] for label, flow in flows.items() if flow.waits}
    early = _early_edges(flows)
    changed = _changed(flows, early)
    saved = {label: bits & changed[label] & ~kept.addressed for label, bits in at_waits.items()}
    silent = {label: replace(flow, read=0) for label, flow in flows.items()}
    upcoming = _needed(silent, at_waits)
    saved_early = {
        (label, after): changed[label] & upcoming[after] & ~kept.addressed
        for label, after in sorted(early)
    }
    needed = _needed(flows, saved)
    restored = {label: needed[flows[label].after[0]] & ~kept.addressed for label in saved}
    moved = _union((*saved.values(), *restored.values(), *saved_early.values()))
    at_home = moved
    if not in_memory:
        at_home = _union(kept.too_many(bits, types) for bits in restored.values())
    lasting = _union(at_waits.values()) & kept.addressed | at_home

    def listed(bits: int) -> list[Named]:
        return list(kept.members(bits & ~at_home))

    return Lasting(
        in_memory=kept.escaped | {name for name, _ in kept.members(lasting)},
        values=dict(kept.members(moved & kept.values)),
        saved={label: listed(bits) for label, bits in saved.items()},
        restored={label: listed(bits) for label, bits in restored.items()},
        saved_early={edge: listed(bits) for edge, bits in saved_early.items()},
        shared=_shared(blocks, flows, live, kept, at_home),
        at_once=[
            frozenset(name for name, _ in listed(bits & ~kept.addressed))
            for bits in (*at_waits.values(), *saved_early.values())
        ],
        unset=listed(live[blocks[0].label] & ~kept.addressed & ~kept.values),
    )


class _Candidates:
    """Variables, and results of instructions that other blocks use.

    `inside`: addresses in a variable. `addressed`: the variables that have some; those whose
    address code does more with than to read and write there have `escaped`.
    """

    def __init__(self, blocks: list[Block], allocas: dict[str, Instruction]) -> None:
        self._named: list[Named] = []
        self.numbers: dict[str, int] = {}
        self.inside: dict[str, int] = {}
        self.escaped: set[str] = set()
        self.addressed = 0
        for name, alloca in allocas.items():
            assert alloca.element is not None
            self._add(name, alloca.element)
        self.variables = len(self._named)
        self._note_addresses(blocks)
        self._add_values(blocks)
        self.values = (1 << len(self._named)) - (1 << self.variables)

    def _add(self, name: str, kind: Type) -> None:
        self.numbers[name] = len(self._named)
        self._named.append((name, kind))

    def members(self, bits: int) -> Iterator[Named]:
        while bits:
            lowest = bits & -bits
            yield self._named[lowest.bit_length() - 1]
            bits ^= lowest

    def too_many(self, bits: int, types: Layout) -> int:
        """The vectors among these, if they are more than there are registers for: LLVM would copy
        them from the frame to its stack, and back."""
        vectors = [(name, kind) for name, kind in self.members(bits) if kind.is_vector]
        if sum(types.size(kind) for _, kind in vectors) <= _REGISTERS:
            return 0
        return _union(1 << self.numbers[name] for name, _ in vectors)

    def _note_addresses(self, blocks: list[Block]) -> None:
        for block in blocks:
            for instruction in block.instructions:
                for place, operand in enumerate(instruction.operands):
                    number = self.numbers.get(operand.text, self.inside.get(operand.text))
                    if number is not None and not self._is_whole(instruction, place, number):
                        self.addressed |= 1 << number
                        self._note_address(instruction, place, number)

    def _is_whole(self, access: Instruction, place: int, number: int) -> bool:
        """Whether a variable in a register is read or written."""
        if access.operands[place].text not in self.numbers or access.is_volatile:
            return False
        if access.opcode == "load":
            return access.type is self._named[number][1]
        return place == 1 and self.is_written(access, number)

    def is_written(self, access: Instruction, number: int) -> bool:
        """Whether this is a store to a whole variable."""
        is_variable = number < self.variables and access.opcode == "store"
        return is_variable and access.operands[0].type is self._named[number][1]

    def read(self, instruction: Instruction) -> int:
        """What an instruction reads, or has the address of."""
        read = 0
        for place, operand in enumerate(instruction.operands):
            number = self.numbers.get(operand.text)
            if place == 1 and number is not None and self.is_written(instruction, number):
                continue
            for one in (number, self.inside.get(operand.text)):
                if one is not None:
                    read |= 1 << one
        return read

    def written(self, instruction: Instruction) -> Iterator[int]:
        """What an instruction writes as a whole."""
        number = self.numbers.get(instruction.result or "")
        if number is not None:
            yield number
        if instruction.opcode == "store":
            number = self.numbers.get(instruction.operands[1].text)
            if number is not None and self.is_written(instruction, number):
                yield number

    def copied(self, instruction: Instruction) -> tuple[int, int] | None:
        """The value and the variable, where a store copies one to the other."""
        if instruction.opcode != "store":
            return None
        value, variable = (self.numbers.get(operand.text) for operand in instruction.operands)
        if value is None or variable is None or value < self.variables:
            return None
        return (value, variable) if self.is_written(instruction, variable) else None

    def name(self, number: int) -> str:
        return self._named[number][0]

    def _note_address(self, instruction: Instruction, place: int, number: int) -> None:
        opcode = instruction.opcode
        if opcode == "getelementptr" and place == 0 and instruction.result is not None:
            self.inside[instruction.result] = number
        elif not (
            opcode == "load" or (opcode == "store" and place == 1) or _is_lent(instruction, place)
        ):
            self.escaped.add(self._named[number][0])

    def _add_values(self, blocks: list[Block]) -> None:
        homes = {i.result: (block, i) for block in blocks for i in block.instructions if i.result}
        for block in blocks:
            for instruction in block.instructions:
                for operand in instruction.operands:
                    home, made = homes.get(operand.text, (block, None))
                    if made is not None and home is not block and operand.text not in self.numbers:
                        self._add(operand.text, made.type)


def _is_lent(call: Instruction, place: int) -> bool:
    """Whether a function is given an address that it does not keep."""
    attributes = call.attributes[place : place + 1] if call.opcode == "call" else ()
    return any(NOT_KEPT in given for given in attributes)


@dataclass
class _Flow:
    """One block: what it reads before it writes it, what it writes, and where it leads to."""

    read: int
    written: int
    after: list[str]
    waits: bool


def _flow(block: Block, kept: _Candidates) -> _Flow:
    read = written = 0
    for instruction in block.instructions:
        read |= kept.read(instruction) & ~written
        for number in kept.written(instruction):
            written |= 1 << number
    return _Flow(read, written, block.successors, waits(block))


def _shared(
    blocks: list[Block],
    flows: dict[str, _Flow],
    live: dict[str, int],
    kept: _Candidates,
    at_home: int,
) -> dict[str, str]:
    """Values that are copied to a variable, mostly for the next turn of a loop, where neither is
    written while the other one is needed."""
    copies: dict[int, int] = {}
    for block in blocks:
        for instruction in block.instructions:
            copy = kept.copied(instruction)
            if copy is None or not at_home >> copy[0] & at_home >> copy[1] & 1:
                continue
            if copy[0] not in copies and copy[1] not in copies.values():
                copies.update([copy])
    for block in blocks:
        after = _union(live[label] for label in flows[block.label].after)
        for value, variable in _overwritten(block, after, kept, copies):
            if copies.get(value) == variable:
                del copies[value]
    return {kept.name(value): kept.name(variable) for value, variable in copies.items()}


def _overwritten(
    block: Block, after: int, kept: _Candidates, copies: dict[int, int]
) -> Iterator[tuple[int, int]]:
    """The pairs of `copies` of which one is written in a block while the other one is live."""
    partners = copies | {variable: value for value, variable in copies.items()}
    alive = after
    for instruction in reversed(block.instructions):
        for number in kept.written(instruction):
            alive &= ~(1 << number)
            partner = partners.get(number)
            is_copy = kept.copied(instruction) == (partner, number)
            if partner is not None and alive >> partner & 1 and not is_copy:
                yield (number, partner) if number in copies else (partner, number)
        alive |= kept.read(instruction)


def waits(block: Block) -> bool:
    return len(block.instructions) > 1 and block.instructions[-2].callee == WAIT


def _early_edges(flows: dict[str, _Flow]) -> set[tuple[str, str]]:
    """Edges into what also runs after a wait, from what does not: into loops that wait, mostly."""
    later: set[str] = set()
    pending = [flow.after[0] for flow in flows.values() if flow.waits]
    while pending:
        label = pending.pop()
        if label not in later:
            later.add(label)
            pending += flows[label].after
    return {
        (label, after)
        for label, flow in flows.items()
        if label not in later and not flow.waits
        for after in flow.after
        if after in later
    }


def _changed(flows: dict[str, _Flow], early: set[tuple[str, str]]) -> dict[str, int]:
    """At the end of each block: what may have been written since it was last saved."""
    changed = {label: flow.written for label, flow in flows.items()}
    pending = dict.fromkeys(flows)
    while pending:
        label = next(iter(pending))
        del pending[label]
        for after in () if flows[label].waits else flows[label].after:
            if (label, after) not in early and changed[label] & ~changed[after]:
                changed[after] |= changed[label]
                pending[after] = None
    return changed


def _needed(flows: dict[str, _Flow], saved: dict[str, int]) -> dict[str, int]:
    """At the start of each block: what it or a later one reads; with `saved` up to the next wait,
    which reads what it saves."""
    before: dict[str, list[str]] = {label: [] for label in flows}
    for label, flow in flows.items():
        for after in () if label in saved else flow.after:
            before[after].append(label)
    needed = {
        label: flow.read | (saved.get(label, 0) & ~flow.written) for label, flow in flows.items()
    }
    pending = dict.fromkeys(flows)
    while pending:
        label, _ = pending.popitem()
        for earlier in before[label]:
            more = needed[label] & ~flows[earlier].written & ~needed[earlier]
            if more:
                needed[earlier] |= more
                pending[earlier] = None
    return needed


def _union(sets: Iterable[int]) -> int:
    union = 0
    for members in sets:
        union |= members
    return union
