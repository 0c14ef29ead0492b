"""Lanes read what others left in the simdgroup's table: one permutation of a vector of 32.

A gather from the table would wait until the vector has been written there. Places that are known at
compile time need none of this: they are a shuffle.
"""

from __future__ import annotations

from anymetal.ir import FLOAT, I32, Operand, Type, vector
from anymetal.machine import processor
from anymetal.machine.layout import Simdgroup
from anymetal.machine.table import offset_of
from anymetal.passes.simdgroup.facts import WIDTH, Facts
from anymetal.passes.simdgroup.values import Code, Exchanged, vector_type

_TABLE = ("simd", offset_of(Simdgroup, "outputs"))
_HALF = WIDTH // 2
_INTRINSICS = {
    FLOAT: "llvm.x86.avx512.vpermi2var.ps.512",
    I32: "llvm.x86.avx512.vpermi2var.d.512",
}
_ELEMENT_BYTES = 4


def has_permutation() -> bool:
    """Whether one instruction takes any 16 of 32 elements."""
    return processor.has("avx512f")


def is_table(pointer: Facts, size: int) -> bool:
    """Whether elements of `size` bytes behind a pointer are what lanes left for each other."""
    return pointer.tag == _TABLE and size == _ELEMENT_BYTES and has_permutation()


def can_take(kind: Type) -> bool:
    return kind in _INTRINSICS


def taken(code: Code, kind: Type, exchanged: Exchanged) -> Operand:
    """For each lane the element that its index names; all 32 of them exist."""
    wide, half = vector_type(kind), vector(_HALF, kind)
    values = code.load(wide, exchanged.table, _ELEMENT_BYTES)
    places = code.cast("trunc", exchanged.index, vector_type(I32))
    low, high = (code.picked(values, range(start, start + _HALF)) for start in (0, _HALF))
    results = []
    for start in (0, _HALF):
        wanted = code.picked(places, range(start, start + _HALF))
        results.append(code.declared_call(half, _INTRINSICS[kind], [low, wanted, high]))
    return code.concatenated(results)
