"""JSON: what is written can be read by others, and comes back as the same report."""

from __future__ import annotations

import json

import pytest
from sightings import overrun, race, unwritten

from anymetal.checker.json_report import json_text, report_data, report_from
from anymetal.checker.report import Report


@pytest.fixture
def report() -> Report:
    report = Report()
    report.launch("softmax_rows", 3)
    report.launch("fill")
    for finding in (race(), race(), overrun(), unwritten()):
        report.add(finding)
    report.add_silenced(race(kernel="scan"), "one simdgroup only")
    return report


def test_json_has_every_field(report: Report) -> None:
    data = json.loads(json_text(report))
    assert data["summary"] == {
        "kernels": 2,
        "launches": 4,
        "errors": 2,
        "warnings": 1,
        "silenced": 1,
    }
    assert data["launches"] == {"softmax_rows": 3, "fill": 1}
    first = data["findings"][0]
    other = first.pop("other")
    assert first.pop("hint").startswith("Put threadgroup_barrier")
    assert first == {
        "kind": "race",
        "severity": "error",
        "kernel": "softmax_rows",
        "message": "race on threadgroup 'partial' element 3",
        "file": "kernels/softmax_rows.metal",
        "line": 41,
        "column": 9,
        "excerpt": "        sum += partial[i];",
        "access": "read",
        "thread": [5, 0, 0],
        "threadgroup": [0, 0, 0],
        "lane": 5,
        "buffer": "partial",
        "space": "threadgroup",
        "index": 3,
        "count": 2,
        "launch": {
            "number": 2,
            "test": "tests/test_rows.py::test_rows[5]",
            "caller": {"file": "train.py", "line": 7, "column": 1},
            "source": None,
        },
    }
    assert (other["line"], other["access"], other["thread"]) == (36, "write", [96, 0, 0])
    assert data["silenced"][0]["reason"] == "one simdgroup only"


def test_report_comes_back(report: Report) -> None:
    again = report_from(json.loads(json_text(report)))
    assert again.findings == report.findings
    assert again.silenced == report.silenced
    assert again.launches == report.launches


def test_finding_without_a_place_comes_back() -> None:
    report = Report()
    report.add(unwritten(place=unwritten().place))
    assert report_from(report_data(report)).findings == report.findings


def test_other_format_is_refused(report: Report) -> None:
    with pytest.raises(ValueError, match="format 99"):
        report_from({**report_data(report), "format": 99})
