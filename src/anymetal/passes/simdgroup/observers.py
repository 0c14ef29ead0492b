"""Writes out what `passes/count/observe.py` marked: counters of blocks, and how lanes touch memory.

An access whose addresses follow a pattern that is known now costs a few additions. Others go to
`am_observed` (engines/cpu/observed.cpp), which looks at the 32 addresses.
"""

from __future__ import annotations

from anymetal.ir import I32, I64, PTR, VOID, Instruction, Operand, constant, i32, i64, vector
from anymetal.passes.count.observe import (
    ATOMIC,
    BLOCK,
    BLOCK_NUMBERS,
    BLOCKS,
    BUFFER_SHIFT,
    BY_BANKS,
    SITE_NUMBERS,
    SITES,
    STARTS,
)
from anymetal.passes.simdgroup.facts import WIDTH, Lanes
from anymetal.passes.simdgroup.values import Code, Value

OBSERVED, TOUCHED = "am_observed", "am_touched"
LINE = 128
BANKS, WORD = 32, 4
# Places in a site's record: what was moved (lines or cycles), the least, the largest of one
# access, how often lanes were a fixed distance apart, that distance, and of atomics the most lanes
# that wanted one address.
MOVED, LEAST, WORST, REGULAR, STRIDE, CONTENDED = range(6)
_NUMBER = 8


class Observers:
    """Writes the counting of one kernel."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._addresses: Operand | None = None

    def call(self, instruction: Instruction, operands: list[Value], mask: Operand | None) -> None:
        number, *sizes = (operand.facts.base or 0 for operand in operands)
        if instruction.callee == BLOCK:
            self._block(number, mask)
        else:
            self._access(number, sizes[0], sizes[1], operands[3], mask)

    def _block(self, number: int, mask: Operand | None) -> None:
        code = self._code
        place = self._place(BLOCKS, number * BLOCK_NUMBERS)
        self._add(place, 0, i64(1))
        lanes = i64(WIDTH)
        if mask is not None:
            counted = code.declared_call(I32, "llvm.ctpop.i32", [code.bits(mask)])
            lanes = code.cast("zext", counted, I64)
        self._add(place, 1, lanes)

    def _access(self, site: int, size: int, how: int, address: Value, mask: Operand | None) -> None:
        offsets = address.facts.offsets
        known = offsets is not None and address.facts.sure and address.condition is None
        known = known and not how & ATOMIC
        place = self._place(SITES, site * SITE_NUMBERS)
        buffer = how >> BUFFER_SHIFT
        if known and address.facts.is_uniform:
            moved = i64(1) if how & BY_BANKS else self._lines(address, 0, size, buffer)
            self._quick(place, moved, 1)
        elif known and offsets is not None and mask is None and how & BY_BANKS:
            cycles, least = bank_cycles(offsets, size)
            self._quick(place, i64(cycles), least)
            worst = self._code.moved(place, WORST * _NUMBER)
            largest = [self._code.load(I64, worst, _NUMBER), i64(cycles)]
            found = self._code.declared_call(I64, "llvm.umax.i64", largest)
            self._code.store(found, worst, _NUMBER)
        elif known and offsets is not None and mask is None and _is_dense(offsets, size):
            moved = self._lines(address, offsets[0], size * WIDTH, buffer)
            self._quick(place, moved, -(-size * WIDTH // LINE))
        else:
            self._look(place, size, how, address, mask)

    def _quick(self, place: Operand, moved: Operand, least: int) -> None:
        self._add(place, MOVED, moved)
        self._add(place, LEAST, i64(least))

    def _look(
        self, place: Operand, size: int, how: int, address: Value, mask: Operand | None
    ) -> None:
        code = self._code
        if self._addresses is None:
            self._addresses = code.variable(vector(WIDTH, PTR), align=64)
        code.store(code.vector(address), self._addresses)
        active = code.bits(mask) if mask is not None else i32(-1)
        start = self._start(how >> BUFFER_SHIFT)
        arguments = [place, self._addresses, active, i32(size), i32(how), start]
        code.declared_call(VOID, OBSERVED, arguments)

    def _start(self, buffer: int) -> Operand:
        """Where a buffer begins in a line."""
        place = self._code.moved(Operand(PTR, f"@{STARTS}"), buffer * _NUMBER)
        return self._code.load(I64, place, _NUMBER)

    def _lines(self, address: Value, distance: int, size: int, buffer: int) -> Operand:
        """How many lines a stretch of memory touches; they are noted."""
        code = self._code
        first = code.moved(code.cast("ptrtoint", address.start, I64), distance)
        first = code.sub(first, self._start(buffer))
        last = code.add(first, i64(max(size, 1) - 1))
        shift = constant(I64, LINE.bit_length() - 1)
        first, last = (code.lshr(end, shift) for end in (first, last))
        code.declared_call(VOID, TOUCHED, [first, last])
        return code.add(code.sub(last, first), i64(1))

    def _place(self, name: str, number: int) -> Operand:
        return self._code.moved(Operand(PTR, f"@{name}"), number * _NUMBER)

    def _add(self, place: Operand, number: int, amount: Operand) -> None:
        code = self._code
        there = code.moved(place, number * _NUMBER)
        code.store(code.add(code.load(I64, there, _NUMBER), amount), there, _NUMBER)


def bank_cycles(offsets: Lanes, size: int) -> tuple[int, int]:
    """Cycles that an access of all lanes takes, and the least for as many words.

    A bank gives one word of 4 bytes in a cycle, to all lanes that want it. Where the first address
    is does not matter: it moves all lanes to other banks alike.
    """
    words = {(offset + byte) // WORD for offset in offsets for byte in range(0, size, WORD)}
    banks = [0] * BANKS
    for word in words:
        banks[word % BANKS] += 1
    return max(banks, default=1) or 1, max(1, -(-len(words) // BANKS))


def _is_dense(offsets: Lanes, size: int) -> bool:
    return all(offset == offsets[0] + lane * size for lane, offset in enumerate(offsets))
