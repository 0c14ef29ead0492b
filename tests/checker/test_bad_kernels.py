"""Every kernel of tests/bad_kernels gives the findings its comment names; its twin gives none."""

from __future__ import annotations

import os
import re
from dataclasses import replace

import pytest
from bad_kernel import CORPUS, FIXED, BadKernel, all_kernels, run_checked
from guards import guarded

from anymetal.checker.finding import Finding
from anymetal.checker.kinds import ROWS
from anymetal.checker.report import Report

KERNELS = all_kernels()
# At 0 nothing after the front end is optimised; at 2 every pass has had its turn at the checks: in
# every sixth kernel here, in all in `make thorough`.
STEP = 1 if os.environ.get("ANYMETAL_TEST_ALL") == "1" else 6
RUNS = [(bad, "0") for bad in KERNELS] + [(bad, "2") for bad in KERNELS[::STEP]]
KNOWN_BAD_ROWS = range(1, 17)


@pytest.mark.parametrize(("bad", "level"), RUNS, ids=[f"{b.name}-O{level}" for b, level in RUNS])
def test_findings_as_the_comment_says(
    bad: BadKernel, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", level)
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", bad.keyword("seconds") or "20")
    report = run_checked(bad)
    missing = [
        expected
        for expected in bad.expected
        if not any(expected.fits(finding) for finding in report.findings)
    ]
    known = (*bad.expected, *bad.allowed)
    extra = [
        finding
        for finding in report.findings
        if not any(expected.fits(finding) for expected in known)
    ]
    assert not missing, f"not found: {missing}\n{describe(report)}"
    assert not extra, f"not expected:\n{describe(report)}"


@pytest.mark.parametrize(
    "name",
    [
        "race/softmax_shared_slot",
        "race/last_writer_wins",
        "barrier_divergence/loop_of_own_length",
        "out_of_bounds/adamw_rounded_grid",
        "collective_divergence/loop_of_own_length",
    ],
)
def test_report_is_the_same_every_run(name: str) -> None:
    bad = next(bad for bad in KERNELS if bad.name == name)
    assert run_checked(bad).findings == run_checked(bad).findings


@pytest.mark.parametrize("bad", [b for b in KERNELS if "nan" in b.launch], ids=lambda b: b.name)
def test_nan_is_looked_for_on_request_only(bad: BadKernel) -> None:
    plain = replace(bad, launch=tuple(word for word in bad.launch if word != "nan"))
    assert not run_checked(plain).findings


@pytest.mark.parametrize("fill", [0, 0x41])
def test_wrong_kernels_write_nothing_outside(fill: int) -> None:
    """Not even between guard bytes whose values lead an index or a pointer astray."""
    for bad in KERNELS:
        if any(expected.kind in ("out_of_bounds", "element_size") for expected in bad.expected):
            memory = guarded(bad.arguments(), fill)
            report = run_checked(bad, memory.arguments)
            assert report.errors, bad.name
            assert not memory.touched(), bad.name


# Those about the host have theirs in tests/extension.
@pytest.mark.parametrize("kind", [row.name for row in ROWS if row.about not in ("comment", "host")])
def test_corpus_has_three_of_each_kind(kind: str) -> None:
    bad = [bad for bad in KERNELS if any(expected.kind == kind for expected in bad.expected)]
    assert len(bad) >= 3


@pytest.mark.parametrize("row", KNOWN_BAD_ROWS)
def test_corpus_has_every_known_bad_row(row: int) -> None:
    marked = re.compile(rf"\(known-bad\s+row {row}\)")
    openings = ["\n".join(bad.path.read_text().splitlines()[:5]) for bad in KERNELS]
    assert any(marked.search(re.sub(r"\n//", "", opening)) for opening in openings)


@pytest.mark.parametrize("bad", KERNELS, ids=lambda bad: bad.name)
def test_corpus_is_made_of_pairs(bad: BadKernel) -> None:
    if bad.path.name.endswith(FIXED):
        assert not bad.expected
        assert bad.path.with_name(bad.path.name.replace(FIXED, ".metal")).exists()
    else:
        assert bad.expected or bad.allowed
        assert bad.path.with_name(f"{bad.path.stem}{FIXED}").exists()
    assert bad.path.is_relative_to(CORPUS)


def describe(report: Report) -> str:
    return "\n".join(_line(finding) for finding in report.findings) or "nothing was found"


def _line(finding: Finding) -> str:
    other = f" other {finding.other.line}" if finding.other else ""
    facts = f"buffer {finding.buffer} index {finding.index} count {finding.count}"
    where = f"line {finding.line}{other} {facts}"
    return f"{finding.kind} {finding.severity} {where}: {finding.message}"
