"""Four contiguous values for each lane, a float4 say: deinterleaved into four vectors, and back.

In two steps over vectors of 16, each of two vectors into one. Asked to pick every fourth of 128
elements at once, LLVM takes three steps for each vector it makes.
"""

from __future__ import annotations

from collections.abc import Sequence

from anymetal.ir import Operand
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import Code

FOUR = 4
PIECE, _HALF = 16, 8


def apart(code: Code, pieces: Sequence[Operand]) -> list[Operand]:
    """Deinterleaves 128 elements: the first ones of all lanes, their second ones, ..."""
    lanes = range(0, 2 * PIECE, FOUR)  # eight lanes in two pieces
    halves: list[list[Operand]] = [[], []]  # first and second ones of eight lanes; third and fourth
    for left, right in zip(pieces[::2], pieces[1::2], strict=True):
        for which, half in enumerate(halves):
            places = [lane + 2 * which + part for part in range(2) for lane in lanes]
            half.append(code.shuffle(left, right, places))
    results = []
    for part in range(FOUR):
        low = _HALF * (part % 2)
        places = [*range(low, low + _HALF), *range(PIECE + low, PIECE + low + _HALF)]
        quarter = halves[part // 2]
        ends = [code.shuffle(quarter[i], quarter[i + 1], places) for i in (0, 2)]
        results.append(code.shuffle(ends[0], ends[1], range(WIDTH)))
    return results


def transposed(code: Code, lanes: Sequence[Operand]) -> list[Operand]:
    """Likewise from a vector of four for each lane, which are put together in an order that leaves
    shuffles within 16 bytes only: Zen 4 does three of these in the time of two others."""
    halves = [_sixteen_transposed(code, lanes[start : start + PIECE]) for start in (0, PIECE)]
    return [code.shuffle(low, high, range(WIDTH)) for low, high in zip(*halves, strict=True)]


def _sixteen_transposed(code: Code, lanes: Sequence[Operand]) -> list[Operand]:
    rows = [code.concatenated(lanes[start::FOUR]) for start in range(FOUR)]
    pairs = [
        [_zipped(code, rows[start], rows[start + 1], 1, second) for start in (0, 2)]
        for second in (False, True)
    ]
    return [_zipped(code, low, high, 2, second) for low, high in pairs for second in (False, True)]


def _zipped(code: Code, left: Operand, right: Operand, unit: int, second: bool) -> Operand:
    """Of every four elements the first or second two: `unit` of one vector, as many of the other,
    and again."""
    places = [
        side + four + (2 if second else 0) + (start if unit == 1 else 0) + place
        for four in range(0, PIECE, FOUR)
        for start in range(0, 2, unit)
        for side in (0, PIECE)
        for place in range(unit)
    ]
    return code.shuffle(left, right, places)


def pieces_of(code: Code, whole: Operand) -> list[Operand]:
    """The vectors of 16 that 128 elements are made of."""
    starts = range(0, WIDTH * FOUR, PIECE)
    return [code.picked(whole, range(start, start + PIECE)) for start in starts]


def joined(code: Code, vectors: Sequence[Operand]) -> Operand:
    """Interleaves four vectors."""
    pieces = []
    for start in range(0, WIDTH, PIECE):
        parts = [code.picked(vector, range(start, start + PIECE)) for vector in vectors]
        for low in (0, _HALF):
            pairs = [place for lane in range(low, low + _HALF) for place in (lane, PIECE + lane)]
            first = code.shuffle(parts[0], parts[1], pairs)
            second = code.shuffle(parts[2], parts[3], pairs)
            for begin in (0, _HALF):
                places = [
                    side + pair + place
                    for pair in range(begin, begin + _HALF, 2)
                    for side in (0, PIECE)
                    for place in range(2)
                ]
                pieces.append(code.shuffle(first, second, places))
    return code.concatenated(pieces)
