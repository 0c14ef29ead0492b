"""SARIF: checked against the properties that version 2.1.0 of the standard allows and requires."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sightings import READ, overrun, race, unwritten

from anymetal.checker.finding import Finding, Place
from anymetal.checker.kinds import KINDS
from anymetal.checker.report import Report
from anymetal.checker.sarif import sarif_data, sarif_text
from anymetal.nouns import Position

# For each object of the standard that we write: its properties, and the type of each. A star marks
# a required one, a list an array of objects. Other properties of an object are faults.
OBJECTS: dict[str, dict[str, Any]] = {
    "log": {"$schema": str, "*version": str, "*runs": ["run"]},
    "run": {"*tool": "tool", "columnKind": str, "results": ["result"]},
    "tool": {"*driver": "driver"},
    "driver": {"*name": str, "version": str, "rules": ["rule"]},
    "rule": {
        "*id": str,
        "name": str,
        "shortDescription": "text",
        "defaultConfiguration": "configuration",
        "properties": dict,
    },
    "configuration": {"level": str},
    "text": {"*text": str},
    "result": {
        "ruleId": str,
        "ruleIndex": int,
        "level": str,
        "*message": "text",
        "locations": ["location"],
        "relatedLocations": ["location"],
        "occurrenceCount": int,
        "partialFingerprints": dict,
        "suppressions": ["suppression"],
        "properties": dict,
    },
    "location": {
        "id": int,
        "physicalLocation": "physical",
        "logicalLocations": ["logical"],
        "message": "text",
    },
    "physical": {"artifactLocation": "artifact", "region": "region"},
    "artifact": {"uri": str},
    "region": {"startLine": int, "startColumn": int, "snippet": "snippet"},
    "snippet": {"text": str},
    "logical": {"name": str, "kind": str},
    "suppression": {"*kind": str, "status": str, "justification": str},
}


def assert_valid(value: Any, wanted: Any, path: str = "log") -> None:
    """Fail where an object lacks what is required, or has what the standard does not know."""
    if isinstance(wanted, list):
        assert isinstance(value, list), path
        for number, item in enumerate(value):
            assert_valid(item, wanted[0], f"{path}[{number}]")
    elif isinstance(wanted, str):
        properties = {name.lstrip("*"): kind for name, kind in OBJECTS[wanted].items()}
        required = {name[1:] for name in OBJECTS[wanted] if name.startswith("*")}
        assert required <= value.keys() <= properties.keys(), path
        for name, item in value.items():
            assert_valid(item, properties[name], f"{path}.{name}")
    else:
        assert isinstance(value, wanted), path
        assert not isinstance(value, bool), path


def sarif_of(*findings: Finding) -> dict[str, Any]:
    report = Report()
    for finding in findings:
        report.add(finding)
    return json.loads(sarif_text(report))  # type: ignore[no-any-return]


def results_of(*findings: Finding) -> list[dict[str, Any]]:
    return sarif_of(*findings)["runs"][0]["results"]  # type: ignore[no-any-return]


def uri_of(result: dict[str, Any]) -> str:
    return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]  # type: ignore[no-any-return]


def test_log_has_the_structure_of_the_standard() -> None:
    nowhere = Place(None, "", "", None, None, None)
    report = Report()
    for finding in (race(), overrun(), unwritten(), overrun(kind="limits", place=nowhere)):
        report.add(finding)
    report.add_silenced(race(kernel="scan"), "one simdgroup only")
    log = json.loads(json.dumps(sarif_data(report)))
    assert_valid(log, "log")
    assert log["version"] == "2.1.0"
    assert len(log["runs"][0]["results"]) == 5


def test_structure_check_finds_a_fault() -> None:
    log = sarif_of(race())
    log["runs"][0]["results"][0]["colour"] = "red"
    with pytest.raises(AssertionError):
        assert_valid(log, "log")
    log = sarif_of(race())
    del log["runs"][0]["results"][0]["message"]
    with pytest.raises(AssertionError):
        assert_valid(log, "log")


def test_every_kind_is_a_rule_and_results_point_to_theirs() -> None:
    log = sarif_of(*(overrun(kind=kind) for kind in KINDS))
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(KINDS)
    for result in log["runs"][0]["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning")


def test_result_tells_where_and_who() -> None:
    (result,) = results_of(race(), race())
    assert result["occurrenceCount"] == 2
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (41, 9)
    assert result["properties"]["thread"] == [5, 0, 0]
    related, launch = result["relatedLocations"]
    assert launch["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    assert launch["physicalLocation"]["region"]["startLine"] == 7
    assert result["properties"]["test"] == "tests/test_rows.py::test_rows[5]"
    assert related["physicalLocation"]["region"]["startLine"] == 36
    assert "[kernels/softmax_rows.metal:36:5](1)" in result["message"]["text"]
    assert "threadgroup_barrier" in result["message"]["text"]


def test_silenced_finding_is_suppressed_with_its_reason() -> None:
    report = Report()
    report.add_silenced(race(), "one simdgroup only")
    (result,) = sarif_data(report)["runs"][0]["results"]
    assert result["suppressions"] == [
        {"kind": "inSource", "status": "accepted", "justification": "one simdgroup only"}
    ]


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("kernels/fill.metal", "kernels/fill.metal"),
        ("<shader>", "%3Cshader%3E"),
        ("a folder/fill.metal", "a%20folder/fill.metal"),
        ("/elsewhere/fill.metal", "file:///elsewhere/fill.metal"),
    ],
)
def test_uri_is_a_reference(file: str, uri: str) -> None:
    (result,) = results_of(overrun(place=replace(READ, position=Position(file, 1, 1))))
    assert uri_of(result) == uri
    urlsplit(uri)


def test_uri_inside_the_working_directory_is_relative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "kernels" / "fill.metal")
    (result,) = results_of(overrun(place=replace(READ, position=Position(file, 1, 1))))
    assert uri_of(result) == "kernels/fill.metal"


def test_fingerprint_does_not_move_with_the_line() -> None:
    def fingerprint(finding: Finding) -> str:
        return results_of(finding)[0]["partialFingerprints"]["anymetalDefect/v1"]  # type: ignore[no-any-return]

    moved = replace(READ, position=Position("kernels/softmax_rows.metal", 99, 1))
    assert fingerprint(race()) == fingerprint(race(place=moved))
    assert fingerprint(race()) != fingerprint(race(place=replace(READ, excerpt="x = y;")))
