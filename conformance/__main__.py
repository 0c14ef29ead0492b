"""`python -m conformance`: fetch, compile, run, and say whose fault each failure is.

The exit status is 1 when something is wrong on our side, or is not as the cases say.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from anymetal.errors import ToolchainError
from conformance import host, lint, wheel
from conformance.case import CASES, Case
from conformance.run import Outcome, run_all

VERDICTS = {
    "right": "[green]right[/green]",
    "kernel's fault": "[yellow]kernel's fault[/yellow]",
    "refused": "[yellow]refused, rightly[/yellow]",
    "our fault": "[red]WRONG[/red]",
    "unexpected": "[red]UNEXPECTED[/red]",
}


def main() -> int:
    options = parse_arguments()
    console = Console(width=None if os.isatty(1) else 140)
    try:
        return examine(options, console)
    except ToolchainError as error:
        console.print(f"nothing can be said, the compiler does not work:\n{error}", markup=False)
        return 1


def examine(options: argparse.Namespace, console: Console) -> int:
    sources = wheel.fetch()
    reports: list[lint.FileReport] = []
    if not options.no_lint:
        reports = [*lint.lint_files(sources.files), *lint.lint_c10()]
        print_lint(console, reports, sources)
    outcomes: list[Outcome] = []
    if not options.no_run:
        outcomes = run_all(selected(options.only), sources)
        print_outcomes(console, outcomes)
    broken = 0 if options.no_host else print_host(console, host.examine())
    if options.json:
        options.json.write_text(json.dumps(as_json(sources, reports, outcomes), indent=2) + "\n")
    faults = [fault for report in reports for fault in report.faults]
    return 1 if broken or faults or any(outcome.failed for outcome in outcomes) else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__.splitlines()[0])
    parser.add_argument("--no-lint", action="store_true", help="run the cases only")
    parser.add_argument("--no-run", action="store_true", help="compile only")
    parser.add_argument("--no-host", action="store_true", help="leave its Objective-C++ out")
    parser.add_argument("--only", nargs="+", metavar="KERNEL", help="run these kernels only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    return parser.parse_args()


def selected(names: list[str] | None) -> list[Case]:
    known = {case.kernel for case in CASES}
    if unknown := set(names or ()) - known:
        raise SystemExit(f"no case for {', '.join(sorted(unknown))}")
    return [case for case in CASES if not names or case.kernel in names]


def print_lint(console: Console, reports: list[lint.FileReport], sources: wheel.Sources) -> None:
    table = Table(title=f"Compiled: metalcore {sources.version} and torch's c10/metal headers")
    for heading in ("file", "kernels", "compiled", "own fault", "seconds"):
        table.add_column(heading, justify="left" if heading == "file" else "right")
    for report in reports:
        own = sum(verdict.own_fault for verdict in report.verdicts)
        counts = (len(report.verdicts), report.compiled, own)
        table.add_row(report.file, *map(str, counts), f"{report.seconds:.1f}")
    console.print(table)
    for report in reports:
        for fault in report.faults:
            console.print(f"does not compile: {fault}", style="red", markup=False)
        for verdict in report.verdicts:
            if verdict.own_fault:
                console.print(f"own fault: {verdict.kernel}: {verdict.complaint}", markup=False)
    print_lint_totals(console, reports, sources)


def print_lint_totals(
    console: Console, reports: list[lint.FileReport], sources: wheel.Sources
) -> None:
    files = sum(not report.faults for report in reports)
    kernels = sum(len(report.verdicts) for report in reports)
    compiled = sum(report.compiled for report in reports)
    accepted = {v.kernel for r in reports for v in r.verdicts if v.complaint is None or v.own_fault}
    missing = sorted(sources.compiled_by_apple - accepted)
    own = sum(verdict.own_fault for report in reports for verdict in report.verdicts)
    console.print(
        f"{files} of {len(reports)} files, {compiled} of {kernels} kernels compiled; {own} are "
        "refused because they need more than 32 KiB of threadgroup memory. Apple's compiler put "
        f"{len(sources.compiled_by_apple)} kernels into the wheel's metallib: {len(missing)} of "
        "them are unknown or faulty here.",
    )
    if missing:
        console.print("Apple has: " + ", ".join(missing), style="red", markup=False)


def print_outcomes(console: Console, outcomes: list[Outcome]) -> None:
    table = Table(title="Run against float64")
    for heading in ("kernel", "inputs", "error", "allowed", "verdict", "engines", "found"):
        table.add_column(heading, justify="right" if heading in ("error", "allowed") else "left")
    for outcome in outcomes:
        error = "-" if outcome.error is None else f"{outcome.error:.1e}"
        limit = f"{outcome.case.tolerance.limit:.1e}"
        verdict = VERDICTS[outcome.verdict]
        found = ", ".join(f"{f.kind} {f.line}" for f in outcome.findings)
        engines = escape(outcome.engines.partition(":")[0])
        note = escape(outcome.case.note)
        table.add_row(outcome.case.kernel, note, error, limit, verdict, engines, found)
    console.print(table)
    print_findings(console, outcomes)
    print_group(console, outcomes, "kernel's fault", "Wrong because the kernel itself is wrong:")
    print_group(console, outcomes, "refused", "Refused, as a Mac refuses them:")
    print_group(console, outcomes, "our fault", "Wrong here:")
    print_group(console, outcomes, "unexpected", "Not as the case says:")
    counts = Counter(outcome.verdict for outcome in outcomes)
    kernels = len({outcome.case.kernel for outcome in outcomes})
    parts = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    console.print(f"{len(outcomes)} cases of {kernels} kernels: {parts}.")
    ran_on = Counter(outcome.engines for outcome in outcomes if outcome.engines)
    for engine, number in ran_on.most_common():
        console.print(f"  {number} ran on {engine}", markup=False)


def print_findings(console: Console, outcomes: list[Outcome]) -> None:
    """Each defect once, with its line: template instances of a kernel share theirs."""
    seen: dict[tuple[object, ...], str] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            key = (outcome.case.file, finding.kind, finding.severity, finding.line)
            place = f"{outcome.case.file}:{finding.line}"
            seen.setdefault(key, f"  {place}: {finding.severity} {finding.kind}: {finding.message}")
    if seen:
        console.print("What the checker finds in these kernels:", style="bold")
    for line in seen.values():
        console.print(line, markup=False)


def print_host(console: Console, report: host.HostReport) -> int:
    """What its Objective-C++ does against the rules; returns how much of it does not compile."""
    title = f"Objective-C++: {report.lines} lines, {len(report.errors)} errors"
    console.print(title, style="bold")
    for line in report.errors:
        console.print(f"  {line}", markup=False)
    for finding in report.findings:
        position = finding.place.position
        place = f"{Path(position.file).name}:{position.line}" if position else finding.kernel
        console.print(
            f"  {place}: {finding.severity} {finding.kind}: {finding.message}", markup=False
        )
    for failure in report.failures:
        console.print(f"  a Mac does not survive {failure}", markup=False)
    return len(report.errors)


def print_group(console: Console, outcomes: list[Outcome], verdict: str, title: str) -> None:
    group = [outcome for outcome in outcomes if outcome.verdict == verdict]
    if group:
        console.print(title, style="bold")
    for outcome in group:
        note = f" ({outcome.case.note})" if outcome.case.note else ""
        console.print(f"  {outcome.case.kernel}{note}: {outcome.detail}", markup=False)


def as_json(
    sources: wheel.Sources, reports: list[lint.FileReport], outcomes: list[Outcome]
) -> dict[str, object]:
    return {
        "metalcore": sources.version,
        "files": [
            {
                "file": report.file,
                "kernels": len(report.verdicts),
                "compiled": report.compiled,
                "seconds": report.seconds,
                "faults": report.faults,
            }
            for report in reports
        ],
        "cases": [
            {
                "kernel": outcome.case.kernel,
                "inputs": outcome.case.note,
                "error": outcome.error,
                "allowed": outcome.case.tolerance.limit,
                "verdict": outcome.verdict,
                "detail": outcome.detail,
                "engines": outcome.engines,
                "findings": [
                    {"kind": f.kind, "severity": f.severity, "line": f.line, "message": f.message}
                    for f in outcome.findings
                ],
            }
            for outcome in outcomes
        ],
    }


if __name__ == "__main__":
    raise SystemExit(main())
