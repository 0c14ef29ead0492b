"""What a simdgroup reads or writes in a loop, the next one's part of it is fetched along.

The simdgroups of a threadgroup run one after the other. In `for (i = index; i < n; i += size)` each
of them takes a few lines of every kilobyte of a row, which no processor foresees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anymetal.ir import I8, VOID, Instruction, Integer, Operand, i32
from anymetal.ir.flow import Loop
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.values import Code

_LINE = 64  # bytes
_FOR_LONG, _FOR_NEXT, _OF_DATA = i32(3), i32(2), i32(1)


def blocks_in_rows(kernel: Kernel) -> dict[str, Operand | Instruction | None]:
    """Blocks of the innermost loops that go on by a number which is not known when compiled: the
    size of the threadgroup, most likely. Others, over the tiles of a matrix say, gain nothing.
    With each, where the loop ends, which is the length of the row."""
    loops = kernel.flow.loops
    return {
        label: _end(kernel, loop)
        for loop in loops
        if not any(other.blocks < loop.blocks for other in loops) and _is_over_a_row(kernel, loop)
        for label in loop.blocks
    }


def _end(kernel: Kernel, loop: Loop) -> Operand | Instruction | None:
    """What the index of a loop is compared with: made outside, or loaded from there in each turn,
    as LLVM leaves it where stores might change it."""
    for label in loop.blocks:
        branch = kernel.blocks[label][-1]
        if len(branch.labels) < 2 or loop.blocks.issuperset(branch.labels):
            continue
        _, test = kernel.definitions.get(branch.operands[0].text, ("", None))
        if test is None or test.opcode != "icmp" or not isinstance(test.operands[0].type, Integer):
            return None
        ends = [_made_outside(kernel, loop, operand) for operand in test.operands]
        found = [end for end in ends if end is not None]
        return found[0] if len(found) == 1 else None
    return None


def _made_outside(kernel: Kernel, loop: Loop, value: Operand) -> Operand | Instruction | None:
    label, made = kernel.definitions.get(value.text, ("", None))
    if made is None or label not in loop.blocks:
        return value
    if made.opcode != "load" or made.is_atomic or made.is_volatile:
        return None
    place, _ = kernel.definitions.get(made.pointer.text, ("", None))
    return made if place not in loop.blocks else None


def _is_over_a_row(kernel: Kernel, loop: Loop) -> bool:
    return any(
        _goes_on(kernel, phi, value)
        for phi in kernel.phis(loop.header)
        for value, label in phi.incoming()
        if label in loop.blocks
    )


def _goes_on(kernel: Kernel, index: Instruction, value: Operand) -> bool:
    _, step = kernel.definitions.get(value.text, ("", None))
    if step is None or step.opcode != "add":
        return False
    others = [operand for operand in step.operands if operand.text != index.result]
    return len(others) == 1 and others[0].is_name


@dataclass(frozen=True)
class Reads:
    """Loads in loops over rows, by what may be fetched along with them.

    `first`: of what no loop before has read: the next simdgroup's part. `last`: of what loops
    before have read, and none behind it will: the next row, which the next threadgroup takes.
    """

    first: frozenset[int]
    last: frozenset[int]


def reads_of_rows(
    kernel: Kernel, rows: Iterable[str], buffer_of: Callable[[Operand], str | None]
) -> Reads:
    """`rows`: blocks of loops over rows. `buffer_of`: which memory an address is in, if known."""
    first: set[int] = set()
    latest: dict[str, list[int]] = {}
    again: set[str] = set()
    labels = set(rows)
    loops = [loop for loop in kernel.flow.loops if loop.blocks <= labels]
    for loop in sorted(loops, key=lambda loop: kernel.flow.rank[loop.header]):
        found: dict[str, list[int]] = {}
        for instruction in (i for label in loop.blocks for i in kernel.blocks[label]):
            buffer = buffer_of(instruction.pointer) if instruction.opcode == "load" else ""
            if buffer is None:
                first.add(id(instruction))
            elif buffer:
                found.setdefault(buffer, []).append(id(instruction))
        again |= found.keys() & latest.keys()
        first.update(*(ids for buffer, ids in found.items() if buffer not in latest))
        latest |= found
    return Reads(frozenset(first), frozenset(n for buffer in again for n in latest[buffer]))


def fetch_row(code: Code, place: Operand, size: int, distance: Operand) -> None:
    """What an access of `size` bytes would take in the next row, some bytes further on."""
    behind = code.gep(I8, place, distance)
    for start in range(0, size, _LINE):
        arguments = [code.moved(behind, start), i32(0), _FOR_NEXT, _OF_DATA]
        code.declared_call(VOID, "llvm.prefetch.p0", arguments)


def fetch_next(code: Code, place: Operand, size: int, *, to_write: bool) -> None:
    """Behind an access of `size` bytes at a place, as many more; they need not exist."""
    for distance in range(size, 2 * size, _LINE):
        arguments = [code.moved(place, distance), i32(int(to_write)), _FOR_LONG, _OF_DATA]
        code.declared_call(VOID, "llvm.prefetch.p0", arguments)
