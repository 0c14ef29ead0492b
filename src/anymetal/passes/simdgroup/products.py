"""Four products of 8x8 matrices at once: two left ones with two right ones.

Of the shuffles of one product alone (matrix.py) half are left, and the sums of four are all that
the 32 registers of AVX-512 have room for. The matrices lie in memory, and a column of one on the
left is loaded when a step needs it. The order of the steps is that of one product.

A column and the next but one lie in the same 32 bytes. LLVM would load these once, and has no
register to keep them in: the address of a matrix on the left is given twice, which it cannot know.
To write each element twice, so that a column is a load and no shuffle, took longer than the
shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from anymetal.ir import (
    FLOAT,
    PTR,
    Block,
    Builder,
    Function,
    Instruction,
    Operand,
    Parameter,
    Signature,
    poison,
    structure,
    vector,
)
from anymetal.machine import processor
from anymetal.passes.simdgroup.lasting import NOT_KEPT
from anymetal.passes.simdgroup.matrix import (
    FMA,
    HALF,
    HALF_TYPE,
    SIDE,
    WIDE,
    Matrices,
    row_places,
)
from anymetal.passes.simdgroup.outlined import IN_REGISTERS
from anymetal.passes.simdgroup.rules import matrix_part
from anymetal.passes.simdgroup.values import Code, Value

_NAME = "am.matrix.products"
_PAIR = range(2)
_EIGHT = vector(HALF // 2, FLOAT)
_MATRIX = vector(4 * HALF, FLOAT)
_GIVEN = 6  # addresses of the matrices of a step: those on the left twice
_FLOAT_BYTES = 4
_RESULT = structure(*[WIDE] * 8)
_READ_ONLY = ("readonly", NOT_KEPT)


def has_room() -> bool:
    """Whether the sums of four products fit into the processor's registers."""
    return processor.has("avx512dq")


@dataclass
class Product:
    """A product in a kernel: two operands for each matrix; the calls that ask for its elements."""

    left: tuple[Operand, ...]
    right: tuple[Operand, ...]
    sums: tuple[Operand, ...]
    calls: list[Instruction] = field(default_factory=list)

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.left + self.right + self.sums

    @property
    def results(self) -> tuple[str | None, ...]:
        """The names of the first and the second elements."""
        parts = {matrix_part(call.callee or ""): call.result for call in self.calls}
        return tuple(parts.get(part) for part in _PAIR)


def products_in(calls: Iterable[Instruction]) -> list[Product]:
    """The products whose elements some calls ask for."""
    found: dict[tuple[Operand, ...], Product] = {}
    for call in calls:
        given = call.operands
        product = found.setdefault(given, Product(given[:2], given[2:4], given[4:]))
        product.calls.append(call)
    return list(found.values())


def two_by_two(products: Sequence[Product]) -> list[Product] | None:
    """The first of some products and three that have a matrix in common with it, or with those."""
    first, *others = products
    by_factors: dict[tuple[object, object], Product] = {}
    for product in others:
        by_factors.setdefault((product.left, product.right), product)
    for beside in others:
        if beside.left != first.left or beside.right == first.right:
            continue
        for below in others:
            if below.right == first.right and below.left != first.left:
                last = by_factors.get((below.left, beside.right))
                if last is not None:
                    return [first, beside, below, last]
    return None


def added_to(four: list[Product], products: Sequence[Product]) -> list[Product] | None:
    """Four products more, with the first four as their sums, of which nothing else is made."""
    by_sums = {tuple(operand.text for operand in p.sums): p for p in products}
    more = [by_sums.get(tuple(str(name) for name in product.results)) for product in four]
    found = [product for product in more if product is not None]
    if len(found) < len(four) or any(p.sums[0].type is not FLOAT for p in found):
        return None
    is_square = all(found[n].left == found[n ^ 1].left for n in range(4)) and all(
        found[n].right == found[n ^ 2].right for n in range(4)
    )
    return found if is_square else None


class Products:
    """Writes four products, or four and what is added to them."""

    def __init__(self, code: Code, matrices: Matrices) -> None:
        self._code = code
        self._matrices = matrices

    def prepare(self, four: list[Product], value: Callable[[Operand], Value]) -> None:
        """Puts the matrices where they are read from."""
        self._addresses(four, value)

    def _addresses(self, four: list[Product], value: Callable[[Operand], Value]) -> list[Operand]:
        lefts = [self._in_memory(self._floats(four[number].left, value)) for number in (0, 2)]
        rights = [self._in_memory(self._floats(four[number].right, value)) for number in (0, 1)]
        return lefts + lefts + rights

    def _floats(
        self, operands: Iterable[Operand], value: Callable[[Operand], Value]
    ) -> list[Operand]:
        return [self._matrices.floats(value(operand), None) for operand in operands]

    def write(
        self, steps: list[list[Product]], value: Callable[[Operand], Value]
    ) -> dict[str, Value]:
        """The last step's elements by their names; a step as two_by_two gives it."""
        code = self._code
        name = f"{_NAME}.{len(steps)}"
        if name not in code.functions:
            code.functions[name] = _definition(name, len(steps))
            code.declarations[FMA.name] = FMA
        sums = (operand for product in steps[0] for operand in product.sums)
        arguments = self._floats(sums, value)
        for four in steps:
            arguments += self._addresses(four, value)
        attributes = [_READ_ONLY if argument.type is PTR else () for argument in arguments]
        result = code.call(_RESULT, name, arguments, attributes=attributes, convention=IN_REGISTERS)
        elements = {}
        for number, product in enumerate(steps[-1]):
            for call in product.calls:
                part = matrix_part(call.callee or "")
                assert part is not None
                element = code.extract_value(WIDE, result, 2 * number + part)
                elements[str(call.result)] = self._matrices.rounded(element, call.type)
        return elements

    def _in_memory(self, matrix: list[Operand]) -> Operand:
        code, key = self._code, ("in memory", *matrix)
        if key not in code.kept:
            place = code.variable(_MATRIX, align=64)
            code.store(code.concatenated(matrix), place)
            code.kept[key] = place
        return code.kept[key]


def _definition(name: str, steps: int) -> Function:
    """Sums of four products in registers, the matrices by their addresses; four sums out."""
    sums = [Parameter(WIDE, f"%c{number}") for number in range(8)]
    matrices = [Parameter(PTR, f"%m{number}", _READ_ONLY) for number in range(_GIVEN * steps)]
    signature = Signature(
        name,
        _RESULT,
        [*sums, *matrices],
        words=("internal", IN_REGISTERS),
        attributes=("noinline", "nounwind", "memory(argmem: read)"),
    )
    function = Function(signature)
    body = _Products(function.fresh, stem="v")
    body.write([p.operand() for p in sums], [p.operand() for p in matrices])
    function.blocks.append(Block("entry", body.made))
    return function


class _Products(Builder):
    def write(self, given: list[Operand], matrices: list[Operand]) -> None:
        sums = {
            (number, part, half): self.shuffle(
                given[2 * number + part], poison(WIDE), range(half * HALF, half * HALF + HALF)
            )
            for number in range(4)
            for part in _PAIR
            for half in _PAIR
        }
        for start in range(0, len(matrices), _GIVEN):
            self._add(sums, matrices[start : start + 4], matrices[start + 4 : start + _GIVEN])
        result = poison(_RESULT)
        for place in range(8):
            low, high = (sums[place // 2, place % 2, half] for half in _PAIR)
            whole = self.shuffle(low, high, range(2 * HALF))
            result = self.insert_value(result, whole, place)
        self.ret(result)

    def _add(
        self,
        sums: dict[tuple[int, int, int], Operand],
        lefts: list[Operand],
        rights: list[Operand],
    ) -> None:
        for k in range(SIDE):
            here = lefts[2:] if k // 2 % 2 else lefts[:2]
            columns = [[self._column(left, half, k) for half in _PAIR] for left in here]
            rows = [[self._row(right, part, k) for part in _PAIR] for right in rights]
            for (number, part, half), before in list(sums.items()):
                factors = [columns[number // 2][half], rows[number % 2][part], before]
                sums[number, part, half] = self.call(HALF_TYPE, FMA.name, factors)

    def _column(self, left: Operand, half: int, k: int) -> Operand:
        """Column `k` of four rows, each of its elements in all lanes of its row."""
        start = (k % 2 * 2 + half) * HALF + k // 4 * (HALF // 2)
        eight = self.load(_EIGHT, self.offset(left, start * _FLOAT_BYTES), align=32)
        places = [lane - lane % 2 + k // 2 % 2 for lane in range(HALF // 2)]
        return self.shuffle(eight, poison(_EIGHT), places * 2)

    def _row(self, right: Operand, part: int, k: int) -> Operand:
        place = self.offset(right, (part * 2 + k // 4) * HALF * _FLOAT_BYTES)
        half = self.load(HALF_TYPE, place, align=64)
        return self.shuffle(half, poison(HALF_TYPE), row_places(k))
