"""Left shifts whose distance is masked, by the instruction that wraps.

Metal takes a distance modulo 32, so LLVM masks it. NVIDIA's assembler of CUDA 13.0 looks through
shuffles of constants, as LLVM does not; where the distance turns out to be a negative constant, it
drops the mask and makes 0 of `(x & 3) << (n & 31)`.
"""

from __future__ import annotations

import re

from anymetal.engines.cuda.assembly import Line, definitions, lines_of, text_of

_MASK = re.compile(r"^\s*and\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+), 31;")
_SHIFT = re.compile(r"^\s*shl\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+|-?\d+), (?P<by>%r\d+);")


def wrap_left_shifts(text: str) -> str:
    """The mask is left out too, where what it was applied to is still what it was."""
    lines = lines_of(text)
    written = definitions(lines)
    masks = {mask["to"]: mask["of"] for line in lines if (mask := _MASK.match(line.text))}
    for place, line in enumerate(lines):
        shift = _SHIFT.match(line.text)
        if shift is None or written[shift["by"]] != 1 or shift["by"] not in masks:
            continue
        unmasked = masks[shift["by"]]
        by = unmasked if written[unmasked] == 1 else shift["by"]
        lines[place] = Line(f"\tshf.l.wrap.b32 \t{shift['to']}, 0, {shift['of']}, {by};")
    return text_of(lines)
