"""Gathers and scatters of elements below 4 bytes in little code.

No processor has them, and LLVM writes a load or a store for each lane. That runs faster than this
(gathers of half 1.1 times, bytes 1.3, on Zen 4), but takes a quarter of the time to compile kernels
in half precision. So this is for code that hardly ever runs.
"""

from __future__ import annotations

from anymetal.ir import I32, I64, PTR, Operand, Type, boolean, constant, i32, integer, zero
from anymetal.passes.simdgroup.values import ALL_LANES, Code, vector_type

GATHER_WEIGHT, SCATTER_WEIGHT = 14, 14  # in instructions
_WORD = 4


def fits(size: int, align: int) -> bool:
    """Whether an element lies within one aligned word of memory."""
    return size < _WORD and align % size == 0


def gathered(code: Code, kind: Type, pointers: Operand) -> Operand:
    """The elements at these addresses, all of which are valid: taken out of aligned words.

    A word that holds a byte of memory is in the same page, so it can be read where that byte can.
    """
    places = code.cast("ptrtoint", pointers, vector_type(I64))
    starts = code.and_(places, constant(places.type, -_WORD))
    words_type = vector_type(I32)
    words = code.declared_call(
        words_type,
        f"llvm.masked.gather.v{words_type.count}i32.v{words_type.count}p0",
        [code.cast("inttoptr", starts, vector_type(PTR)), ALL_LANES, zero(words_type)],
        attributes=((f"align {_WORD}",), (), ()),
    )
    within = code.and_(code.cast("trunc", places, words_type), constant(words_type, _WORD - 1))
    shifted = code.lshr(words, code.shl(within, constant(words_type, 3)))
    bits = code.cast("trunc", shifted, vector_type(integer(8 * code.types.size(kind))))
    wide = vector_type(kind)
    return bits if bits.type is wide else code.cast("bitcast", bits, wide)


class Scattering:
    """Stores of one lane after the other, in a loop over the active ones."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._kept: dict[Type, Operand] = {}

    def scatter(self, value: Operand, pointers: Operand, mask: Operand | None, align: int) -> None:
        """Lowest lane first: where two write to one place, the higher one's value stays."""
        code, kind = self._code, value.type.scalar
        values, places = self._variable(value.type), self._variable(pointers.type)
        remaining = code.variable(I32)
        test, body, done = (code.fresh(stem) for stem in ("lanes", "lane", "stored"))
        code.store(value, values)
        code.store(pointers, places)
        code.store(code.bits(mask or ALL_LANES), remaining)
        code.jump(test)
        code.label(test)
        lanes = code.load(I32, remaining)
        code.branch(code.icmp("ne", lanes, i32(0)), body, done)
        code.label(body)
        first = code.declared_call(I32, "llvm.cttz.i32", [lanes, boolean(True)])
        index = code.cast("zext", first, I64)
        place = code.load(PTR, code.gep(PTR, places, index))
        code.store(code.load(kind, code.gep(kind, values, index)), place, align)
        code.store(code.and_(lanes, code.sub(lanes, i32(1))), remaining)
        code.jump(test)
        code.label(done)

    def _variable(self, kind: Type) -> Operand:
        """One for all scatters of a type."""
        if kind not in self._kept:
            self._kept[kind] = self._code.variable(kind)
        return self._kept[kind]
