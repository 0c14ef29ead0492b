"""Measured verdicts: for each kind of device, which functions are faster as ours.

The package has a file of them, with the machine and the date of each kind's measurement. One that
`anymetal bench --verdict` wrote goes before it, where ANYMETAL_VERDICTS names it: a kind that is in
both is that file's alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anymetal import settings
from anymetal.overrides.table import TABLE, Row

PACKAGED = Path(__file__).with_name("verdicts.json")
OURS, TORCHS, UNMEASURED = "ours", "torch", "not measured"
# Ours is on by default where its time is below this share of torch's on the whole,
WORTH = 0.95
# and no single measurement is slower than this.
WORST = 1.10


@dataclass(frozen=True)
class Verdict:
    """What the times of a function's operators say: ratios are ours over torch's."""

    verdict: str
    mean: float | None = None  # geometric
    worst: float | None = None
    measured: int = 0


def judged(ratios: Sequence[float], right: bool) -> Verdict:
    """The verdict of measurements of one function; a wrong result settles it."""
    if not ratios:
        return Verdict(UNMEASURED)
    mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    worst = max(ratios)
    helps = right and mean < WORTH and worst <= WORST
    return Verdict(OURS if helps else TORCHS, round(mean, 3), round(worst, 3), len(ratios))


def read(path: Path) -> dict[str, Any]:
    """The kinds of a file; ValueError with what is wrong about it."""
    try:
        content = json.loads(path.read_text())
        kinds: dict[str, Any] = content["kinds"]
        for kind in kinds.values():
            for verdict in kind["functions"].values():
                Verdict(**verdict)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: no file of verdicts: {error}") from None
    return kinds


def kinds() -> dict[str, Any]:
    """Every kind that was measured: its machine, date and functions."""
    own = settings.VERDICTS.text()
    return read(PACKAGED) | (read(Path(own).expanduser()) if own else {})


def measured_kinds() -> frozenset[str]:
    return frozenset(kinds())


def helpful_kinds(row: Row) -> frozenset[str]:
    """The kinds of devices where this function was measured to be faster as ours."""
    return frozenset(
        name
        for name, kind in kinds().items()
        if kind["functions"].get(row.name, {}).get("verdict") == OURS
    )


def write(
    path: Path,
    kind: str,
    machine: Mapping[str, Any],
    date: str,
    ratios: Mapping[str, Sequence[float]],
    wrong: Sequence[str],
) -> dict[str, Verdict]:
    """Puts a kind's verdicts into a file, beside other kinds in it.

    `ratios` are ours over torch's by function, `wrong` the functions with a wrong result.
    """
    known = read(path) if path.exists() else {}
    names = [row.name for row in TABLE.rows]
    found = {name: judged(ratios.get(name, ()), right=name not in wrong) for name in names}
    known[kind] = {
        "date": date,
        "machine": dict(machine),
        "rule": f"ours where the geometric mean of ours/torch is below {WORTH} and none above"
        f" {WORST}",
        "functions": {name: vars(verdict) for name, verdict in sorted(found.items())},
    }
    path.write_text(json.dumps({"kinds": known}, indent=1) + "\n")
    return found
