"""Comments that silence: they need a kind and a reason, at the line or directly above it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sightings import READ, overrun, race

from anymetal.checker.finding import Finding, Place
from anymetal.checker.report import Report
from anymetal.nouns import Position

CODE = "    found[0] = 1;"


def finding_at(text: str, line: int, kind: str = "race", file: str = "k.metal") -> Finding:
    """A finding at a line of a source."""
    excerpt = text.splitlines()[line - 1]
    where = Place(Position(file, line, 5), excerpt, "write", (1, 0, 0), (0, 0, 0), 1)
    return race(kind=kind, place=where, other=None)


def report_of(text: str, line: int, kind: str = "race") -> Report:
    """The report after one finding at a line of a source that is not on disk."""
    lines = text.splitlines()

    def excerpts(position: Position) -> str | None:
        return lines[position.line - 1] if 0 < position.line <= len(lines) else None

    report = Report()
    report.add(finding_at(text, line, kind), excerpts)
    return report


@pytest.mark.parametrize(
    "comment",
    [
        "// anymetal: allow(race) every thread writes the same flag",
        "//anymetal:allow(race): every thread writes the same flag",
        "/* anymetal: allow(race) every thread writes the same flag */",
        "/// anymetal: allow( race ) - every thread writes the same flag",
        "// anymetal: allow(uninitialised, race) every thread writes the same flag",
    ],
)
def test_comment_with_reason_silences(comment: str) -> None:
    for text, line in ((f"{CODE} {comment}", 1), (f"    {comment}\n{CODE}", 2)):
        report = report_of(text, line)
        assert report.findings == ()
        ((finding, reason),) = report.silenced
        assert finding.kind == "race"
        assert reason == "every thread writes the same flag"


def test_comment_above_may_go_on_for_lines() -> None:
    text = f"// anymetal: allow(race) every thread writes\n// the same flag\n{CODE}"
    assert report_of(text, 3).findings == ()


def test_silenced_findings_fold() -> None:
    report = Report()
    for _ in range(3):
        report.add(finding_at(f"{CODE} // anymetal: allow(race) same flag", 1))
    assert [(found.count, reason) for found, reason in report.silenced] == [(3, "same flag")]


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("// anymetal: allow(race)", "gives no reason"),
        ("// anymetal: allow(race) --- ", "gives no reason"),
        ("/* anymetal: allow(race) */", "gives no reason"),
        ("// anymetal: allow(rase) the same flag", "unknown kind 'rase'"),
        ("// anymetal: allow() the same flag", "names no kind"),
        ("// anymetal: allow the same flag", "names no kind"),
    ],
)
def test_faulty_comment_does_not_silence_and_is_a_warning(comment: str, words: str) -> None:
    report = report_of(f"{CODE} {comment}", 1)
    assert [finding.kind for finding in report.errors] == ["race"]
    (warning,) = report.warnings
    assert warning.kind == "silence"
    assert words in warning.message
    assert warning.column == len(CODE) + 2


def test_faulty_comment_is_one_warning_however_often() -> None:
    report = Report()
    for _ in range(3):
        report.add(finding_at(f"{CODE} // anymetal: allow(race)", 1))
    assert [(found.kind, found.count) for found in report] == [("silence", 1), ("race", 3)]


def test_faulty_comment_can_be_switched_off() -> None:
    report = Report({"silence": "off"})
    report.add(finding_at(f"{CODE} // anymetal: allow(race)", 1))
    assert [found.kind for found in report] == ["race"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{CODE} // anymetal: allow(uninitialised) filled by the host", 1),
        (f"// anymetal: allow(race) the same flag\n\n{CODE}", 3),
        (f"int x; // anymetal: allow(race) the same flag\n{CODE}", 2),
        (f"{CODE}\n// anymetal: allow(race) the same flag", 1),
        (f"{CODE} // we allow(race) here", 1),
    ],
    ids=["another kind", "blank line between", "code above", "comment below", "other words"],
)
def test_comment_elsewhere_does_not_silence(text: str, line: int) -> None:
    report = report_of(text, line)
    assert [finding.kind for finding in report] == ["race"]
    assert report.silenced == ()


def test_comment_at_the_other_place_silences() -> None:
    report = Report()
    place = replace(READ, excerpt=READ.excerpt + " // anymetal: allow(race) one simdgroup only")
    report.add(race(other=place))
    assert report.findings == ()


def test_comment_above_is_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "k.metal"
    file.write_text(f"// anymetal: allow(race) the same flag\n{CODE}\n")
    report = Report()
    report.add(finding_at(file.read_text(), 2, file=str(file)))
    assert report.findings == ()


def test_comment_above_is_not_read_from_a_file_that_changed(tmp_path: Path) -> None:
    file = tmp_path / "k.metal"
    file.write_text(f"// anymetal: allow(race) the same flag\n{CODE}\n")
    report = Report()
    report.add(finding_at("kernel\n    found[1] = 2;", 2, file=str(file)))
    assert len(report) == 1


def test_finding_without_a_place_is_not_silenced() -> None:
    report = Report()
    report.add(overrun(place=Place(None, "", "", None, None, None)))
    assert len(report) == 1
