"""Products of 8x8 matrices that lie over the lanes of a simdgroup, two elements a lane.

Two rows of the result at a time, in one vector of 16: each step multiplies a column of the left
matrix, each element of it eight times, with a row of the right one, taken twice. The order of the
eight steps, and rounding at the end only, are those of anymetal/matrix8x8.h.
"""

from __future__ import annotations

import platform

from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import MASK, Code, Value, vector_type

SIDE = 8
ELEMENTS = SIDE * SIDE
PAIR = 2 * SIDE  # elements in two rows
_WIDE = vector_type("float")


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
# On x86, vectors in registers, as many as there are; elsewhere the usual convention does that.
_CONVENTION = "x86_regcallcc" if platform.machine() in ("x86_64", "AMD64") else "ccc"
_RESULT = f"{{ {_WIDE}, {_WIDE} }}"


class Matrices:
    """Writes matrix products; both elements of a lane are asked for, one after the other."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def element(self, part: int, kind: str, operands: list[Value], mask: str | None) -> Value:
        """The first or second element of each lane of a * b + c."""
        code = self._code
        listed = ", ".join(f"{_WIDE} {self._floats(operand, mask)}" for operand in operands)
        call = f"call {_CONVENTION} {_RESULT} @{_NAME}({listed})"
        if call not in code.kept:
            code.functions[_NAME] = _definition()
            code.kept[call] = code.op(call)
        result = code.op(f"extractvalue {_RESULT} {code.kept[call]}, {part}")
        if kind != "float":
            result = code.op(f"fptrunc {_WIDE} {result} to {vector_type(kind)}")
        return code.varying(kind, result)

    def _floats(self, operand: Value, mask: str | None) -> str:
        """What lanes that are not there would have brought counts as zero."""
        code = self._code
        text = code.vector(operand)
        if operand.kind != "float" or mask is not None:
            key = f"{text} {mask}"
            if key not in code.kept:
                code.kept[key] = self._converted(text, operand.kind, mask)
            return code.kept[key]
        return text

    def _converted(self, text: str, kind: str, mask: str | None) -> str:
        code = self._code
        if kind != "float":
            text = code.op(f"fpext {vector_type(kind)} {text} to {_WIDE}")
        if mask is not None:
            text = code.op(f"select {MASK} {mask}, {_WIDE} {text}, {_WIDE} zeroinitializer")
        return text


def _definition() -> str:
    """The function that multiplies: six vectors of lanes' elements in, two out.

    Not inlined: LLVM would mix the steps of many products, and their sums do not all fit into
    registers (1024^3 with 16 sums a simdgroup: 134 ms inlined).
    """
    product = _Product()
    parameters = [f"%{letter}{part}" for letter in "abc" for part in range(2)]
    results = product.write(parameters)
    first = product.op(f"insertvalue {_RESULT} poison, {_WIDE} {results[0]}, 0")
    both = product.op(f"insertvalue {_RESULT} {first}, {_WIDE} {results[1]}, 1")
    listed = ", ".join(f"{_WIDE} {parameter}" for parameter in parameters)
    header = f"define internal {_CONVENTION} {_RESULT} @{_NAME}({listed})"
    header += " noinline nounwind memory(none) ATTRIBUTES {"
    return "\n".join([header, *product.lines, f"  ret {_RESULT} {both}", "}"])


class _Product:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def op(self, text: str) -> str:
        name = f"%v.{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def write(self, texts: list[str]) -> tuple[str, str]:
        left, right, start = (self._row_pairs(texts[2 * i], texts[2 * i + 1]) for i in range(3))
        rows_twice = [self._row_twice(right[k // 2], k % 2) for k in range(SIDE)]
        sums = []
        for pair in range(SIDE // 2):
            total = start[pair]
            for k in range(SIDE):
                column = self._shuffled(left[pair], "poison", PAIR, [k] * SIDE + [SIDE + k] * SIDE)
                kind = f"<{PAIR} x float>"
                listed = ", ".join(f"{kind} {text}" for text in (column, rows_twice[k], total))
                total = self.op(f"call {kind} @llvm.fma.v{PAIR}f32({listed})")
            sums.append(total)
        return self._lanes(sums, 0), self._lanes(sums, 1)

    def _row_pairs(self, first: str, second: str) -> list[str]:
        """A matrix as four vectors of two rows."""
        return [
            self._shuffled(first, second, WIDTH, _IN_ROW_ORDER[start : start + PAIR])
            for start in range(0, ELEMENTS, PAIR)
        ]

    def _row_twice(self, pair: str, which: int) -> str:
        row = [which * SIDE + column for column in range(SIDE)]
        return self._shuffled(pair, "poison", PAIR, row * 2)

    def _lanes(self, pairs: list[str], part: int) -> str:
        """The first or the second elements, in lane order."""
        halves = [
            self._shuffled(pairs[i], pairs[i + 1], PAIR, list(range(2 * PAIR))) for i in (0, 2)
        ]
        places = [_row(lane) * SIDE + _column(lane) + part for lane in range(WIDTH)]
        return self._shuffled(halves[0], halves[1], 2 * PAIR, places)

    def _shuffled(self, first: str, second: str, count: int, numbers: list[int]) -> str:
        kind = f"<{count} x float>"
        mask = ", ".join(f"i32 {number}" for number in numbers)
        return self.op(
            f"shufflevector {kind} {first}, {kind} {second}, <{len(numbers)} x i32> <{mask}>"
        )
