"""Products of 8x8 matrices that lie over the lanes of a simdgroup, two elements a lane.

Two rows of the result at a time, in one vector of 16: each step multiplies a column of the left
matrix, each element of it eight times, with a row of the right one, taken twice. The order of the
eight steps, and rounding at the end only, are those of anymetal/matrix8x8.h.
"""

from __future__ import annotations

import platform

from anymetal.ir import (
    FLOAT,
    Block,
    Builder,
    Function,
    Operand,
    Parameter,
    Signature,
    Type,
    poison,
    structure,
    vector,
    zero,
)
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import Code, Value, vector_type

SIDE = 8
ELEMENTS = SIDE * SIDE
PAIR = 2 * SIDE  # elements in two rows
_WIDE, _PAIR_TYPE = vector_type(FLOAT), vector(PAIR, FLOAT)


def _row(lane: int) -> int:
    return (lane // 4 & 4) + lane // 2 % 4


def _column(lane: int) -> int:
    return (lane // 4 & 2) * 2 + lane % 2 * 2


# Where each element of the matrix, in row order, stands: all first elements come before all second.
_SOURCES = {
    _row(lane) * SIDE + _column(lane) + part: part * WIDTH + lane
    for part in range(2)
    for lane in range(WIDTH)
}
_IN_ROW_ORDER = [_SOURCES[number] for number in range(ELEMENTS)]


_NAME = "am.matrix.product"
_FMA = Signature(f"llvm.fma.v{PAIR}f32", _PAIR_TYPE, [Parameter(_PAIR_TYPE)] * 3)
# On x86, vectors in registers, as many as there are; elsewhere the usual convention does that.
_CONVENTION = "x86_regcallcc" if platform.machine() in ("x86_64", "AMD64") else "ccc"
_RESULT = structure(_WIDE, _WIDE)


class Matrices:
    """Writes matrix products; both elements of a lane are asked for, one after the other."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def element(self, part: int, kind: Type, operands: list[Value], mask: Operand | None) -> Value:
        """The first or second element of each lane of a * b + c."""
        code = self._code
        arguments = tuple(self._floats(operand, mask) for operand in operands)
        if arguments not in code.kept:
            code.functions[_NAME] = _definition()
            code.declarations[_FMA.name] = _FMA
            code.kept[arguments] = code.call(_RESULT, _NAME, arguments, convention=_CONVENTION)
        result = code.extract_value(_WIDE, code.kept[arguments], part)
        if kind is not FLOAT:
            result = code.cast("fptrunc", result, vector_type(kind))
        return code.varying(result)

    def _floats(self, operand: Value, mask: Operand | None) -> Operand:
        """What lanes that are not there would have brought counts as zero."""
        code = self._code
        vector = code.vector(operand)
        if operand.type is FLOAT and mask is None:
            return vector
        if (vector, mask) not in code.kept:
            code.kept[vector, mask] = self._converted(vector, mask)
        return code.kept[vector, mask]

    def _converted(self, value: Operand, mask: Operand | None) -> Operand:
        code = self._code
        if value.type is not _WIDE:
            value = code.cast("fpext", value, _WIDE)
        return value if mask is None else code.select(mask, value, zero(_WIDE))


def _definition() -> Function:
    """The function that multiplies: six vectors of lanes' elements in, two out.

    Not inlined: LLVM would mix the steps of many products, and their sums do not all fit into
    registers (1024^3 with 16 sums a simdgroup: 134 ms inlined).
    """
    parameters = [Parameter(_WIDE, f"%{letter}{part}") for letter in "abc" for part in range(2)]
    signature = Signature(
        _NAME,
        _RESULT,
        parameters,
        words=("internal", _CONVENTION),
        attributes=("noinline", "nounwind", "memory(none)"),
    )
    function = Function(signature)
    product = _Product(function.fresh, stem="v")
    results = product.write([parameter.operand() for parameter in parameters])
    first = product.insert_value(poison(_RESULT), results[0], 0)
    product.ret(product.insert_value(first, results[1], 1))
    function.blocks.append(Block("entry", product.made))
    return function


class _Product(Builder):
    def write(self, given: list[Operand]) -> tuple[Operand, Operand]:
        left, right, start = (self._row_pairs(given[2 * i], given[2 * i + 1]) for i in range(3))
        rows_twice = [self._row_twice(right[k // 2], k % 2) for k in range(SIDE)]
        sums = []
        for pair in range(SIDE // 2):
            total = start[pair]
            for k in range(SIDE):
                column = self._picked(left[pair], [k] * SIDE + [SIDE + k] * SIDE)
                total = self.call(_PAIR_TYPE, _FMA.name, [column, rows_twice[k], total])
            sums.append(total)
        return self._lanes(sums, 0), self._lanes(sums, 1)

    def _row_pairs(self, first: Operand, second: Operand) -> list[Operand]:
        """A matrix as four vectors of two rows."""
        return [
            self.shuffle(first, second, _IN_ROW_ORDER[start : start + PAIR])
            for start in range(0, ELEMENTS, PAIR)
        ]

    def _row_twice(self, pair: Operand, which: int) -> Operand:
        row = [which * SIDE + column for column in range(SIDE)]
        return self._picked(pair, row * 2)

    def _picked(self, pair: Operand, places: list[int]) -> Operand:
        return self.shuffle(pair, poison(pair.type), places)

    def _lanes(self, pairs: list[Operand], part: int) -> Operand:
        """The first or the second elements, in lane order."""
        halves = [self.shuffle(pairs[i], pairs[i + 1], range(2 * PAIR)) for i in (0, 2)]
        places = [_row(lane) * SIDE + _column(lane) + part for lane in range(WIDTH)]
        return self.shuffle(halves[0], halves[1], places)
