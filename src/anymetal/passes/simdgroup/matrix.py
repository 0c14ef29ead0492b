"""Products of 8x8 matrices that lie over the lanes of a simdgroup, two elements a lane.

They stay in that order: half of the lanes hold four rows, of which the first elements are every
other column. Each step takes a column of the left matrix and a row of the right one, every element
of them where the lanes' own rows and columns are. The order of the eight steps, and rounding at the
end only, are those of anymetal/matrix8x8.h.
"""

from __future__ import annotations

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
from anymetal.passes.simdgroup.outlined import IN_REGISTERS
from anymetal.passes.simdgroup.values import Code, Value, vector_type

SIDE = 8
HALF = WIDTH // 2  # lanes, which hold four rows
WIDE, HALF_TYPE = vector_type(FLOAT), vector(HALF, FLOAT)


def _row(lane: int) -> int:
    return (lane // 4 & 4) + lane // 2 % 4


def _column(lane: int) -> int:
    return (lane // 4 & 2) * 2 + lane % 2 * 2


# The lane among a half's that holds a row of it and a column, or that column's right neighbour.
_LANES = {(_row(lane), _column(lane)): lane for lane in range(HALF)}

_NAME = "am.matrix.product"
FMA = Signature(f"llvm.fma.v{HALF}f32", HALF_TYPE, [Parameter(HALF_TYPE)] * 3)
_RESULT = structure(WIDE, WIDE)


class Matrices:
    """Writes matrix products; both elements of a lane are asked for, one after the other."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def element(self, part: int, kind: Type, operands: list[Value], mask: Operand | None) -> Value:
        """The first or second element of each lane of a * b + c."""
        code = self._code
        arguments = tuple(self.floats(operand, mask) for operand in operands)
        if arguments not in code.kept:
            code.kept[arguments] = self._product(arguments)
        return self.rounded(code.extract_value(WIDE, code.kept[arguments], part), kind)

    def rounded(self, element: Operand, kind: Type) -> Value:
        code = self._code
        if kind is not FLOAT:
            element = code.cast("fptrunc", element, vector_type(kind))
        return code.varying(element)

    def _product(self, arguments: tuple[Operand, ...]) -> Operand:
        code = self._code
        if _NAME not in code.functions:
            code.functions[_NAME] = _definition()
            code.declarations[FMA.name] = FMA
        return code.call(_RESULT, _NAME, arguments, convention=IN_REGISTERS)

    def floats(self, operand: Value, mask: Operand | None) -> Operand:
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
        if value.type is not WIDE:
            value = code.cast("fpext", value, WIDE)
        return value if mask is None else code.select(mask, value, zero(WIDE))


def _definition() -> Function:
    """The function that multiplies: six vectors of lanes' elements in, two out.

    Not inlined: LLVM would mix the steps of many products, and their sums do not all fit into
    registers (1024^3 with 16 sums a simdgroup: 134 ms inlined).
    """
    parameters = [Parameter(WIDE, f"%{letter}{part}") for letter in "abc" for part in range(2)]
    signature = Signature(
        _NAME,
        _RESULT,
        parameters,
        words=("internal", IN_REGISTERS),
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
        left, right, sums = ([self._halves(part) for part in given[i : i + 2]] for i in (0, 2, 4))
        for k in range(SIDE):
            columns = [self._column(left[k % 2][half], k) for half in range(2)]
            for part in range(2):
                row = self._row(right[part][k // 4], k)
                for half, column in enumerate(columns):
                    factors = [column, row, sums[part][half]]
                    sums[part][half] = self.call(HALF_TYPE, FMA.name, factors)
        first, second = (self.shuffle(low, high, range(WIDTH)) for low, high in sums)
        return first, second

    def _halves(self, lanes: Operand) -> list[Operand]:
        starts = (0, HALF)
        return [self.shuffle(lanes, poison(WIDE), range(start, start + HALF)) for start in starts]

    def _column(self, half: Operand, k: int) -> Operand:
        """Column `k` of four rows, each of its elements in all lanes of its row."""
        places = [_LANES[_row(lane), k - k % 2] for lane in range(HALF)]
        return self.shuffle(half, poison(HALF_TYPE), places)

    def _row(self, half: Operand, k: int) -> Operand:
        return self.shuffle(half, poison(HALF_TYPE), row_places(k))


def row_places(k: int) -> list[int]:
    """Where in a half row `k` is, every other element of it, in the lanes of each row."""
    return [_LANES[k % 4, _column(lane)] for lane in range(HALF)]
