"""Rows of a benchmark as JSON: one run, a file of many runs, and one run beside an earlier one.

Numbers stay numbers: a history is read by programs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anymetal.evidence.machine import Machine
from anymetal.evidence.measure import OURS, Row
from anymetal.evidence.timing import Times

# A change below this is not worth a word, however sure it is.
NOTICEABLE = 1.05

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Change:
    """A row beside the same row of an earlier run."""

    key: Key
    before: Times
    now: Times

    @property
    def ratio(self) -> float:
        """The time now over the time then: above 1 is slower."""
        return self.now.p50 / self.before.p50

    @property
    def verdict(self) -> str:
        if self.now.slower_than(self.before) and self.ratio > NOTICEABLE:
            return "slower"
        if self.before.slower_than(self.now) and self.ratio < 1 / NOTICEABLE:
            return "faster"
        return "same"


def as_json(rows: Sequence[Row], machine: Machine) -> dict[str, Any]:
    """One run."""
    return {
        "machine": machine.to_json(),
        "unix_time": time.time(),
        "rows": [row_json(row) for row in rows],
    }


def row_json(row: Row) -> dict[str, Any]:
    """One row; microseconds of the contenders whose results were right."""
    ours = row.judgements.get(OURS)
    return {
        "operator": row.operator,
        "dtype": row.dtype,
        "shape": row.case,
        "direction": row.direction,
        "elements": row.elements,
        "verified": ours is not None and ours.passed,
        "error": None if ours is None else ours.error,
        "torch_error": None if ours is None else ours.torch_error,
        "microseconds": {name: asdict(times) for name, times in row.times.items()},
        "least_bytes": row.least_bytes,
        "moved_bytes": row.moved_bytes,
        "traffic": row.traffic,
        "gigabytes_per_second": row.gigabytes_per_second,
        "flops": row.flops,
        "gigaflops": row.gigaflops,
        "variant": row.variant,
        "launch": row.launch,
        "launches": row.launches,
        "verdict": row.verdict,
    }


def append(path: Path, rows: Sequence[Row], machine: Machine) -> None:
    """One line a row, in one write: runs that end at once do not mix."""
    run = as_json(rows, machine)
    about = {**run["machine"], "unix_time": run["unix_time"]}
    text = "".join(json.dumps({**row, **about}) + "\n" for row in run["rows"])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def read_times(path: Path) -> dict[Key, Times]:
    """Our times in an earlier run: a file that --json printed, or the last of each in a history."""
    text = path.read_text()
    try:
        found = {
            (row["operator"], row["dtype"], row["shape"], row["direction"]): Times(
                **row["microseconds"][OURS]
            )
            for row in _rows(text)
            if OURS in row["microseconds"]
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no benchmark that `anymetal bench` wrote: {error}") from None
    if not found:
        raise ValueError(f"{path}: no benchmark in it has a time")
    return found


def changes(rows: Sequence[Row], earlier: dict[Key, Times]) -> list[Change]:
    """The rows that both runs have."""
    found = []
    for row in rows:
        key = (row.operator, row.dtype, row.case, row.direction)
        if key in earlier and OURS in row.times:
            found.append(Change(key, earlier[key], row.times[OURS]))
    return found


def _rows(text: str) -> list[dict[str, Any]]:
    try:
        whole = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(whole.get("rows", [whole]))
