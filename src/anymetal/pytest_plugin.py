"""The pytest plugin: `--metal-check` runs the kernel calls of every test checked.

A test with findings fails with them. The marker `metal_check` asks for it at one test, whatever the
command line says: `@pytest.mark.metal_check(strict=True, nan=True)`; `enabled=False` keeps a test
out. A test that has the marker and launches no kernel fails, unless it says `launches=False`; so
does a run with the option in which no test launches any. A test that takes the fixture
`metal_report` judges the findings itself, unless it has the marker too.

The fixture `metal_compare` is `anymetal.testing.compare` for a test: it fails the test with the
first bad element, and keeps the table of all cases with the test's report.

`--mps` gives the whole run a virtual mps device; the fixture `mps` does it for a test that needs
one.

pytest loads this file in every project of an environment, so it imports the rest of the package
only where a test is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from anymetal.checker.finding import Finding
    from anymetal.checker.project import CheckOptions
    from anymetal.checker.report import Report
    from anymetal.testing import Comparison

_MARKER = "metal_check"
_FIXTURE = "metal_report"
_NOTHING = "anymetal check: no kernel was launched"
_MARKER_OPTIONS = frozenset({"enabled", "strict", "nan", "outputs", "severity", "launches"})
# The attribute of a test's report that carries its findings from an xdist worker.
_CARRIED = "anymetal_report"
_LAUNCHED = "any_launched"  # in it: under whichever check


@dataclass(frozen=True)
class Plan:
    """How one test is checked: where findings go, and whether they fail it."""

    report: Report
    fails: bool
    must_launch: bool
    strict: bool
    nan: bool
    outputs: Any

    def offences(self, findings: tuple[Finding, ...]) -> list[Finding]:
        """Those that fail the test."""
        return [found for found in findings if self.strict or found.severity == "error"]


_plan_key = pytest.StashKey[Plan]()
_options_key = pytest.StashKey["CheckOptions"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("metal-check", "checked Metal kernels (anymetal)")
    flags = {
        "": "check every Metal kernel call: races, bounds, barriers, uninitialised memory",
        "-strict": "a warning fails a checked test as well",
        "-nan": "also find where the first NaN or infinity is born",
    }
    for suffix, meaning in flags.items():
        group.addoption(f"--metal-check{suffix}", action="store_true", help=meaning)
    group.addoption(
        "--metal-check-severity",
        metavar="KIND=LEVEL",
        action="append",
        default=[],
        help="what a kind of finding counts as: error, warning or off",
    )
    for name in ("json", "sarif"):
        group.addoption(
            f"--metal-check-{name}",
            metavar="FILE",
            help=f"write the findings of all checked tests as {name.upper()}",
        )

    group.addoption(
        "--mps", action="store_true", help="give the test run a virtual mps device, on Linux"
    )


def pytest_configure(config: pytest.Config) -> None:
    _check_files(config)
    if config.getoption("mps"):
        _mps_device()
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(enabled=True, strict=False, nan=False, outputs=None, severity=None): check the"
        " Metal kernel calls of this test, and fail it with what is found",
    )
    config.pluginmanager.register(Collector(config), "anymetal-collector")


@pytest.fixture(scope="session")
def mps() -> torch.device:
    """The mps device: a Mac's own, or the virtual one, which the process then has to its end."""
    return _mps_device()


@pytest.fixture
def metal_compare(request: pytest.FixtureRequest) -> Callable[..., Comparison]:
    """`anymetal.testing.compare`, failing the test where a case fails."""
    from anymetal.evidence.judge import project_tolerance  # noqa: PLC0415
    from anymetal.testing import compare  # noqa: PLC0415

    def compared(*functions: Callable[..., Any], **options: Any) -> Comparison:
        options.setdefault("tolerance", project_tolerance(request.config.rootpath))
        comparison = compare(*functions, **options, raises=False)
        request.node.add_report_section("call", "metal compare", str(comparison))
        comparison.raise_failures()
        return comparison

    return compared


@pytest.fixture
def metal_report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """What was found in this test's kernel calls until now. The test judges it itself."""
    plan = request.node.stash.get(_plan_key, None)
    if plan is not None:
        yield plan.report
        return
    from anymetal.checker.context import check  # noqa: PLC0415

    with check() as report:
        yield report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    try:
        plan = _plan_for(item)
    except ValueError:
        yield  # pytest tears down only what it has set up
        raise
    if plan is not None:
        from anymetal.checker.report import forget_launches  # noqa: PLC0415

        item.stash[_plan_key] = plan
        forget_launches()
    with _checked(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _checked(item, "call"):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with _checked(item, "teardown"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hang the findings on the last report of a test: it reaches the process that counts them."""
    report = yield
    plan = item.stash.get(_plan_key, None)
    if plan is not None and call.when == "teardown":
        setattr(report, _CARRIED, _carried(plan))
        del item.stash[_plan_key]
    return report


class Collector:
    """All findings of the session, in the process that prints the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._parts: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        part = getattr(report, _CARRIED, None)
        if part is not None:
            self._parts.append(part)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files, unless this is a worker, which has seen a part of the tests only. A run
        that was to be checked and launched nothing fails."""
        if hasattr(self._config, "workerinput"):
            return
        passed = session.exitstatus == pytest.ExitCode.OK
        if passed and self._parts and not self._launched():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._parts:
            from anymetal.checker.step_summary import add_to_step_summary  # noqa: PLC0415

            add_to_step_summary(self._report())
        json_file = self._config.getoption("metal_check_json")
        sarif_file = self._config.getoption("metal_check_sarif")
        if json_file:
            from anymetal.checker.json_report import json_text  # noqa: PLC0415

            Path(json_file).write_text(json_text(self._report()), encoding="utf-8")
        if sarif_file:
            from anymetal.checker.sarif import sarif_text  # noqa: PLC0415

            Path(sarif_file).write_text(sarif_text(self._report()), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Warnings, which failed no test and so were not shown yet; then one line."""
        if not self._parts and not self._config.getoption("metal_check"):
            return
        from anymetal.checker.annotations import annotation_lines, wanted  # noqa: PLC0415
        from anymetal.checker.terminal import plain_finding, summary  # noqa: PLC0415

        report = self._report()
        terminalreporter.ensure_newline()
        for finding in report.warnings:
            terminalreporter.write_line(plain_finding(finding))
        for line in annotation_lines(report) if wanted() else ():
            terminalreporter.write_line(line)
        color = "red" if report.errors else "yellow" if report.warnings else "green"
        terminalreporter.write_line(summary(report), **{color: True})

    def _launched(self) -> bool:
        """Whether a test launched a kernel, in this process or in a worker."""
        return any(part[_LAUNCHED] for part in self._parts)

    def _report(self) -> Report:
        from anymetal.checker.json_report import report_from  # noqa: PLC0415
        from anymetal.checker.report import Report  # noqa: PLC0415

        whole = Report()
        for part in self._parts:
            whole.merge(report_from(part))
        return whole


def _check_files(config: pytest.Config) -> None:
    """A file that cannot be written is known before the tests have run."""
    for name in ("json", "sarif"):
        given = config.getoption(f"metal_check_{name}")
        if given:
            from anymetal.cli.files import writing_fault  # noqa: PLC0415

            problem = writing_fault(Path(given))
            if problem:
                raise pytest.UsageError(f"--metal-check-{name} {given}: {problem}")


def _mps_device() -> torch.device:
    import torch  # noqa: PLC0415

    from anymetal.device.enabling import enable, is_enabled  # noqa: PLC0415

    if not is_enabled() and not torch.backends.mps.is_available():
        enable()
    return torch.device("mps")


def _plan_for(item: pytest.Item) -> Plan | None:
    """How to check a test, by its marker, its fixtures and the command line; or not at all."""
    marker = item.get_closest_marker(_MARKER)
    options = _marker_options(marker) if marker else {}
    everywhere = item.config.getoption("metal_check")
    judges = _FIXTURE in getattr(item, "fixturenames", ())
    if not options.get("enabled", everywhere or judges or marker is not None):
        return None
    from anymetal.checker.report import Report  # noqa: PLC0415

    usual = _usual_options(item.config)
    return Plan(
        report=Report({**usual.severity, **(options.get("severity") or {})}),
        fails=marker is not None or not judges,
        must_launch=marker is not None and bool(options.get("launches", True)),
        strict=options.get("strict", usual.strict),
        nan=options.get("nan", usual.nan),
        outputs=options.get("outputs"),
    )


def _usual_options(config: pytest.Config) -> CheckOptions:
    """What the project's file and the command line ask of every checked test."""
    if _options_key not in config.stash:
        from anymetal.checker.project import parse_severities, project_options  # noqa: PLC0415

        strict, nan = (config.getoption(f"metal_check_{name}") for name in ("strict", "nan"))
        severity = parse_severities(config.getoption("metal_check_severity"))
        config.stash[_options_key] = project_options(config.rootpath).with_more(
            strict, nan, severity
        )
    return config.stash[_options_key]


def _marker_options(marker: pytest.Mark) -> dict[str, Any]:
    wrong = [*map(repr, marker.args), *(marker.kwargs.keys() - _MARKER_OPTIONS)]
    if wrong:
        known = ", ".join(sorted(_MARKER_OPTIONS))
        raise ValueError(f"marker {_MARKER}: {wrong[0]} is no option; known are {known}")
    return dict(marker.kwargs)


@contextmanager
def _checked(item: pytest.Item, phase: str) -> Iterator[None]:
    """Run one phase of a test checked; fail it with findings that were not there before."""
    plan = item.stash.get(_plan_key, None)
    if plan is None:
        yield
        return
    from anymetal.checker.context import ActiveCheck  # noqa: PLC0415
    from anymetal.checker.report import any_launched  # noqa: PLC0415
    from anymetal.checker.terminal import plain_finding  # noqa: PLC0415

    before = len(plan.report)
    finished = False
    try:
        with ActiveCheck(plan.report, plan.outputs, plan.nan):
            yield
        finished = True
    finally:
        new = plan.report.findings[before:]
        text = "\n\n".join(plain_finding(finding) for finding in new)
        if text and not finished:
            item.add_report_section(phase, "metal check", text)
    if plan.fails and plan.offences(new):
        pytest.fail(text, pytrace=False)
    if plan.must_launch and phase == "call" and not any_launched():
        pytest.fail(f"{_NOTHING}, and the marker {_MARKER} asks for checked ones", pytrace=False)


def _carried(plan: Plan) -> dict[str, Any]:
    """The report as plain data; without findings where the test has judged them."""
    from anymetal.checker.json_report import report_data  # noqa: PLC0415
    from anymetal.checker.report import any_launched  # noqa: PLC0415

    data = {**report_data(plan.report), _LAUNCHED: any_launched()}
    return data if plan.fails else {**data, "findings": [], "silenced": []}
