"""Kernels in Python files: findings name the file, its line, the launch and the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import anymetal
from anymetal.checker.annotations import annotation
from anymetal.checker.inline_source import InlineSource
from anymetal.checker.json_report import json_text, report_from
from anymetal.checker.report import Report
from anymetal.checker.sarif import sarif_data
from anymetal.nouns import Position

HERE = str(Path(__file__).absolute())
SHIFT = """#include <metal_stdlib>
using namespace metal;
kernel void shift(device float* y, uint i [[thread_position_in_grid]]) {
  y[i + 1] = 1;  // found here
}
"""


def line_of(text: str) -> int:
    """The first line of this file that has the text."""
    lines = Path(HERE).read_text().splitlines()
    return min(number for number, line in enumerate(lines, 1) if text in line)


def report_of(source: str) -> Report:
    with anymetal.check(outputs=()) as report:
        anymetal.compile_shader(source).shift(torch.zeros(4))  # launched here
    return report


def test_finding_names_line_of_the_literal_launch_and_test() -> None:
    (finding,) = report_of(SHIFT).findings
    place, launch = finding.place.position, finding.launch
    found = line_of("// found here")
    assert place == Position(HERE, found, 12)
    assert launch is not None
    assert launch.number == 1
    assert launch.caller == Position(HERE, line_of(".shift(torch.zeros(4))  # launched"), 1)
    assert launch.test == (
        "tests/checker/test_inline_source.py::"
        "test_finding_names_line_of_the_literal_launch_and_test"
    )
    shown = "tests/checker/test_inline_source.py"
    assert f"file={shown},line={found},col=12," in annotation(finding)
    finding_report = report_of(SHIFT)
    assert f"{shown}:{found}:12" in str(finding_report)
    (result,) = sarif_data(finding_report)["runs"][0]["results"]
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == shown
    assert physical["region"]["startLine"] == found
    data = json.loads(json_text(finding_report))
    assert data["findings"][0]["launch"]["test"] == launch.test
    assert report_from(data).findings == finding_report.findings


def test_built_text_is_where_it_was_compiled() -> None:
    source = "\n".join(["kernel", "void shift(", "device float* y) { y", "[9] = 1; }"])
    (finding,) = report_of(source).findings
    assert finding.place.position is not None
    assert finding.place.position.file == "<shader>"
    call = line_of("anymetal.compile_shader(source)")
    assert f"file=tests/checker/test_inline_source.py,line={call}," in annotation(finding)
    assert f"source from tests/checker/test_inline_source.py:{call}" in str(report_of(source))


def test_silencing_comment_in_a_literal_counts() -> None:
    comment = "  // anymetal: allow(out_of_bounds) the storage is longer\n"
    report = report_of(SHIFT.replace("  y[i", comment + "  y[i"))
    assert not report.findings
    assert len(report.silenced) == 1


@pytest.mark.parametrize(
    ("program", "source", "expected"),
    [
        ("S = '''a\nb\nc'''\n", "a\nb\nc", {1: (1, 8), 2: (2, 1), 3: (3, 1)}),
        ("S = '''\\\na\nb'''\n", "a\nb", {1: (2, 1), 2: (3, 1)}),
        ("T = '''x1\nsame'''\n\nS = '''x1\nsame'''\ncall\n", "x1\nsame", {1: (4, 8), 2: (5, 1)}),
        # Half of it is elsewhere, and an f-string doubles its braces.
        (
            "S = HEAD + f'''\nvoid f() {{\n  x = {N};\n  y = 3;\n}}\n'''\n",
            "head\n\nvoid f() {\n  x = 7;\n  y = 3;\n}\n",
            {3: (2, 1), 4: (3, 1), 5: (4, 1), 1: None},
        ),
        ("S = 'a\\nb'\n", "a\nb", {1: None, 2: None}),
        ("this is no Python\n", "a\nb", {1: None}),
    ],
)
def test_lines_of_the_text_in_the_file(
    program: str, source: str, expected: dict[int, tuple[int, int] | None], tmp_path: Path
) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    inline = InlineSource(source, Position(str(file), 6, 1))
    for line, place in expected.items():
        before = Position("<shader>", line, 1)
        moved = Position(str(file), *place) if place else before
        assert inline.position(before) == moved
        assert inline.back(moved).line == line
    assert inline.position(Position("common.h", 1, 1)) == Position("common.h", 1, 1)


def test_header_has_a_path_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels" / "inner").mkdir(parents=True)
    header = Path("kernels/inner/put.h")
    header.write_text("inline void put(device float* y) { y[9] = 1; }\n")
    main = Path("kernels/main.metal")
    main.write_text('#include "inner/put.h"\nkernel void shift(device float* y) { put(y); }\n')
    for name in (main, main.absolute()):
        with anymetal.check() as report:
            anymetal.compile_shader(main.read_text(), name=str(name)).shift(torch.zeros(4))
        place = report.errors[0].place.position
        assert place is not None
        assert Path(place.file) == (name.parent / "inner" / "put.h")
        assert Path(place.file).exists()
