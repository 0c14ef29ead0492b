"""Bytes that a shift moves and masks take out, by one instruction: a permutation moves them and
leaves zeros around them, so that the mask of whole bytes has nothing left to do."""

from __future__ import annotations

import re

from anymetal.engines.cuda.assembly import Line, definitions, lines_of, text_of

_SHIFT = re.compile(r"^\s*shr\.u32\s+(?P<to>%r\d+), (?P<of>%r\d+), (?P<by>8|16|24);")
_MASK = re.compile(r"^\s*and\.b32\s+(?P<to>%r\d+), (?P<of>%r\d+), (?P<mask>\d+);")
_BYTES = range(4)
_ZERO = 4  # the first byte of the second operand


def take_bytes(text: str) -> str:
    """Rewrites shifts of which masks take some bytes and nobody takes more."""
    lines = lines_of(text)
    written, used = definitions(lines), _uses(lines)
    for place, line in enumerate(lines):
        shift = _SHIFT.match(line.text)
        if shift is None or written[shift["to"]] != 1:
            continue
        masks = {at: _MASK.match(lines[at].text) for at in used.get(shift["to"], ())}
        whole = _whole_bytes([int(mask["mask"]) for mask in masks.values() if mask])
        same = [at for at, mask in masks.items() if mask and int(mask["mask"]) == whole]
        if not same or not all(masks.values()):
            continue
        lines[place] = Line(_permutation(shift, whole))
        for at in same:
            lines[at] = Line(f"\tmov.b32 \t{lines[at].results[0]}, {shift['to']};")
    return text_of(lines)


def _uses(lines: list[Line]) -> dict[str, list[int]]:
    """Where each register is named, but as a result."""
    found: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        for register in line.registers[len(line.results) :]:
            found.setdefault(register, []).append(place)
    return found


def _whole_bytes(masks: list[int]) -> int:
    """All of the bytes of which masks take something."""
    some = 0
    for mask in masks:
        some |= mask
    return sum(0xFF << 8 * byte for byte in _BYTES if some >> 8 * byte & 0xFF)


def _permutation(shift: re.Match[str], whole: int) -> str:
    moved = int(shift["by"]) // 8
    chosen = [
        byte + moved if whole >> 8 * byte & 0xFF and byte + moved in _BYTES else _ZERO
        for byte in _BYTES
    ]
    selector = sum(place << 4 * byte for byte, place in enumerate(chosen))
    return f"\tprmt.b32 \t{shift['to']}, {shift['of']}, 0, {selector};"
