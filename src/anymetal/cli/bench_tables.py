"""Rows of a benchmark go in; tables for a terminal and a plot come out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from anymetal.evidence import history, svg
from anymetal.evidence.machine import Machine
from anymetal.evidence.measure import CONTENDERS, NAIVE, OURS, Row
from anymetal.evidence.tables import new_table
from anymetal.evidence.timing import Times


def table(rows: Sequence[Row]) -> Table:
    """A row in few columns of two and three lines, so that 80 characters hold all of it."""
    naive = any(NAIVE in row.judgements for row in rows)
    contenders = [name for name in CONTENDERS if naive or name != NAIVE]
    shown = new_table(
        "operator dtype shape pass\nvariant, threads/threadgroup",
        right=(
            *(f"{name} µs\n95 %" for name in contenders),
            "ours/torch\nverdict",
            "GB/s\nGFLOP/s\ntraffic",
            "error\ntorch's\nlaunches",
        ),
    )
    for row in rows:
        shown.add_row(*_cells(row, contenders), end_section=True)
    return shown


def changes_table(found: Sequence[history.Change], path: Path) -> Table:
    """This run beside an earlier one."""
    right = ("then µs\n95 %", "now µs\n95 %", "now/then")
    shown = new_table("operator dtype shape pass", right=right, last="")
    shown.title = f"against {path}"
    styles = {"slower": "red", "faster": "green", "same": ""}
    for change in found:
        shown.add_row(
            " ".join(change.key),
            _time(change.before),
            _time(change.now),
            f"{change.ratio:.2f}",
            Text(change.verdict, styles[change.verdict]),
        )
    return shown


def plot(rows: Sequence[Row], machine: Machine) -> str:
    """Our time over torch's by the size of the largest tensor, a line an operator and dtype."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.ratio is not None and row.elements:
            name = f"{row.operator} {row.dtype} {row.direction}"
            series.setdefault(name, []).append((row.elements, row.ratio))
    if not series:
        raise ValueError("nothing to plot: no row has a time beside torch's")
    title = f"time over torch's, below 1 is faster: {machine.device}, {machine.engine} engine"
    across = "elements of the largest tensor"
    return svg.lines(title, series, across=across, up="our time / torch's")


def _cells(row: Row, contenders: Sequence[str]) -> list[str | Text]:
    name = Text(f"{row.operator} {row.dtype} {row.case} {row.direction}\n")
    name.append(f"{row.variant}, {row.launch}", "dim")
    verdict = Text("-" if row.ratio is None else f"{row.ratio:.2f}")
    style = {"wrong": "bold red", "use ours": "green"}.get(row.verdict, "")
    verdict.append(f"\n{row.verdict}", style)
    ours = row.judgements.get(OURS)
    errors = ("-", "-") if ours is None else (f"{ours.error:.1e}", f"{ours.torch_error:.1e}")
    return [
        name,
        *(_contender(row, name) for name in contenders),
        verdict,
        "\n".join(
            [
                _or_dash(row.gigabytes_per_second, ".1f"),
                _or_dash(row.gigaflops, ".1f"),
                _or_dash(row.traffic, ".2f"),
            ]
        ),
        "\n".join([*errors, _or_dash(row.launches, "d")]),
    ]


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _contender(row: Row, name: str) -> str | Text:
    if name in row.times:
        return _time(row.times[name])
    if name not in row.judgements:
        return "-"
    return Text("wrong" if name == OURS else f"error\n{row.judgements[name].error:.0e}", "red")


def _time(times: Times) -> str:
    """The median, and below it how far the interval reaches to both sides, in per cent."""
    below, above = (
        100 * (end / times.p50 - 1) if times.p50 else 0 for end in (times.low, times.high)
    )
    return f"{_number(times.p50)}\n{below:+.0f} {above:+.0f}"


def _number(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"
