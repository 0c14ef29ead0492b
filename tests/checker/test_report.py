"""Report: equal findings are one, others stay apart, and threads can add at once."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from sightings import READ, WRITE, overrun, place, race, unwritten

from anymetal.checker.finding import Finding
from anymetal.checker.kinds import KINDS, RECORDED, documentation, hint_for
from anymetal.checker.records import HEADER
from anymetal.checker.report import Report
from anymetal.checker.scene import Between, Scene
from anymetal.nouns import Position


def report_of(*findings: Finding) -> Report:
    report = Report()
    for finding in findings:
        report.add(finding)
    return report


def test_report_empty() -> None:
    report = Report()
    assert not report
    assert report.findings == report.errors == report.warnings == ()
    assert not report.failed(strict=True)


def test_report_true_with_a_finding() -> None:
    report = report_of(overrun())
    assert report
    assert len(report) == 1
    assert [finding.kind for finding in report] == ["out_of_bounds"]


def test_fold_other_thread_and_element() -> None:
    again = overrun(
        message="write of 4 bytes outside device 'out', at element 1201",
        index=1201,
        place=place(7, "    out[in_grid] = value;", "write", thread=177, group=4),
    )
    report = report_of(overrun(), again, replace(again, count=5))
    (finding,) = report.findings
    assert finding.count == 7
    assert finding.index == 1200  # the first that was seen
    assert finding.thread == (176, 0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": "fill_half"},
        {"buffer": "other"},
        {"kind": "misaligned"},
        {"place": place(8, "    out[in_grid] = value;", "write")},
        {"place": place(7, "    out[in_grid] = value;", "read")},
        {"severity": "warning"},
        {"message": "write of 4 bytes at element 1200: past the tensor's last element"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_fold_not_another_defect(changes: dict[str, object]) -> None:
    assert len(report_of(overrun(), overrun(**changes))) == 2


def test_fold_race_in_either_order() -> None:
    (finding,) = report_of(race(), race(place=WRITE, other=READ)).findings
    assert finding.count == 2
    assert finding.place == READ


def test_fold_race_same_value_and_other_value_is_an_error() -> None:
    benign = race(severity="warning", message="several threads write the same value", index=9)
    (finding,) = report_of(benign, race()).findings
    assert (finding.severity, finding.index, finding.count) == ("error", 3, 2)
    (finding,) = report_of(race(), benign).findings
    assert (finding.severity, finding.index, finding.count) == ("error", 3, 2)


def test_errors_and_warnings_are_told_apart() -> None:
    report = report_of(unwritten(), race(), overrun())
    assert [finding.kind for finding in report.errors] == ["race", "out_of_bounds"]
    assert [finding.kind for finding in report.warnings] == ["unwritten_output"]


def test_failed_on_warnings_only_when_strict() -> None:
    report = report_of(unwritten())
    assert not report.failed()
    assert report.failed(strict=True)


def test_severity_changes_and_switches_off() -> None:
    report = Report({"unwritten_output": "error", "race": "off"})
    report.add(unwritten())
    report.add(race())
    assert [finding.kind for finding in report.errors] == ["unwritten_output"]
    assert len(report) == 1


@pytest.mark.parametrize("severity", [{"rase": "off"}, {"race": "fatal"}])
def test_severity_wrong_is_refused(severity: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="race"):
        Report(severity)  # type: ignore[arg-type]


def test_launches_are_counted() -> None:
    report = Report()
    for kernel in ("fill", "scan", "fill"):
        report.launch(kernel)
    assert report.launches == {"fill": 2, "scan": 1}
    assert report.kernels == ("fill", "scan")


def test_listener_hears_new_findings_and_worse_ones() -> None:
    heard: list[Finding] = []
    report = Report(listener=heard.append)
    for finding in (race(severity="warning"), race(severity="warning"), race(), race()):
        report.add(finding)
    assert [finding.severity for finding in heard] == ["warning", "error"]


def test_merge_folds_and_adds_up() -> None:
    one, two = report_of(race(), overrun()), report_of(race(), unwritten())
    one.launch("fill")
    two.launch("fill")
    two.launch("scan")
    one.merge(two)
    assert [(found.kind, found.count) for found in one] == [
        ("race", 2),
        ("out_of_bounds", 1),
        ("unwritten_output", 200),
    ]
    assert one.launches == {"fill": 2, "scan": 1}


def test_adding_from_many_threads_loses_nothing() -> None:
    report = Report()

    def work() -> None:
        for _ in range(200):
            report.add(race())
            report.launch("softmax_rows")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [finding.count for finding in report] == [1600]
    assert report.launches == {"softmax_rows": 1600}


def test_hint_is_filled_in_and_an_own_one_kept() -> None:
    report = report_of(race(), overrun(hint="Ask Ada."))
    assert [bool(finding.hint) for finding in report] == [True, True]
    assert report.findings[1].hint == "Ask Ada."


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("severity", ["error", "warning"])
def test_hint_is_a_sentence_for_every_kind(kind: str, severity: str) -> None:
    for finding in (race(), overrun(), unwritten(place=replace(READ, position=None))):
        hint = hint_for(replace(finding, kind=kind, severity=severity))
        assert len(hint) > 30
        assert hint[0].isupper()


AROUND = Scene(between=Between("around", loop=Position("rows.metal", 30, 3)))


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (race(), "mem_threadgroup) between lines 36 and 41"),
        (race(space="device"), "mem_device) between"),
        (race(place=WRITE, other=READ), "between lines 36 and 41"),
        (race(scene=AROUND), "end of the loop at line 30"),
        (race(place=WRITE, other=replace(WRITE, thread=(1, 0, 0))), "one thread write"),
        (race(place=replace(READ, threadgroup=(1, 0, 0))), "No barrier orders threadgroups"),
        (race(other=replace(WRITE, access="atomic write")), "atomic_store_explicit at line 41"),
        (overrun(index=-100), "below zero"),
        (overrun(), "in_grid >= count"),
        (overrun(space="threadgroup"), "fixed size"),
        (overrun(place=replace(READ)), "last tile"),
        (overrun(kind="barrier_flags", space="device"), "mem_flags::mem_device"),
        (overrun(kind="barrier_divergence", severity="warning"), "early return"),
        (overrun(kind="barrier_divergence"), "out of the branch"),
        (overrun(kind="uninitialised", space="thread"), "= {}"),
        (overrun(kind="uninitialised", space="threadgroup"), "fewer simdgroups"),
        (overrun(kind="limits", message="40 buffers are bound"), "31 buffers"),
        (overrun(kind="limits", message="65536 bytes of threadgroup memory"), "smaller tiles"),
        (overrun(kind="limits", message="2048 threads in a threadgroup"), "smaller threadgroups"),
        (overrun(kind="arithmetic", message="shift past the width"), "count & 31"),
        (overrun(kind="arithmetic", message="division by zero"), "divisor"),
    ],
)
def test_hint_fits_the_situation(finding: Finding, words: str) -> None:
    assert words in hint_for(finding)


def test_documentation_has_the_table_of_kinds(pytestconfig: pytest.Config) -> None:
    assert documentation() in (pytestconfig.rootpath / "docs" / "checker.md").read_text()


def test_kinds_of_the_shadow_runtime_are_the_recorded_ones() -> None:
    body = HEADER.path.read_text().split("enum am_kind : unsigned {")[1].split("}")[0]
    expected = [f"{kind.enumerator} = {value}" for value, kind in enumerate(RECORDED)]
    assert [line.strip() for line in body.split(",")][:-1] == expected
