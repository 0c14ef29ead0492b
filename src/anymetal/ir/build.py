"""Makes instructions: `Builder` has a method for each, which gives the result as an operand.

build = Builder(function.fresh)
place = build.offset(pointer, 8)
build.store(build.add(build.load(I32, place, align=4), i32(1)), place, align=4)
block.insert_before(call, build.made)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from anymetal.ir.grammar import Parts
from anymetal.ir.instruction import Instruction
from anymetal.ir.operand import Operand, i64
from anymetal.ir.signature import quoted
from anymetal.ir.types import (
    I8,
    PTR,
    VOID,
    Type,
    Vector,
    boolean_like,
    vector,
)

Names = Callable[[str], str]


class Builder:
    """Instructions one behind the other, in `made`.

    `fresh` gives a new name for a stem (Function.fresh); every method that has a result takes the
    whole name instead as `name`. `metadata` is attached to each instruction.
    """

    def __init__(
        self,
        fresh: Names,
        *,
        stem: str = "am",
        metadata: Mapping[str, str] | None = None,
        into: list[Instruction] | None = None,
    ) -> None:
        self.made: list[Instruction] = into if into is not None else []
        self._fresh = fresh
        self._stem = stem
        self._metadata = dict(metadata or {})

    def append(self, opcode: str, result: str | None, parts: Parts) -> Instruction:
        if self._metadata:
            parts["metadata"] = self._metadata | parts.get("metadata", {})
        instruction = Instruction.of(opcode, result, parts)
        self.made.append(instruction)
        return instruction

    def value(self, opcode: str, kind: Type, name: str, parts: Parts) -> Operand:
        """An instruction with a result; `name` empty: a fresh one."""
        name = name or self._fresh(self._stem)
        parts["type"] = kind
        self.append(opcode, name, parts)
        return Operand(kind, name)

    # ---- arithmetic --------------------------------------------------------------------------

    def binary(
        self,
        opcode: str,
        left: Operand,
        right: Operand,
        flags: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        parts = Parts(operands=(left, right), flags=tuple(flags))
        return self.value(opcode, left.type, name, parts)

    def add(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("add", left, right, name=name)

    def sub(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("sub", left, right, name=name)

    def mul(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("mul", left, right, name=name)

    def and_(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("and", left, right, name=name)

    def or_(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("or", left, right, name=name)

    def xor(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("xor", left, right, name=name)

    def shl(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("shl", left, right, name=name)

    def lshr(self, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.binary("lshr", left, right, name=name)

    def unary(
        self, opcode: str, operand: Operand, flags: Sequence[str] = (), name: str = ""
    ) -> Operand:
        """fneg or freeze."""
        parts = Parts(operands=(operand,), flags=tuple(flags))
        return self.value(opcode, operand.type, name, parts)

    def cast(
        self, opcode: str, source: Operand, to: Type, flags: Sequence[str] = (), name: str = ""
    ) -> Operand:
        return self.value(opcode, to, name, Parts(operands=(source,), flags=tuple(flags)))

    def compare(
        self,
        opcode: str,
        predicate: str,
        left: Operand,
        right: Operand,
        flags: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        parts = Parts(operands=(left, right), predicate=predicate, flags=tuple(flags))
        return self.value(opcode, boolean_like(left.type), name, parts)

    def icmp(self, predicate: str, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.compare("icmp", predicate, left, right, name=name)

    def fcmp(self, predicate: str, left: Operand, right: Operand, name: str = "") -> Operand:
        return self.compare("fcmp", predicate, left, right, name=name)

    def select(
        self,
        condition: Operand,
        yes: Operand,
        no: Operand,
        flags: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        parts = Parts(operands=(condition, yes, no), flags=tuple(flags))
        return self.value("select", yes.type, name, parts)

    # ---- memory ------------------------------------------------------------------------------

    def alloca(self, element: Type, align: int = 0, name: str = "") -> Operand:
        return self.value("alloca", PTR, name, Parts(element=element, align=align))

    def load(
        self,
        kind: Type,
        pointer: Operand,
        align: int = 0,
        *,
        ordering: str = "",
        is_volatile: bool = False,
        metadata: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Operand:
        parts = Parts(
            operands=(pointer,),
            align=align,
            ordering=ordering,
            is_volatile=is_volatile,
            metadata=dict(metadata or {}),
        )
        return self.value("load", kind, name, parts)

    def store(
        self,
        value: Operand,
        pointer: Operand,
        align: int = 0,
        *,
        ordering: str = "",
        is_volatile: bool = False,
        metadata: dict[str, str] | None = None,
    ) -> None:
        parts = Parts(
            operands=(value, pointer),
            align=align,
            ordering=ordering,
            is_volatile=is_volatile,
            metadata=metadata or {},
        )
        self.append("store", None, parts)

    def gep(
        self,
        element: Type,
        pointer: Operand,
        *indices: Operand,
        flags: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        counts = [o.type.count for o in (pointer, *indices) if isinstance(o.type, Vector)]
        kind = vector(counts[0], PTR) if counts else pointer.type
        parts = Parts(element=element, operands=(pointer, *indices), flags=tuple(flags))
        return self.value("getelementptr", kind, name, parts)

    def offset(self, pointer: Operand, distance: int, name: str = "") -> Operand:
        """The place some bytes behind a pointer."""
        return self.gep(I8, pointer, i64(distance), name=name)

    def fence(self, ordering: str) -> None:
        self.append("fence", None, Parts(ordering=ordering))

    # ---- vectors and structures --------------------------------------------------------------

    def extract_element(self, source: Operand, index: Operand, name: str = "") -> Operand:
        parts = Parts(operands=(source, index))
        return self.value("extractelement", source.type.scalar, name, parts)

    def insert_element(
        self, into: Operand, element: Operand, index: Operand, name: str = ""
    ) -> Operand:
        parts = Parts(operands=(into, element, index))
        return self.value("insertelement", into.type, name, parts)

    def shuffle(
        self, first: Operand, second: Operand, places: Iterable[int], name: str = ""
    ) -> Operand:
        numbers = tuple(places)
        kind = vector(len(numbers), first.type.scalar)
        parts = Parts(operands=(first, second), numbers=numbers)
        return self.value("shufflevector", kind, name, parts)

    def extract_value(self, kind: Type, source: Operand, number: int, name: str = "") -> Operand:
        parts = Parts(operands=(source,), numbers=(number,))
        return self.value("extractvalue", kind, name, parts)

    def insert_value(self, into: Operand, part: Operand, number: int, name: str = "") -> Operand:
        parts = Parts(operands=(into, part), numbers=(number,))
        return self.value("insertvalue", into.type, name, parts)

    # ---- control flow ------------------------------------------------------------------------

    def call(
        self,
        kind: Type,
        callee: str,
        arguments: Sequence[Operand] = (),
        *,
        attributes: Sequence[tuple[str, ...]] = (),
        flags: Sequence[str] = (),
        convention: str = "",
        function_type: str = "",
        call_attributes: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        """A call of a function by its name. Where `kind` is VOID the operand means nothing."""
        parts = Parts(
            target=f"@{quoted(callee)}",
            operands=tuple(arguments),
            attributes=tuple(attributes),
            flags=tuple(flags),
            convention=convention,
            function_type=function_type,
            call_attributes=tuple(call_attributes),
        )
        if kind is VOID:
            self.append("call", None, parts)
            return Operand(VOID, "")
        return self.value("call", kind, name, parts)

    def phi(
        self,
        kind: Type,
        incoming: Sequence[tuple[Operand, str]],
        flags: Sequence[str] = (),
        name: str = "",
    ) -> Operand:
        operands, labels = zip(*incoming, strict=True) if incoming else ((), ())
        parts = Parts(operands=tuple(operands), labels=tuple(labels), flags=tuple(flags))
        return self.value("phi", kind, name, parts)

    def jump(self, label: str) -> None:
        self.append("br", None, Parts(labels=(label,)))

    def branch(self, condition: Operand, yes: str, no: str) -> None:
        self.append("br", None, Parts(operands=(condition,), labels=(yes, no)))

    def switch(self, value: Operand, default: str, cases: Mapping[int, str]) -> None:
        constants = [Operand(value.type, str(number)) for number in cases]
        parts = Parts(operands=(value, *constants), labels=(default, *cases.values()))
        self.append("switch", None, parts)

    def ret(self, value: Operand | None = None) -> None:
        self.append("ret", None, Parts(operands=(value,) if value else ()))

    def unreachable(self) -> None:
        self.append("unreachable", None, Parts())
