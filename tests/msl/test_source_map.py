"""Every place in the rewritten text leads back to the author's line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.msl.sources import HEADER

from anymetal.msl import prepare
from anymetal.nouns import Position, Prepared, Source


def place_of(unit: Prepared, word: str, occurrence: int = 0) -> Position | None:
    """The author's place of a word that stands in the rewritten text."""
    start = -1
    for _ in range(occurrence + 1):
        start = unit.text.index(word, start + 1)
    row = unit.text.count("\n", 0, start) + 1
    column = start - (unit.text.rfind("\n", 0, start) + 1) + 1
    return unit.source_map.position(row, column)


def author_place(text: str, word: str) -> Position:
    start = text.index(word)
    line = text.count("\n", 0, start) + 1
    return Position("<shader>", line, start - (text.rfind("\n", 0, start) + 1) + 1)


@pytest.mark.parametrize(
    "line",
    [
        "  device   float*\tunique;",
        "/* comment */ device float* unique;  // more",
        "  threadgroup float padding[4], unique[8];",
        "  float before = 0.5; float unique = (half)before;",
        "  float tab =\t\t1; float unique;",
    ],
)
def test_column_survives_the_rewrite(line: str) -> None:
    text = HEADER + "kernel void k(device float* x) {\n" + line + "\n}\n"
    unit = prepare(Source(text))
    assert place_of(unit, "unique") == author_place(text, "unique")


def test_token_of_a_macro_stands_where_the_macro_is_used() -> None:
    text = (
        HEADER
        + "#define TWICE(a) (hidden + (a))\nkernel void k() { int hidden, z = TWICE( z ); }\n"
    )
    unit = prepare(Source(text))
    assert place_of(unit, "hidden", 1) == author_place(text, "TWICE( z")


def test_argument_of_a_macro_keeps_its_own_place() -> None:
    text = (
        HEADER + "#define ID(a) (a)\nkernel void k() { int other = ID(1) + ID( unique_name ); }\n"
    )
    unit = prepare(Source(text))
    assert place_of(unit, "unique_name") == author_place(text, "unique_name")


def test_argument_on_a_later_line_keeps_its_own_place() -> None:
    text = (
        HEADER
        + "#define ADD(a, b) ((a) + (b))\nkernel void k() { int v = ADD(1,\n      unique); }\n"
    )
    unit = prepare(Source(text))
    assert place_of(unit, "unique") == author_place(text, "unique")


def test_macro_that_defines_a_whole_kernel_maps_to_its_use() -> None:
    text = (
        HEADER
        + "#define KERNEL(name, op) \\\n  kernel void name(device float* x) { x[0] = op(x[0]); }\n"
        + "KERNEL(first, exp)\n  KERNEL(second, log)\n"
    )
    unit = prepare(Source(text))
    assert unit.entry_points["second"].position == author_place(text, "second, log")


def test_place_in_an_included_file(tmp_path: Path) -> None:
    (tmp_path / "part.h").write_text("\n  inline float unique_helper(float a) { return a; }\n")
    text = HEADER + '#include "part.h"\nkernel void k() {}\n'
    unit = prepare(Source(text, include_dirs=(tmp_path,)))
    assert place_of(unit, "unique_helper") == Position(str(tmp_path / "part.h"), 2, 16)


def test_windows_line_ends() -> None:
    text = (HEADER + "kernel void k() {\n  int unique;\n}\n").replace("\n", "\r\n")
    unit = prepare(Source(text))
    assert place_of(unit, "unique") == Position("<shader>", 4, 7)


def test_excerpt_is_the_authors_line() -> None:
    unit = prepare(Source(HEADER + "kernel void k() {\n\tint unique; // here\n}\n"))
    position = place_of(unit, "unique")
    assert position is not None
    assert unit.source_map.excerpt(position) == "\tint unique; // here"


def test_place_outside_the_text_is_unknown() -> None:
    unit = prepare(Source(HEADER + "kernel void k() {}\n"))
    assert unit.source_map.position(0, 1) is None
    assert unit.source_map.position(10_000, 1) is None
