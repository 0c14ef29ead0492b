"""JUnit XML: a case for each clean kernel and each finding; errors fail, warnings when strict."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from sightings import overrun, race, unwritten

from anymetal.checker.finding import Finding
from anymetal.checker.junit import junit_text
from anymetal.checker.report import Report


def suite_of(report: Report, strict: bool = False) -> ElementTree.Element:
    root = ElementTree.fromstring(junit_text(report, strict))
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    for name, tag in (("tests", "testcase"), ("failures", ".//failure"), ("skipped", ".//skipped")):
        assert int(suite.attrib[name]) == int(root.attrib[name]) == len(suite.findall(tag))
    assert suite.attrib["errors"] == "0"
    return suite


def report_of(*findings: Finding) -> Report:
    report = Report()
    for finding in findings:
        report.launch(finding.kernel)
        report.add(finding)
    return report


def test_clean_kernel_is_a_passing_case() -> None:
    report = Report()
    report.launch("fill", 5)
    (case,) = suite_of(report)
    assert (case.attrib["classname"], case.attrib["name"]) == ("fill", "no defect")
    assert len(case) == 0


def test_error_is_a_failing_case_and_its_kernel_is_not_clean() -> None:
    (case,) = suite_of(report_of(race()))
    assert case.attrib["name"] == "race of partial at kernels/softmax_rows.metal:41:9"
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "race"
    assert failure.text is not None
    assert "partial[simd] = total;" in failure.text


@pytest.mark.parametrize(("strict", "failures"), [(False, 0), (True, 1)])
def test_warning_fails_when_strict(strict: bool, failures: int) -> None:
    suite = suite_of(report_of(unwritten()), strict)
    assert len(suite.findall("testcase/failure")) == failures
    assert "800" in "".join(suite.itertext())
    assert len(suite) == 2 - failures  # without a failure the kernel itself passes


def test_silenced_is_a_skipped_case() -> None:
    report = Report()
    report.add_silenced(race(), "one simdgroup only")
    (case,) = suite_of(report)
    skipped = case.find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "silenced: one simdgroup only"


def test_text_that_xml_cannot_hold() -> None:
    suite = suite_of(report_of(overrun(message="a < b && c > \"d\" \x00\x1b \ud800 'é'")))
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib["message"] == "a < b && c > \"d\" ?? ? 'é'"
