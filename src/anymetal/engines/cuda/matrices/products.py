"""Products of 8x8 matrices, put together for the hardware: it multiplies 16x16 by 16x8.

Two products that follow each other in one sum are two halves along k; two that share their right
operand are two halves along the rows. What has no partner leaves a half of the tile zero. A product
is moved down to the last of those that it is put together with; nothing may need it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anymetal.engines.cuda.matrices.uses import users
from anymetal.ir import Block, Function, Instruction, Operand

# Words that one instruction takes together stand in neighbouring registers, best fetched so.
Together = dict[tuple[str, ...], None]

PRODUCTS = {"am_product_half": "f16", "am_product_bfloat": "bf16"}
_PURE = "convergent nounwind willreturn memory(none)"
_TRANSPOSE = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;"
_FLOATS = "{ float, float, float, float }"


@dataclass(frozen=True)
class _Product:
    """One call: where it stands in its block, and its operands."""

    call: Instruction
    at: int
    sums: tuple[Instruction, ...]  # the extractelements of its two results, in the same block
    whole: tuple[Instruction, ...]  # other uses of both as a vector

    @property
    def kind(self) -> str:
        return PRODUCTS[self.call.callee or ""]

    @property
    def left(self) -> str:
        return self.call.operands[0].text

    @property
    def right(self) -> str:
        return self.call.operands[1].text

    @property
    def start(self) -> tuple[Operand, Operand]:
        return self.call.operands[2], self.call.operands[3]


@dataclass(frozen=True)
class _Sum:
    """One or two products that are added to the same sum, the first one first."""

    products: tuple[_Product, ...]

    @property
    def last(self) -> _Product:
        return self.products[-1]

    @property
    def key(self) -> tuple[str, ...]:
        """Sums with the same key have the same right operands."""
        return (self.last.kind, *(product.right for product in self.products))


def fuse_products(function: Function) -> tuple[set[str], Together]:
    """Replaces the calls; returns the operands that are wanted transposed, under the name that
    `columns_of` gives, and the words that are taken together."""
    as_columns: set[str] = set()
    together: Together = {}
    using = users(function)
    for block in function.blocks:
        products = _products(block, using)
        if products:
            sums = _along_k(products, using)
            groups = _along_rows(block, sums, using)
            _rewrite(function, block, groups)
            for group in groups:
                together.update(dict.fromkeys((_left(group), _right(group))))
                as_columns.update(p.right for p in group[0].products if p.call.operands[1].is_name)
    return as_columns, together


def columns_of(name: str) -> str:
    """The name of a matrix's word with rows and columns exchanged."""
    return f'{name[:-1]}.columns"' if name.endswith('"') else f"{name}.columns"


def _products(block: Block, using: dict[str, list[Instruction]]) -> list[_Product]:
    found = []
    here = {id(instruction) for instruction in block.instructions}
    for at, instruction in enumerate(block.instructions):
        if instruction.callee in PRODUCTS:
            uses = using.get(str(instruction.result), [])
            sums = [one for one in uses if one.opcode == "extractelement" and id(one) in here]
            whole = [one for one in uses if one not in sums]
            found.append(_Product(instruction, at, tuple(sums), tuple(whole)))
    return found


def _along_k(products: list[_Product], using: dict[str, list[Instruction]]) -> list[_Sum]:
    """Pairs of products of which the second alone uses the first one's results."""
    by_result = {str(product.call.result): product for product in products}
    sums_to = {one.result: str(p.call.result) for p in products for one in p.sums}
    taken: dict[str, _Product] = {}  # the first products of pairs, by the second one's result
    for product in products:
        origins = {sums_to.get(start.text) for start in product.start}
        first = by_result.get(origins.pop() or "") if len(origins) == 1 else None
        if first is None or str(first.call.result) in taken or not _leads_to(first, product, using):
            continue
        taken[str(product.call.result)] = first
    firsts = {str(first.call.result) for first in taken.values()}
    return [
        _Sum((taken[name], product) if name in taken else (product,))
        for name, product in by_result.items()
        if name not in firsts
    ]


def _leads_to(first: _Product, second: _Product, using: dict[str, list[Instruction]]) -> bool:
    places = {str(one.result): one.operands[1].integer for one in first.sums}
    in_order = [places.get(start.text) for start in second.start] == [0, 1]
    alone = all(using.get(name, []) == [second.call] for name in places)
    return in_order and alone and not first.whole and first.kind == second.kind


def _along_rows(
    block: Block, sums: list[_Sum], using: dict[str, list[Instruction]]
) -> list[tuple[_Sum, ...]]:
    """Pairs of sums with the same right operands; those without a partner alone."""
    place = {id(instruction): at for at, instruction in enumerate(block.instructions)}
    waiting: dict[tuple[str, ...], _Sum] = {}
    found: list[tuple[_Sum, ...]] = []
    for one in sorted(sums, key=lambda each: each.last.at):
        other = waiting.pop(one.key, None)
        if other is None:
            waiting[one.key] = one
        elif _first_use(other, place, using) > one.last.at:
            found.append((other, one))
        else:
            found.append((other,))
            waiting[one.key] = one
    return [*found, *((one,) for one in waiting.values())]


def _first_use(one: _Sum, place: dict[int, int], using: dict[str, list[Instruction]]) -> float:
    """Where in its block a sum is first used; a use in a phi is one in another round."""
    uses = [use for result in one.last.sums for use in using.get(str(result.result), [])]
    uses += one.last.whole
    places = (place.get(id(use), float("inf")) for use in uses if use.opcode != "phi")
    return min(places, default=float("inf"))


# --- code -----------------------------------------------------------------------------------------


def _rewrite(function: Function, block: Block, groups: Sequence[tuple[_Sum, ...]]) -> None:
    gone = {
        id(instruction)
        for group in groups
        for one in group
        for product in one.products
        for instruction in (product.call, *product.sums)
    }
    at = {max(one.last.at for one in group): group for group in groups}
    made: list[Instruction] = []
    for index, instruction in enumerate(block.instructions):
        if index in at:
            made += _instructions(function, at[index])
        if id(instruction) not in gone:
            made.append(instruction)
    block.instructions = made


def _left(group: tuple[_Sum, ...]) -> tuple[str, ...]:
    """Fragments of A by rows, then by k; where there is one sum, the other rows are zero."""
    first, last = group[0], group[-1]
    return tuple(
        word
        for k in range(len(first.products))
        for word in (first.products[k].left, "0" if first is last else last.products[k].left)
    )


def _right(group: tuple[_Sum, ...]) -> tuple[str, ...]:
    return tuple(columns_of(product.right) for product in group[0].products)


def _instructions(function: Function, group: tuple[_Sum, ...]) -> Iterable[Instruction]:
    """One mma.sync; C by rows."""
    first, left, right = group[0], _left(group), list(_right(group))
    for number, product in enumerate(first.products):
        word = product.call.operands[1]
        if not word.is_name:
            right[number] = function.fresh("am")
            yield _transposition(right[number], word.text)
    starts = [start.text for one in group for start in one.products[0].start]
    starts += ["0.000000e+00"] * (4 - len(starts))
    name = function.fresh("tile")
    yield Instruction(_multiply(name, first.last.kind, left, right, starts))
    for number, one in enumerate(group):
        for extract in one.last.sums:
            place = 2 * number + (extract.operands[1].integer or 0)
            yield Instruction(f"{extract.result} = extractvalue {_FLOATS} {name}, {place}")
        if one.last.whole:
            yield from _vector(function, str(one.last.call.result), name, 2 * number)


def _vector(function: Function, result: str, tile: str, place: int) -> Iterable[Instruction]:
    """Two neighbouring results as the vector that the call gave."""
    into, names = "poison", (function.fresh("am"), result)
    for number, name in enumerate(names):
        element = function.fresh("am")
        yield Instruction(f"{element} = extractvalue {_FLOATS} {tile}, {place + number}")
        yield Instruction(
            f"{name} = insertelement <2 x float> {into}, float {element}, i32 {number}"
        )
        into = name


def _multiply(
    name: str, kind: str, left: Sequence[str], right: Sequence[str], starts: Sequence[str]
) -> str:
    def listed(count: int, first: int) -> str:
        return ",".join(f"${number}" for number in range(first, first + count))

    words = len(left) + len(right)
    shape = f"m16n8k{8 * len(right)}"
    text = (
        f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{{listed(4, 0)}}},"
        f" {{{listed(len(left), 4)}}}, {{{listed(len(right), 4 + len(left))}}},"
        f" {{{listed(4, 4 + words)}}};"
    )
    constraints = ",".join(["=f"] * 4 + ["r"] * words + ["f"] * 4)
    arguments = [f"i32 {word}" for word in (*left, *right)] + [f"float {one}" for one in starts]
    return f'{name} = call {_FLOATS} asm "{text}", "{constraints}"({", ".join(arguments)}) {_PURE}'


def transposed(word: str) -> Instruction:
    """A matrix's word with rows and columns exchanged, by the hardware."""
    return _transposition(columns_of(word), word)


def _transposition(result: str, word: str) -> Instruction:
    return Instruction(f'{result} = call i32 asm "{_TRANSPOSE}", "=r,r"(i32 {word}) {_PURE}')
