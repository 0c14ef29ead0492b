"""Atomic accesses: lane after lane, and without locks where no other thread can be at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anymetal.passes.operands import Parsed
from anymetal.passes.simdgroup.facts import WIDTH, Facts, width_of
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.memory import mangled
from anymetal.passes.simdgroup.rules import END_OF_GROUP, THREADGROUP_MEMORY
from anymetal.passes.simdgroup.serial import Serial
from anymetal.passes.simdgroup.values import MASK, Code, Value, vector_type

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
    for name, (_, parsed) in kernel.definitions.items():
        if parsed.kind != "ptr":
            continue
        if parsed.opcode == "load":
            tag = facts[parsed.operands[0].text].tag if parsed.operands[0].is_name else None
            place, offset = tag or ("", 0)
            if place == "group" and THREADGROUP_MEMORY <= offset < END_OF_GROUP:
                inside.add(name)
        elif parsed.opcode in _STEPS:
            steps[name] = [operand.text for operand in parsed.operands if operand.kind == "ptr"]
    # Loops lead round in circles: assume the best, and take back what does not hold.
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


class Atomics:
    """Writes atomic loads, stores, exchanges and updates."""

    def __init__(self, code: Code, serial: Serial, in_threadgroup: set[str]) -> None:
        self._code = code
        self._serial = serial
        self._in_threadgroup = in_threadgroup

    def access(self, parsed: Parsed, operands: list[Value], mask: str | None) -> Value | None:
        """In the order of the lanes, as the other engine does it."""

        def each(texts: list[str]) -> str:
            return self._locked(parsed, operands, texts)

        return self._serial.run(parsed.kind, operands, mask, each)

    def together(self, parsed: Parsed, operands: list[Value], mask: str | None) -> Value:
        """All lanes at one place, with integers: one update by what all of them bring.

        Each lane gets what it would have found had they come one after the other.
        """
        code, kind, wide = self._code, parsed.kind, vector_type(parsed.kind)
        neutral = code.splat(kind, str(_neutral(parsed.predicate, kind)))
        running = code.vector(operands[1])
        if mask is not None:
            running = code.op(f"select {MASK} {mask}, {wide} {running}, {wide} {neutral}")
        gathered = "add" if parsed.predicate == "sub" else parsed.predicate
        for distance in (1, 2, 4, 8, 16):
            moved = self._moved_up(kind, running, neutral, distance)
            running = self._joined(gathered, wide, running, moved)
        total = code.op(f"extractelement {wide} {running}, i32 {WIDTH - 1}")
        place = code.scalar(operands[0])
        if self.is_alone(parsed):
            found = self._alone(parsed, kind, place, total)
        else:
            found = self._locked(parsed, operands, [place, total])
        before = self._moved_up(kind, running, neutral, 1)
        result = self._joined(parsed.predicate, wide, code.splat(kind, found), before)
        return code.varying(kind, result)

    def _moved_up(self, kind: str, text: str, neutral: str, distance: int) -> str:
        """What the lane `distance` below has; the lowest lanes get the neutral number."""
        places = [lane - distance if lane >= distance else WIDTH for lane in range(WIDTH)]
        return self._code.shuffled(kind, WIDTH, text, neutral, places)

    def _joined(self, operation: str, wide: str, first: str, second: str) -> str:
        code = self._code
        if operation in _INTRINSICS:
            name = f"llvm.{_INTRINSICS[operation]}.{mangled(wide)}"
            return code.call(wide, name, [(wide, first), (wide, second)])
        return code.op(f"{operation} {wide} {first}, {second}")

    @staticmethod
    def are_together(parsed: Parsed, operands: list[Value]) -> bool:
        """Whether `together` can do it. Floats are not: their sum depends on the order."""
        integers = width_of(parsed.kind) is not None
        return parsed.predicate in _UPDATES and integers and operands[0].facts.is_uniform

    def update(
        self, parsed: Parsed, operands: list[Value], steps: Steps | None, mask: str | None
    ) -> Value | None:
        """Of threadgroup memory, by `atomicrmw`: nobody else is there."""
        given = operands[1]

        def each(texts: list[str]) -> str:
            place = texts[0] if steps is None else self._stepped(steps, texts[0], texts[1])
            return self._alone(parsed, given.kind, place, texts[-1])

        taken = [operands[0]] if steps is None else [steps.base, steps.index]
        if mask is None:
            return self._serial.unrolled(parsed.kind, [*taken, given], each)
        return self._serial.run(parsed.kind, [*taken, given], mask, each)

    def _stepped(self, steps: Steps, base: str, index: str) -> str:
        code = self._code
        if steps.widening:
            index = code.op(f"{steps.widening} {steps.index.kind} {index} to i64")
        return code.op(f"getelementptr [{steps.size} x i8], ptr {base}, i64 {index}")

    def is_alone(self, parsed: Parsed) -> bool:
        known = parsed.predicate in _UPDATES or parsed.predicate == "xchg"
        return known and parsed.operands[0].text in self._in_threadgroup

    def _locked(self, parsed: Parsed, operands: list[Value], texts: list[str]) -> str:
        code = self._code
        tail = f" {parsed.ordering}, align {parsed.align}"
        volatile = " volatile" if parsed.is_volatile else ""
        typed = [f"{o.kind} {text}" for o, text in zip(operands, texts, strict=True)]
        if parsed.opcode == "load":
            return code.op(f"load atomic{volatile} {parsed.kind}, {typed[0]}{tail}")
        if parsed.opcode == "store":
            code.line(f"store atomic{volatile} {typed[0]}, {typed[1]}{tail}")
            return ""
        if parsed.opcode == "atomicrmw":
            head = f"atomicrmw{volatile} {parsed.predicate}"
        else:
            head = f"cmpxchg{' weak' if parsed.flags else ''}{volatile}"
        return code.op(f"{head} {', '.join(typed)}{tail}")

    def _alone(self, parsed: Parsed, kind: str, place: str, given: str) -> str:
        """An update as a read, an operation and a write."""
        code, operation = self._code, parsed.predicate
        before = code.op(f"load {kind}, ptr {place}, align {parsed.align}")
        after = given
        if operation in _PLAIN:
            after = code.op(f"{operation} {kind} {before}, {given}")
        elif operation in _COMPARED:
            kept = code.op(f"icmp {_COMPARED[operation]} {kind} {before}, {given}")
            after = code.op(f"select i1 {kept}, {kind} {before}, {kind} {given}")
        code.line(f"store {kind} {after}, ptr {place}, align {parsed.align}")
        return before


def _neutral(operation: str, kind: str) -> int:
    """The number that changes nothing."""
    bits = width_of(kind)
    assert bits is not None
    if operation in ("and", "umin"):
        return -1
    return {"max": -(1 << bits - 1), "min": (1 << bits - 1) - 1}.get(operation, 0)
