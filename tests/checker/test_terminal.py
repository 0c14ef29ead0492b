"""The text for people: plain in a pipe, coloured in a terminal, the same words in both."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from sightings import READ, WRITE, overrun, race, unwritten

from anymetal.checker.finding import Finding, Launched, Place
from anymetal.checker.report import Report
from anymetal.checker.terminal import excerpt, plain_finding, print_report, summary, who
from anymetal.nouns import Position

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def report_of(*findings: Finding) -> Report:
    report = Report()
    for finding in findings:
        report.launch(finding.kernel)
        report.add(finding)
    return report


def printed(report: Report, color: bool | None = None) -> str:
    stream = io.StringIO()
    print_report(report, stream, color)
    return stream.getvalue()


def test_race_has_two_lines_in_columns() -> None:
    (finding,) = report_of(race(), race(), race()).findings
    assert plain_finding(finding).splitlines() == [
        "error[race] in softmax_rows: race on threadgroup 'partial' element 3",
        "  write  thread 96 of threadgroup 0, lane 0  kernels/softmax_rows.metal:36:5"
        "  partial[simd] = total;",
        " " * 78 + "^",
        "  read   thread 5 of threadgroup 0, lane 5   kernels/softmax_rows.metal:41:9"
        "  sum += partial[i];",
        " " * 78 + "^",
        "  partial[3], seen 3 times",
        "  launch 2, at train.py:7, in tests/test_rows.py::test_rows[5]",
        "  Put threadgroup_barrier(mem_flags::mem_threadgroup) between lines 36 and 41.",
    ]


def test_single_place_seen_once() -> None:
    lines = plain_finding(report_of(overrun()).findings[0]).splitlines()
    assert lines[1].split() == [
        *["write", "thread", "176", "of", "threadgroup", "4,", "lane", "16"],
        *["kernels/softmax_rows.metal:7:5", "out[in_grid]", "=", "value;"],
    ]
    assert lines[1].index("out[") == lines[2].index("^")
    assert lines[3] == "  out[1200]"


def test_finding_by_no_thread_and_its_count_is_of_elements() -> None:
    text = plain_finding(report_of(unwritten()).findings[0])
    assert text.startswith("warning[unwritten_output] in fill: 200 of 1000 elements")
    assert "kernels/softmax_rows.metal:3:18" in text
    assert "thread" not in text.splitlines()[1]
    assert "times" not in text


def test_finding_without_a_place_has_no_empty_line() -> None:
    nowhere = Place(None, "", "", None, None, None)
    finding = overrun(kind="limits", place=nowhere, buffer=None, index=None, hint="Do less.")
    assert plain_finding(finding).splitlines() == [
        "error[limits] in fill: write of 4 bytes outside device 'out', at element 1200",
        "  Do less.",
    ]


def test_positions_in_three_dimensions() -> None:
    assert (
        who(replace(WRITE, thread=(1, 2, 0))) == "thread (1, 2, 0) of threadgroup (0, 0, 0), lane 0"
    )
    assert who(replace(WRITE, thread=None, lane=None)) == "threadgroup 0"


def test_long_excerpt_is_cut_around_the_column() -> None:
    for column in (1, 2, 40, 250, 470, 499, 500):
        text = "x" * (column - 1) + "@" + "x" * (500 - column)
        position = Position("a.metal", 3, column)
        shown, caret = excerpt(replace(READ, excerpt=text, position=position))
        assert caret is not None
        assert shown[caret] == "@"
        assert len(shown) <= 100
        assert shown.startswith("...") == (column > 50)
        assert shown.endswith("...") == (column < 450)


def test_no_caret_where_the_column_is_not_in_the_line() -> None:
    assert excerpt(replace(READ, excerpt="  short", position=Position("a", 1, 40))) == (
        "short",
        None,
    )
    assert excerpt(replace(READ, excerpt="\ty[i] = 1;", position=Position("a", 1, 2)))[1] == 0


def test_text_without_a_file_names_the_call_that_compiled_it() -> None:
    launch = Launched(1, None, None, Position("/home/ann/train.py", 30, 1))
    nowhere = replace(READ, position=Position("<shader>", 3, 1))
    assert "  launch 1, source from /home/ann/train.py:30" in plain_finding(
        overrun(launch=launch, place=nowhere)
    )
    assert "source from" not in plain_finding(overrun(launch=launch))


def test_pipe_is_plain_and_not_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    report = report_of(race(), unwritten())
    text = printed(report)
    assert not ESCAPE.search(text)
    assert text == str(report) + "\n"
    assert "between lines 36 and 41." in text.splitlines()[7]


def test_terminal_is_coloured_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    report = report_of(race(), unwritten())
    text = printed(report, color=True)
    assert "\x1b[1;31merror[race]\x1b[0m" in text
    assert "\x1b[1;33mwarning[unwritten_output]\x1b[0m" in text
    plain = "\n".join(line.rstrip() for line in ESCAPE.sub("", text).splitlines())
    assert plain == str(report)


def test_text_that_looks_like_markup_stays() -> None:
    report = report_of(overrun(message="wrote [red]x[/red] :smile: to [[buffer(0)]]"))
    assert "wrote [red]x[/red] :smile: to [[buffer(0)]]" in ESCAPE.sub("", printed(report, True))


@pytest.mark.parametrize(
    ("findings", "text"),
    [
        ([], "anymetal check: no kernel was launched"),
        ([overrun()], "anymetal check: 1 kernel, 1 launch, 1 error"),
        ([overrun(), overrun()], "anymetal check: 1 kernel, 2 launches, 1 error"),
        ([overrun(), race()], "anymetal check: 2 kernels, 2 launches, 2 errors"),
        ([overrun(), unwritten()], "anymetal check: 1 kernel, 2 launches, 1 error, 1 warning"),
    ],
)
def test_summary_counts(findings: list[Finding], text: str) -> None:
    assert summary(report_of(*findings)) == text


def test_summary_of_a_clean_run_and_of_silenced_findings() -> None:
    report = Report()
    report.launch("fill")
    assert summary(report) == "anymetal check: 1 kernel, 1 launch, nothing found"
    report.add_silenced(race(), "one simdgroup only")
    assert summary(report) == "anymetal check: 1 kernel, 1 launch, nothing found, 1 silenced"
