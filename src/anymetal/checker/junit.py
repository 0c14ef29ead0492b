"""A report becomes JUnit XML: a test case for each kernel that ran clean, and one a finding."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from anymetal.checker.finding import Finding
from anymetal.checker.report import Report
from anymetal.checker.terminal import plain_finding, where

# What XML 1.0 cannot hold in any form; kernel text may have it in a comment.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(report: Report, strict: bool = False) -> str:
    """The file that `--junit` writes; with `strict`, warnings are failures as well."""
    suite = ElementTree.Element("testsuite", name="anymetal check")
    for kernel in report.kernels:
        if not any(_fails(finding, strict) for finding in _of(report, kernel)):
            _case(suite, kernel, "no defect")
    for finding in report.findings:
        case = _case(suite, finding.kernel, _title(finding))
        if _fails(finding, strict):
            failure = ElementTree.SubElement(case, "failure", type=finding.kind)
            failure.set("message", _clean(finding.message))
            failure.text = _clean(plain_finding(finding))
        else:
            ElementTree.SubElement(case, "system-out").text = _clean(plain_finding(finding))
    for finding, reason in report.silenced:
        case = _case(suite, finding.kernel, _title(finding))
        ElementTree.SubElement(case, "skipped", message=_clean(f"silenced: {reason}"))
    return _document(suite)


def _of(report: Report, kernel: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.kernel == kernel]


def _fails(finding: Finding, strict: bool) -> bool:
    return strict or finding.severity == "error"


def _title(finding: Finding) -> str:
    place = where(finding.place)
    about = f" of {finding.buffer}" if finding.buffer else ""
    return f"{finding.kind}{about}{' at ' if place else ''}{place}"


def _case(suite: ElementTree.Element, kernel: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname=_clean(kernel), name=_clean(name), time="0"
    )


def _document(suite: ElementTree.Element) -> str:
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("testcase/failure")),
        "errors": 0,
        "skipped": len(suite.findall("testcase/skipped")),
    }
    root = ElementTree.Element("testsuites", name="anymetal check")
    root.append(suite)
    for element in (root, suite):
        for name, number in counts.items():
            element.set(name, str(number))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def _clean(text: str) -> str:
    return _NOT_IN_XML.sub("?", text)
