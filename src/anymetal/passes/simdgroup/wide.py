"""Vectors of 8 or 16 bytes, one for each lane, at addresses that nothing is known of.

A float4 is loaded whole, lane after lane, and taken apart in registers: processors gather a scalar
at a time, and four gathers cost more than twice as much (Zen 4). Vectors of 8 bytes are gathered as
one integer each; of a half4 LLVM would write 128 loads.
"""

from __future__ import annotations

from collections.abc import Iterator

from anymetal.ir import (
    I8,
    I64,
    PTR,
    VOID,
    Integer,
    Operand,
    Type,
    Vector,
    constant,
    i32,
    i64,
    integer,
    vector,
)
from anymetal.passes.simdgroup import fours
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import ALL_LANES, Code, lanes_operand, vector_type

_WORD, _LONG, QUAD = 4, 8, 16  # bytes
_IN_PIECE = fours.PIECE // fours.FOUR  # lanes
_GATHER_WEIGHT = 4  # in instructions, of 8 bytes a lane
# Longer code takes gathers of scalars, which are few instructions.
_LONGEST = 12_000


def fits(code: Code, kind: Type) -> bool:
    """Whether a type is a vector that is moved as one here."""
    if not isinstance(kind, Vector) or code.weight > _LONGEST:
        return False
    size = code.types.size(kind.scalar)
    if size * kind.count == QUAD:
        return size == _WORD
    return size * kind.count == _LONG and size in (2, _WORD)


class Wide:
    """Writes loads and stores of such vectors; `mask` None stands for all lanes."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._places: Operand | None = None
        self._spare: Operand | None = None

    def load(
        self, kind: Type, pointers: Operand, align: int, mask: Operand | None
    ) -> list[Operand]:
        """The first elements of all lanes, their second ones, ..."""
        code = self._code
        if code.types.size(kind) == _LONG:
            code.extra_weight += _GATHER_WEIGHT
            return self._split(kind, self._gathered(pointers, align, mask))
        if mask is not None:
            each = [code.load(kind, place, align) for place in self._each(pointers, mask)]
            return fours.transposed(code, each)
        return fours.apart(code, self._loaded(kind, pointers, align))

    def _loaded(self, kind: Type, pointers: Operand, align: int) -> list[Operand]:
        """Four lanes at a time where they lie side by side, as the rows of a tile do."""
        code, piece = self._code, vector(fours.PIECE, kind.scalar)
        firsts = range(0, WIDTH, _IN_PIECE)
        variables = [code.variable(piece) for _ in firsts]

        def keep(pieces: list[Operand]) -> None:
            for loaded, variable in zip(pieces, variables, strict=True):
                code.store(loaded, variable)

        def quick() -> None:
            places = [code.extract_element(pointers, i64(lane)) for lane in firsts]
            keep([code.load(piece, place, align) for place in places])

        def slow() -> None:
            each = [code.load(kind, place, align) for place in self._each(pointers, None)]
            keep(self._pieces(each))

        code.either(self._in_fours(pointers), quick, slow)
        return [code.load(piece, variable) for variable in variables]

    def _in_fours(self, pointers: Operand) -> Operand:
        """Whether every four lanes' vectors lie side by side."""
        code = self._code
        firsts = code.picked(pointers, [lane - lane % _IN_PIECE for lane in range(WIDTH)])
        offsets = [lane % _IN_PIECE * QUAD for lane in range(WIDTH)]
        expected = code.gep(I8, firsts, lanes_operand(I64, offsets))
        return code.icmp("eq", code.bits(code.icmp("eq", pointers, expected)), i32(-1))

    def load_at(self, kind: Type, places: list[tuple[Operand, int]], align: int) -> list[Operand]:
        """Likewise from places that are known: an address for each lane, and bytes behind it."""
        code = self._code
        return fours.transposed(
            code, [code.load(kind, code.moved(*place), align) for place in places]
        )

    def _pieces(self, loaded: list[Operand]) -> list[Operand]:
        return [
            self._code.concatenated(loaded[lane : lane + _IN_PIECE])
            for lane in range(0, WIDTH, _IN_PIECE)
        ]

    def store(
        self,
        kind: Type,
        values: list[Operand],
        pointers: Operand,
        align: int,
        mask: Operand | None,
    ) -> None:
        """Lowest lane first: where two write to one place, the higher one's value stays."""
        code = self._code
        if code.types.size(kind) == _LONG:
            code.extra_weight += _GATHER_WEIGHT
            self._scatter(self._joined(kind, values), pointers, align, mask)
            return
        whole = fours.joined(code, values)

        def quick() -> None:
            for number, piece in enumerate(fours.pieces_of(code, whole)):
                place = code.extract_element(pointers, i64(number * _IN_PIECE))
                code.store(piece, place, align)

        def slow() -> None:
            for lane, place in enumerate(self._each(pointers, mask)):
                start = lane * fours.FOUR
                code.store(code.picked(whole, range(start, start + fours.FOUR)), place, align)

        if mask is None:
            code.either(self._in_fours(pointers), quick, slow)
        else:
            slow()

    # ---- 16 bytes ----------------------------------------------------------------------------

    def _each(self, pointers: Operand, mask: Operand | None) -> Iterator[Operand]:
        """Each lane's address, by way of memory; of lanes that are not there, a valid one.

        Moves from vector registers one by one cost more; `volatile` keeps LLVM from them.
        """
        code = self._code
        if self._places is None:
            self._places = code.variable(pointers.type)
        if mask is not None:
            pointers = code.select(mask, pointers, code.splat(self._nowhere()))
        code.store(pointers, self._places, is_volatile=True)
        for lane in range(WIDTH):
            yield code.load(PTR, code.moved(self._places, lane * _LONG))

    def _nowhere(self) -> Operand:
        if self._spare is None:
            self._spare = self._code.variable(vector(2, I64), align=QUAD)
        return self._spare

    # ---- 8 bytes -----------------------------------------------------------------------------

    def _gathered(self, pointers: Operand, align: int, mask: Operand | None) -> Operand:
        wide = vector_type(I64)
        name = f"llvm.masked.gather.v{WIDTH}i64.v{WIDTH}p0"
        arguments = [pointers, mask or ALL_LANES, constant(wide, 0)]
        aligned = ((f"align {align}",), (), ())
        return self._code.declared_call(wide, name, arguments, attributes=aligned)

    def _scatter(
        self, written: Operand, pointers: Operand, align: int, mask: Operand | None
    ) -> None:
        name = f"llvm.masked.scatter.v{WIDTH}i64.v{WIDTH}p0"
        aligned = ((), (f"align {align}",), ())
        arguments = [written, pointers, mask or ALL_LANES]
        self._code.declared_call(VOID, name, arguments, attributes=aligned)

    def _split(self, kind: Type, longs: Operand) -> list[Operand]:
        code = self._code
        wide, bits = vector_type(kind.scalar), _bits(code, kind)
        parts = []
        for number in range(_LONG * 8 // bits.bits):
            shifted = code.lshr(longs, constant(longs.type, number * bits.bits))
            part = code.cast("trunc", shifted, vector_type(bits))
            parts.append(part if part.type is wide else code.cast("bitcast", part, wide))
        return parts

    def _joined(self, kind: Type, values: list[Operand]) -> Operand:
        code = self._code
        bits, longs = _bits(code, kind), vector_type(I64)
        whole = constant(longs, 0)
        for number, value in enumerate(values):
            plain = vector_type(bits)
            part = value if value.type is plain else code.cast("bitcast", value, plain)
            part = code.shl(code.cast("zext", part, longs), constant(longs, number * bits.bits))
            whole = code.or_(whole, part)
        return whole


def _bits(code: Code, kind: Type) -> Integer:
    """An integer as wide as an element."""
    bits = integer(8 * code.types.size(kind.scalar))
    assert isinstance(bits, Integer)
    return bits
