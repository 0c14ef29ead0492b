"""Products of float matrices: fused multiply-adds in the documented order, on the plain cores.

A lane needs a row of the left matrix and two columns of the right one. Where both matrices lie in
threadgroup memory it reads them there, once for all products of the matrix; elsewhere the lanes
exchange their elements by shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anymetal.engines.cuda.matrices.places import Place, Places
from anymetal.ir import (
    FLOAT,
    I8,
    I32,
    I64,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    constant,
    i32,
    i64,
    poison,
    vector,
)

PRODUCT, PAIR = "am_product_float", "am_matrix_pair"
_THREAD = "llvm.nvvm.read.ptx.sreg.tid.x"
_SHUFFLE = "llvm.nvvm.shfl.sync.idx.f32"
_FMA = "llvm.fma.f32"
_PAIR_TYPE = vector(2, FLOAT)
_SIZE = 8  # rows and columns of a matrix
_BYTES = 4  # of a float
_WIDEST = 16

Elements = list[Operand]


def lower_float_products(module: Module, function: Function, *, as_tiles: bool) -> None:
    """Answers am_product_float and am_matrix_pair. `as_tiles`: lanes lie as the tensor cores want
    them (anymetal/machine.h)."""
    lowering = _Lowering(function, as_tiles)
    for block in function.blocks:
        if any(i.callee in (PRODUCT, PAIR) for i in block.instructions):
            lowering.rewrite(block)
    module.declare(_THREAD, I32)
    module.declare(_SHUFFLE, FLOAT, [I32, FLOAT, I32, I32], ("convergent", "nounwind"))
    module.declare(_FMA, FLOAT, [FLOAT] * 3)


@dataclass(frozen=True)
class _Matrix:
    """A matrix in threadgroup memory."""

    place: Place
    row_bytes: int
    is_transposed: bool

    @property
    def widest(self) -> int:
        """Bytes of the largest access that every row can be read by, from a multiple of them."""
        sizes = (self.place.multiple, self.place.offset, self.row_bytes, _WIDEST)
        return min(size & -size for size in sizes if size)


class _Lowering:
    """One function, block by block."""

    def __init__(self, function: Function, as_tiles: bool) -> None:
        self._function = function
        self._as_tiles = as_tiles
        self._places = Places(function)
        self._definitions = function.definitions()

    def rewrite(self, block: Block) -> None:
        wanted = self._wanted(block)
        made: list[Instruction] = []
        rows: dict[str, Elements] = {}
        columns: dict[str, list[Elements]] = {}
        for instruction in block.instructions:
            build = Builder(self._function.fresh, into=made)
            if instruction.callee == PAIR:
                name, matrix = str(instruction.result), self._matrix(instruction)
                if matrix is not None and name in wanted[0]:
                    rows[name] = self._row(build, matrix)
                if matrix is not None and name in wanted[1]:
                    columns[name] = self._columns(build, matrix)
                _combine(build, instruction.operands[3], instruction.operands[4], name)
            elif instruction.callee == PRODUCT:
                left, right = self._operands(instruction)
                if left in rows and right in columns:
                    factors = rows[left], columns[right]
                else:
                    factors = self._exchanged(build, instruction)
                self._multiply(build, instruction, *factors)
            else:
                made.append(instruction)
        block.instructions = made

    def _wanted(self, block: Block) -> tuple[set[str], set[str]]:
        """The matrices of the block that are read by rows, and by columns: both operands of a
        product, or none."""
        here = {i.result: i for i in block.instructions if i.callee == PAIR}
        left, right = set(), set()
        for product in (i for i in block.instructions if i.callee == PRODUCT):
            names = self._operands(product)
            if all(name in here and self._matrix(here[name]) is not None for name in names):
                left.add(names[0])
                right.add(names[1])
        return left, right

    def _operands(self, product: Instruction) -> tuple[str, str]:
        """The matrices that a product's operands were taken from; empty where there is none."""
        first, second, third, fourth, *_ = product.operands
        return self._source(first, second), self._source(third, fourth)

    def _source(self, low: Operand, high: Operand) -> str:
        names = set()
        for number, operand in enumerate((low, high)):
            made = self._definitions.get(operand.text)
            if made is None or made.opcode != "extractelement":
                return ""
            if made.operands[1].integer != number:
                return ""
            names.add(made.operands[0].text)
        return names.pop() if len(names) == 1 else ""

    def _matrix(self, call: Instruction) -> _Matrix | None:
        pointer, row_bytes, is_transposed, *_ = call.operands
        place = self._places.of(pointer)
        if place is None or row_bytes.integer is None or is_transposed.integer is None:
            return None
        matrix = _Matrix(place, row_bytes.integer, bool(is_transposed.integer))
        return matrix if matrix.widest >= 2 * _BYTES else None

    # --- reading from memory ----------------------------------------------------------------------

    def _row(self, build: Builder, matrix: _Matrix) -> Elements:
        """The elements of the lane's row."""
        row = self._lane_part(build, _row_of)
        if matrix.is_transposed:
            return [self._read(build, matrix, i32(k), row, 1)[0] for k in range(_SIZE)]
        return self._line(build, matrix, row)

    def _columns(self, build: Builder, matrix: _Matrix) -> list[Elements]:
        """The elements of the lane's two columns."""
        first = self._lane_part(build, _column_of)
        if matrix.is_transposed:
            second = build.add(first, i32(1))
            return [self._line(build, matrix, column) for column in (first, second)]
        pairs = [self._read(build, matrix, i32(k), first, 2) for k in range(_SIZE)]
        return [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]

    def _line(self, build: Builder, matrix: _Matrix, row: Operand) -> Elements:
        """A row of memory."""
        count = matrix.widest // _BYTES
        found: Elements = []
        for first in range(0, _SIZE, count):
            found += self._read(build, matrix, row, i32(first), count)
        return found

    def _read(
        self, build: Builder, matrix: _Matrix, row: Operand, column: Operand, count: int
    ) -> Elements:
        """`count` neighbouring elements; what does not depend on the lane is added last."""
        place, fixed = matrix.place, matrix.place.offset
        pointer = place.base
        for index, size in ((row, matrix.row_bytes), (column, _BYTES)):
            if index.integer is not None:
                fixed += index.integer * size
            else:
                distance = build.cast("zext", build.mul(index, i32(size)), I64)
                pointer = build.gep(I8, pointer, distance)
        pointer = build.offset(pointer, fixed)
        if count == 1:
            return [build.load(FLOAT, pointer, align=_BYTES)]
        loaded = build.load(vector(count, FLOAT), pointer, align=count * _BYTES)
        return [build.extract_element(loaded, i64(i)) for i in range(count)]

    # --- exchanging -------------------------------------------------------------------------------

    def _exchanged(self, build: Builder, product: Instruction) -> tuple[Elements, list[Elements]]:
        """The same elements from the lanes that hold them."""
        a0, a1, b0, b1, *_ = product.operands
        lane = self._lane(build)
        row, column = build.and_(lane, i32(22)), build.and_(lane, i32(9))
        rows: Elements = []
        columns: list[Elements] = [[], []]
        for k in range(_SIZE):
            pair = build.or_(row, i32((k >> 2 & 1) << 3 | (k >> 1 & 1)))
            line = build.or_(column, i32((k >> 2 & 1) << 4 | (k & 3) << 1))
            rows.append(self._shuffled(build, a1 if k & 1 else a0, pair))
            columns[0].append(self._shuffled(build, b0, line))
            columns[1].append(self._shuffled(build, b1, line))
        return rows, columns

    def _shuffled(self, build: Builder, value: Operand, lane: Operand) -> Operand:
        everyone = constant(I32, -1)
        source = self._physical(build, lane)
        return build.call(FLOAT, _SHUFFLE, [everyone, value, source, i32(31)])

    def _physical(self, build: Builder, lane: Operand) -> Operand:
        if not self._as_tiles:
            return lane
        low = build.lshr(build.and_(lane, i32(8)), i32(2))
        high = build.shl(build.and_(lane, i32(6)), i32(1))
        return build.or_(build.or_(build.and_(lane, i32(17)), low), high)

    def _lane(self, build: Builder) -> Operand:
        lane = build.and_(build.call(I32, _THREAD), i32(31))
        if not self._as_tiles:
            return lane
        high = build.shl(build.and_(lane, i32(2)), i32(2))
        low = build.lshr(build.and_(lane, i32(12)), i32(1))
        return build.or_(build.or_(build.and_(lane, i32(17)), high), low)

    def _lane_part(self, build: Builder, part: Callable[[Builder, Operand], Operand]) -> Operand:
        return part(build, self._lane(build))

    # --- the sum ----------------------------------------------------------------------------------

    def _multiply(
        self, build: Builder, product: Instruction, row: Elements, columns: list[Elements]
    ) -> None:
        sums = list(product.operands[4:6])
        for k in range(_SIZE):
            for number in range(2):
                factors = [row[k], columns[number][k], sums[number]]
                sums[number] = build.call(FLOAT, _FMA, factors)
        _combine(build, sums[0], sums[1], str(product.result))


def _combine(build: Builder, low: Operand, high: Operand, name: str) -> None:
    """Two floats as the vector of this name."""
    first = build.insert_element(poison(_PAIR_TYPE), low, i64(0))
    build.insert_element(first, high, i64(1), name=name)


def _row_of(build: Builder, lane: Operand) -> Operand:
    """am_matrix_row of anymetal/matrix8x8.h."""
    high = build.and_(build.lshr(lane, i32(2)), i32(4))
    return build.or_(high, build.and_(build.lshr(lane, i32(1)), i32(3)))


def _column_of(build: Builder, lane: Operand) -> Operand:
    """am_matrix_column of anymetal/matrix8x8.h."""
    high = build.and_(build.lshr(lane, i32(1)), i32(4))
    return build.or_(high, build.shl(build.and_(lane, i32(1)), i32(1)))
