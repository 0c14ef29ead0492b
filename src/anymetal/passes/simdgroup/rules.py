"""The facts of each instruction's result, types and the machine's layout included.

Divergence analysis and code generation both use these rules, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from anymetal.ir import (
    BINARY,
    CASTS,
    I1,
    I32,
    PTR,
    Array,
    Instruction,
    Integer,
    Layout,
    Operand,
    Vector,
    i64,
)
from anymetal.machine.layout import Group, Simdgroup, Thread
from anymetal.machine.table import offset_of, size_of
from anymetal.nouns import MAX_GROUP_SIZE
from anymetal.passes.lower.machine import MATRIX_PARTS
from anymetal.passes.simdgroup import transfer
from anymetal.passes.simdgroup.facts import (
    LANE_NUMBERS,
    PRIVATE,
    UNIFORM,
    VARYING,
    WIDTH,
    ZERO,
    Facts,
    Tag,
    constant,
    known,
    width_of,
)
from anymetal.passes.simdgroup.graph import NotVectorisable

LANE, POSITION, INDEX, SIMD, GROUP = (
    offset_of(Thread, name) for name in ("lane", "position", "index", "simd", "group")
)
ACTIVE, LEADER = offset_of(Simdgroup, "active"), offset_of(Simdgroup, "leader")
GROUP_POSITION, GROUP_SIZE, NOMINAL_SIZE = (
    offset_of(Group, name) for name in ("position", "size", "nominal_size")
)
# Pointers to threadgroup memory: the kernel's own arrays, then one a binding.
THREADGROUP_MEMORY = offset_of(Group, "threadgroup_memory")
END_OF_GROUP = offset_of(Group, "dynamic_memory") + size_of(Group, "dynamic_memory")

Look = Callable[[Operand], Facts]


@dataclass(frozen=True)
class GroupShape:
    """How the lanes of a simdgroup lie in the threadgroup.

    `row` lanes follow one another in x, beginning at a multiple of `row`; 0: nothing is known.
    `complete`: every simdgroup has all its threads.
    """

    row: int = WIDTH
    complete: bool = False

    def position(self, axis: int) -> Facts:
        tag = ("position", axis)
        limit = MAX_GROUP_SIZE
        if self.row == 0:
            return replace(VARYING, tag=tag)
        if self.row == WIDTH:
            if axis == 0:
                return Facts(LANE_NUMBERS, divisor=WIDTH, limit=limit, tag=tag)
            return Facts(ZERO, limit=limit, tag=tag)
        if axis == 0:
            return known([lane % self.row for lane in range(WIDTH)])
        if axis == 1:
            rows = tuple(lane // self.row for lane in range(WIDTH))
            return Facts(rows, divisor=1, limit=limit, tag=tag)
        return Facts(ZERO, limit=limit, tag=tag)


def literal(operand: Operand) -> Facts:
    """Facts of an operand that is no named value."""
    number = operand.integer
    if number is not None and width_of(operand.type):
        return constant(number)
    return UNIFORM


class Rules:
    """Facts of results, for one kernel and one shape of its threadgroups."""

    def __init__(self, types: Layout, shape: GroupShape, private: dict[str, int]) -> None:
        self._types = types
        self._shape = shape
        # For each alloca, the bytes of the pieces that lie side by side; 0: whole copies.
        self._private = private

    def facts(self, instruction: Instruction, look: Look, *, all_active: bool = False) -> Facts:
        """`look` gives an operand's facts; phis are the analysis' own business."""
        opcode = instruction.opcode
        if opcode in BINARY:
            return transfer.binary(
                instruction, look(instruction.operands[0]), look(instruction.operands[1])
            )
        if opcode in CASTS:
            source = instruction.operands[0]
            return transfer.cast(instruction, look(source), source.type)
        if opcode == "icmp":
            return transfer.compare(
                instruction, look(instruction.operands[0]), look(instruction.operands[1])
            )
        if opcode == "select":
            condition, yes, no = (look(operand) for operand in instruction.operands)
            return transfer.select(condition, yes, no)
        if opcode == "getelementptr":
            return self._pointer(instruction, look)
        if opcode == "load":
            return self._loaded(instruction, look(instruction.operands[0]), all_active=all_active)
        if opcode == "alloca":
            return self._variable(instruction)
        if opcode == "freeze":
            return look(instruction.operands[0])
        if opcode == "call":
            return self._called(instruction, look)
        if opcode in ("atomicrmw", "cmpxchg"):
            return VARYING
        return transfer.combine(*(look(operand) for operand in instruction.operands))

    def _pointer(self, instruction: Instruction, look: Look) -> Facts:
        pointer = look(instruction.operands[0])
        if instruction.type is not PTR:
            return transfer.combine(*(look(operand) for operand in instruction.operands))
        for index, size in self.steps(instruction):
            pointer = self.step(pointer, look(index), size)
        return pointer

    def step(self, pointer: Facts, index: Facts, size: int) -> Facts:
        """A pointer moved; arrays of a thread lie spread over the lanes."""
        if pointer.tag is not None and pointer.tag[0] == PRIVATE:
            moved = transfer.step(replace(pointer, tag=None), index, self.stride(pointer, size))
            return replace(moved, tag=pointer.tag)
        return transfer.step(pointer, index, size)

    @staticmethod
    def stride(pointer: Facts, size: int) -> int:
        """Bytes from one element to the next where each lane has its own copy, or not."""
        private = pointer.tag is not None and pointer.tag[0] == PRIVATE
        return size * WIDTH if private else size

    def steps(self, instruction: Instruction) -> list[tuple[Operand, int]]:
        """The indices of a getelementptr, each with the bytes it counts."""
        kind = instruction.element
        assert kind is not None
        result: list[tuple[Operand, int]] = []
        for depth, index in enumerate(instruction.operands[1:]):
            if depth == 0:
                result.append((index, self._types.size(kind)))
                continue
            if isinstance(kind, Vector | Array):
                result.append((index, self._types.offset(kind, 1)))
                kind = kind.element
            else:
                number = int(index.text)
                result.append((i64(1), self._types.offset(kind, number)))
                kind = self._types.parts(kind)[number]
        return result

    def _loaded(self, instruction: Instruction, address: Facts, *, all_active: bool) -> Facts:
        if address.tag is not None and address.is_uniform:
            machine = self._machine_part(instruction, address.tag, all_active=all_active)
            if machine is not None:
                return machine
        if address.is_uniform and address.sure:
            return UNIFORM
        return VARYING

    def _machine_part(
        self, instruction: Instruction, tag: Tag, *, all_active: bool
    ) -> Facts | None:
        place, offset = tag
        if place == "self" and instruction.type is not (PTR if offset >= SIMD else I32):
            raise NotVectorisable(f"a read of {instruction.type} from a thread's description")
        if place == "self":
            if offset == LANE:
                return replace(known(LANE_NUMBERS), tag=("lane", 0))
            if offset == INDEX:
                return Facts(LANE_NUMBERS, divisor=WIDTH, limit=MAX_GROUP_SIZE)
            if POSITION <= offset < INDEX:
                return self._shape.position((offset - POSITION) // 4)
            parts = {SIMD: "simd", GROUP: "group"}
            return replace(UNIFORM, tag=(parts[offset], 0)) if offset in parts else None
        if place == "simd" and offset == LEADER:
            return replace(UNIFORM, tag=("leader", 0))
        if place == "simd" and offset == ACTIVE and all_active and instruction.type is I32:
            return constant(-1)
        if place == "group" and instruction.type is I32:
            return self._group_part(offset)
        return None

    @staticmethod
    def _group_part(offset: int) -> Facts | None:
        if GROUP_POSITION <= offset < GROUP_SIZE:
            return replace(UNIFORM, tag=("group_position", offset // 4))
        sizes = replace(UNIFORM, limit=MAX_GROUP_SIZE + 1)
        if GROUP_SIZE <= offset < GROUP_SIZE + 12:
            return sizes
        if NOMINAL_SIZE <= offset < NOMINAL_SIZE + 12:
            return replace(sizes, tag=("group_size", (offset - NOMINAL_SIZE) // 4))
        return None

    def _variable(self, instruction: Instruction) -> Facts:
        assert instruction.result is not None
        piece = self._private[instruction.result]
        if piece:
            return Facts(tuple(lane * piece for lane in range(WIDTH)), tag=(PRIVATE, piece))
        assert instruction.element is not None
        size = self._types.size(instruction.element)
        copy = -(-size // 16) * 16
        return Facts(tuple(lane * copy for lane in range(WIDTH)))

    def _called(self, instruction: Instruction, look: Look) -> Facts:
        callee = instruction.callee or ""
        if matrix_part(callee) is not None:
            return VARYING
        if is_bound(instruction):
            return transfer.bounded(instruction, *map(look, instruction.operands))
        if callee.startswith("llvm.") and not callee.startswith(MEMORY_INTRINSICS):
            return transfer.combine(*(look(operand) for operand in instruction.operands))
        return VARYING


def is_bound(instruction: Instruction) -> bool:
    """Whether an instruction is the lesser or the greater of two integers."""
    if instruction.opcode != "call" or not isinstance(instruction.type, Integer):
        return False
    return instruction.type is not I1 and (instruction.callee or "").startswith(transfer.BOUNDS)


def matrix_part(callee: str) -> int | None:
    """Which of a lane's two elements of a matrix product a call asks for."""
    for number, name in enumerate(MATRIX_PARTS):
        if name in callee:
            return number
    return None


MEMORY_INTRINSICS = ("llvm.memcpy", "llvm.memmove", "llvm.memset", "llvm.masked.")
