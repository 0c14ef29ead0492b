"""Bytes that a shift moves and masks take out: one instruction, and the same numbers."""

from __future__ import annotations

import re

import pytest

from anymetal.engines.cuda.bytes import take_bytes

WORD = 0x89ABCDEF


def shifted(by: int, *masks: int, more: str = "") -> str:
    lines = [f"\tshr.u32 \t%r2, %r1, {by};"]
    lines += [f"\tand.b32 \t%r{10 + i}, %r2, {mask};" for i, mask in enumerate(masks)]
    return "\n".join([*lines, more])


def permuted(text: str) -> int:
    """What prmt makes of WORD and 0."""
    found = re.search(r"prmt\.b32 \t%r2, %r1, 0, (\d+);", text)
    assert found is not None
    places = WORD.to_bytes(4, "little") + bytes(4)
    selector = int(found[1])
    return sum(places[selector >> 4 * i & 0xF] << 8 * i for i in range(4))


@pytest.mark.parametrize(
    ("by", "whole", "part"),
    [(8, 0x00FF00FF, 0x00F000F0), (8, 0xFF, 0x0F), (16, 0xFF, 0x80), (8, 0x00FF00FF, 0x00F00000)],
)
def test_masks_of_whole_bytes_have_nothing_to_do(by: int, whole: int, part: int) -> None:
    made = take_bytes(shifted(by, whole, part))
    assert "shr" not in made
    assert permuted(made) == WORD >> by & whole
    assert "mov.b32 \t%r10, %r2;" in made
    assert f"and.b32 \t%r11, %r2, {part};" in made


@pytest.mark.parametrize(
    "text",
    [
        shifted(8, 0x00F000F0),  # no mask of whole bytes
        shifted(4, 0x00FF00FF),
        shifted(8, 0x00FF00FF, more="\tadd.s32 \t%r3, %r2, 1;"),
        shifted(8, 0x00FF00FF, more="\tst.shared.b32 \t[%r4], %r2;"),
        shifted(8, 0x00FF00FF, more="\tmov.b32 \t%r2, 1;"),
        shifted(8, 0x00FF00FF, more="\tmma.sync {%r5}, {%r2}, {%r2}, {%r5};"),
    ],
)
def test_shifts_of_which_more_is_used_stay(text: str) -> None:
    assert take_bytes(text) == text
