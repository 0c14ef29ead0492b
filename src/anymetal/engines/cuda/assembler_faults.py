"""What NVIDIA's assembler of CUDA 13.0 gets wrong, and drivers of that version with it, said in
other words. That of CUDA 13.4 has neither fault.

It looks through shuffles of constants, as LLVM does not. Where the distance of a left shift, which
Metal takes modulo 32, turns out to be a negative constant, it drops the mask and makes 0 of
`(x & 3) << (n & 31)`. And it takes the negative of a short, or its absolute value, to fit a short:
-32768 becomes 32768 where the result is made an int.
"""

from __future__ import annotations

import re

from anymetal.engines.cuda.assembly import Line, definitions, lines_of, text_of

_MASK = re.compile(r"^\s*and\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+), 31;")
_SHIFT = re.compile(r"^\s*shl\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+|-?\d+), (?P<by>%r\d+);")
_NEGATED = re.compile(r"^\s*neg\.s16\s+(?P<to>%rs\d+), (?P<of>%rs\d+);")
_ABSOLUTE = re.compile(r"^\s*abs\.s16\s+(?P<to>%rs\d+), (?P<of>%rs\d+);")
_DIFFERENCE = "sub.s16"


def avoid_assembler_faults(text: str) -> str:
    return text_of(_without_sign(line) for line in _with_wrapping_shifts(lines_of(text)))


def _with_wrapping_shifts(lines: list[Line]) -> list[Line]:
    """The mask is left out too, where what it was applied to is still what it was."""
    written = definitions(lines)
    masks = {mask["to"]: mask["of"] for line in lines if (mask := _MASK.match(line.text))}
    for place, line in enumerate(lines):
        shift = _SHIFT.match(line.text)
        if shift is None or written[shift["by"]] != 1 or shift["by"] not in masks:
            continue
        unmasked = masks[shift["by"]]
        by = unmasked if written[unmasked] == 1 else shift["by"]
        lines[place] = Line(f"\tshf.l.wrap.b32 \t{shift['to']}, 0, {shift['of']}, {by};")
    return lines


def _without_sign(line: Line) -> Line:
    """Differences of shorts as those of unsigned ones, which wrap around."""
    if negated := _NEGATED.match(line.text):
        return Line(f"\tsub.u16 \t{negated['to']}, 0, {negated['of']};")
    if absolute := _ABSOLUTE.match(line.text):
        to, of = absolute["to"], absolute["of"]
        opposite = f"sub.u16 \t%negated, 0, {of};"
        return Line(f"\t{{ .reg .b16 %negated; {opposite} max.s16 \t{to}, {of}, %negated; }}")
    if line.opcode == _DIFFERENCE:
        return Line(line.text.replace(_DIFFERENCE, "sub.u16", 1))
    return line
