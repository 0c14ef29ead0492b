"""Atomic accesses: serialised over the lanes; without locks where no other thread has access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymetal.ir import (
    I8,
    I64,
    PTR,
    Instruction,
    Integer,
    Operand,
    Parts,
    Vector,
    array,
    constant,
    i32,
)
from anymetal.passes.simdgroup.facts import WIDTH, Facts
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.rules import END_OF_GROUP, THREADGROUP_MEMORY
from anymetal.passes.simdgroup.serial import Serial
from anymetal.passes.simdgroup.values import Code, Value, mangled, vector_type

_PLAIN = frozenset(("add", "sub", "and", "or", "xor", "fadd", "fsub"))
_COMPARED = {"max": "sgt", "min": "slt", "umax": "ugt", "umin": "ult"}
_UPDATES = _PLAIN | _COMPARED.keys()
_INTRINSICS = {"max": "smax", "min": "smin", "umax": "umax", "umin": "umin"}
_STEPS = frozenset(("getelementptr", "phi", "select", "freeze"))


def threadgroup_pointers(kernel: Kernel, facts: Mapping[str, Facts]) -> set[str]:
    """Names of pointers that can point to nothing but threadgroup memory.

    One worker runs a whole threadgroup, so nobody else reads or writes there meanwhile.
    """
    inside: set[str] = set()
    steps: dict[str, list[str]] = {}
    for name, (_, instruction) in kernel.definitions.items():
        if instruction.type is not PTR:
            continue
        if instruction.opcode == "load":
            tag = (
                facts[instruction.operands[0].text].tag if instruction.operands[0].is_name else None
            )
            place, offset = tag or ("", 0)
            if place == "group" and THREADGROUP_MEMORY <= offset < END_OF_GROUP:
                inside.add(name)
        elif instruction.opcode in _STEPS:
            steps[name] = [operand.text for operand in instruction.operands if operand.type is PTR]
    # Pointers may go round loops: an optimistic fixed point.
    inside |= steps.keys()
    while refuted := {n for n in steps if n in inside and not inside.issuperset(steps[n])}:
        inside -= refuted
    return inside


@dataclass(frozen=True)
class Steps:
    """An address as one base and an index a lane: less to keep of each lane than an address."""

    base: Value
    index: Value
    widening: str  # "zext" or "sext" of the index to 64 bits, "" where it has them
    size: int


@dataclass(frozen=True)
class Update:
    """An `atomicrmw` of all lanes on threadgroup memory, whose result nobody uses."""

    instruction: Instruction
    steps: Steps
    given: Value


class Atomics:
    """Writes atomic loads, stores, exchanges and updates."""

    def __init__(self, code: Code, serial: Serial, in_threadgroup: set[str]) -> None:
        self._code = code
        self._serial = serial
        self._in_threadgroup = in_threadgroup

    def access(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value | None:
        """In the order of the lanes, as the other engine does it."""

        def each(given: list[Operand]) -> Operand:
            return self._locked(instruction, given)

        return self._serial.run(instruction.type, operands, mask, each)

    def update_unseen(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value | None:
        """An `atomicrmw` of an integer whose result nobody uses: lanes that would change nothing
        leave it alone, such as those that add a count of zero to others' counts."""
        code, kind = self._code, instruction.type
        assert isinstance(kind, Integer)
        neutral = constant(vector_type(kind), _neutral(instruction.predicate, kind.bits))
        changes = code.icmp("ne", code.vector(operands[1]), neutral)
        mask = changes if mask is None else code.and_(mask, changes)
        return self.access(instruction, operands, mask)

    @staticmethod
    def may_be_left(instruction: Instruction, operands: list[Value]) -> bool:
        """Whether `update_unseen` can do it, if its result is not used."""
        is_update = instruction.opcode == "atomicrmw" and instruction.predicate in _UPDATES
        given = operands[1].facts
        return is_update and instruction.type.is_integer and not given.is_uniform

    def is_shared(self, access: Instruction) -> bool:
        """Whether a load or store is atomic, and of memory that other threads access meanwhile."""
        return access.is_atomic and access.pointer.text not in self._in_threadgroup

    def together(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value:
        """All lanes update one address, with integers: a scan over the lanes and one update.

        Each lane gets what it would have found had they come one after the other.
        """
        code, kind = self._code, instruction.type
        assert isinstance(kind, Integer)
        neutral = constant(vector_type(kind), _neutral(instruction.predicate, kind.bits))
        running = code.vector(operands[1])
        if mask is not None:
            running = code.select(mask, running, neutral)
        gathered = "add" if instruction.predicate == "sub" else instruction.predicate
        for distance in (1, 2, 4, 8, 16):
            moved = self._moved_up(running, neutral, distance)
            running = self._joined(gathered, running, moved)
        total = code.extract_element(running, i32(WIDTH - 1))
        place = code.scalar(operands[0])
        if self.is_alone(instruction):
            found = self._alone(instruction, place, total)
        else:
            found = self._locked(instruction, [place, total])
        before = self._moved_up(running, neutral, 1)
        return code.varying(self._joined(instruction.predicate, code.splat(found), before))

    def _moved_up(self, source: Operand, neutral: Operand, distance: int) -> Operand:
        """What the lane `distance` below has; the lowest lanes get the neutral number."""
        places = [lane - distance if lane >= distance else WIDTH for lane in range(WIDTH)]
        return self._code.shuffle(source, neutral, places)

    def _joined(self, operation: str, first: Operand, second: Operand) -> Operand:
        code = self._code
        if operation in _INTRINSICS:
            name = f"llvm.{_INTRINSICS[operation]}.{mangled(first.type)}"
            return code.declared_call(first.type, name, [first, second])
        return code.binary(operation, first, second)

    @staticmethod
    def are_together(instruction: Instruction, operands: list[Value]) -> bool:
        """Whether `together` can do it. Floats are not: their sum depends on the order."""
        known = instruction.predicate in _UPDATES and instruction.type.is_integer
        return known and operands[0].facts.is_uniform

    def update(
        self,
        instruction: Instruction,
        operands: list[Value],
        steps: Steps | None,
        mask: Operand | None,
    ) -> Value | None:
        """An `atomicrmw` on threadgroup memory: no other thread accesses it meanwhile."""
        given = operands[1]

        def each(taken: list[Operand]) -> Operand:
            place = taken[0] if steps is None else self._stepped(steps, taken[0], taken[1])
            return self._alone(instruction, place, taken[-1])

        taken = [operands[0]] if steps is None else [steps.base, steps.index]
        if mask is None:
            return self._serial.unrolled(instruction.type, [*taken, given], each)
        return self._serial.run(instruction.type, [*taken, given], mask, each)

    def in_any_order(self, updates: list[Update]) -> None:
        """Updates with integers, all with one operation: nobody can tell which came first."""
        indices = [update.steps.index for update in updates]
        vectors = [self._code.vector(index) for index in indices]
        whole = _whole(indices)
        if whole is not None:
            vectors, owners = [whole[0]], [whole[1]]
        else:
            owners = [[(number, lane) for lane in range(WIDTH)] for number in range(len(indices))]
        takers = [self._serial.taker_of_lanes(update.given) for update in updates]
        for elements, part in zip(list(map(self._serial.elements, vectors)), owners, strict=True):
            for (number, lane), index in zip(part, elements, strict=True):
                steps = updates[number].steps
                place = self._stepped(steps, self._code.scalar(steps.base), index)
                self._alone(updates[number].instruction, place, takers[number](lane))

    def is_free(self, instruction: Instruction) -> bool:
        """Whether `in_any_order` can do it, if its result is not used."""
        is_update = instruction.opcode == "atomicrmw" and instruction.predicate in _UPDATES
        return is_update and instruction.type.is_integer and self.is_alone(instruction)

    def _stepped(self, steps: Steps, base: Operand, index: Operand) -> Operand:
        code = self._code
        if steps.widening:
            index = code.cast(steps.widening, index, I64)
        return code.gep(array(steps.size, I8), base, index)

    def is_alone(self, instruction: Instruction) -> bool:
        known = instruction.predicate in _UPDATES or instruction.predicate == "xchg"
        return known and instruction.operands[0].text in self._in_threadgroup

    def _locked(self, instruction: Instruction, given: list[Operand]) -> Operand:
        """The same instruction with one lane's operands."""
        code = self._code
        parts = Parts(operands=tuple(given), metadata={})
        if instruction.result is None:
            code.made.append(instruction.changed(parts))
            return given[0]
        code.made.append(instruction.changed(parts, "%" + code.fresh("v")))
        return code.made[-1].operand()

    def _alone(self, instruction: Instruction, place: Operand, given: Operand) -> Operand:
        """An update as a read, an operation and a write."""
        code, operation, align = self._code, instruction.predicate, instruction.align
        before = code.load(given.type, place, align)
        after = given
        if operation in _PLAIN:
            after = code.binary(operation, before, given)
        elif operation in _COMPARED:
            after = code.select(code.icmp(_COMPARED[operation], before, given), before, given)
        code.store(after, place, align)
        return before


def _whole(indices: list[Value]) -> tuple[Operand, list[tuple[int, int]]] | None:
    """The vector that indices were picked from, and of each of its elements the index and lane.

    None where it has others, or where they come from several.
    """
    picked = [index.picked for index in indices if index.picked is not None]
    if len(picked) < len(indices) or len({each.whole.text for each in picked}) > 1:
        return None
    owners = {
        place: (number, lane)
        for number, each in enumerate(picked)
        for lane, place in enumerate(each.places)
    }
    whole = picked[0].whole
    assert isinstance(whole.type, Vector)
    if len(owners) < len(indices) * WIDTH or len(owners) < whole.type.count:
        return None
    return whole, [owners[place] for place in range(whole.type.count)]


def _neutral(operation: str, bits: int) -> int:
    """The number that changes nothing."""
    if operation in ("and", "umin"):
        return -1
    return {"max": -(1 << bits - 1), "min": (1 << bits - 1) - 1}.get(operation, 0)
