"""Measured verdicts: for each kind of device, which functions are faster as ours.

The package has a file of them, with the machine and the date of each kind's measurement. One that
`anymetal bench --verdict` wrote goes before it, where ANYMETAL_VERDICTS names it: a kind that is in
both is that file's alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
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
    """What the times of a function's calls say: ratios are ours over torch's.

    Small calls cost ours more than they gain: `least` is the number of elements, of a call's
    largest tensor, from which on ours was faster; mean and worst are of those calls.
    """

    verdict: str
    mean: float | None = None  # geometric
    worst: float | None = None
    measured: int = 0
    date: str = ""
    least: int = 0


def judged(
    ratios: Sequence[float], right: bool, date: str = "", sizes: Sequence[int] = ()
) -> Verdict:
    """The verdict of measurements of one function; a wrong result settles it.

    `sizes` are the elements of each call, if those differ.
    """
    if not ratios:
        return Verdict(UNMEASURED)
    pairs = list(zip(sizes or [0] * len(ratios), ratios, strict=True))
    found = [_from(pairs, least, date) for least in sorted({size for size, _ in pairs})]
    helpful = [one for one in found if right and one.verdict == OURS]
    return helpful[0] if helpful else replace(found[0], verdict=TORCHS, least=0)


def _from(pairs: Sequence[tuple[int, float]], least: int, date: str) -> Verdict:
    """The verdict of calls with at least so many elements."""
    ratios = [ratio for size, ratio in pairs if size >= least]
    mean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    helps = mean < WORTH and max(ratios) <= WORST
    worst = round(max(ratios), 3)
    return Verdict(OURS if helps else TORCHS, round(mean, 3), worst, len(ratios), date, least)


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


def helpful_kinds(row: Row) -> dict[str, int]:
    """The kinds of devices where this function was measured to be faster as ours, each with the
    elements from which on it was."""
    found = {name: kind["functions"].get(row.name, {}) for name, kind in kinds().items()}
    return {name: one.get("least", 0) for name, one in found.items() if one.get("verdict") == OURS}


def write(
    path: Path,
    kind: str,
    machine: Mapping[str, Any],
    date: str,
    ratios: Mapping[str, Sequence[float]],
    wrong: Sequence[str],
    sizes: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, Verdict]:
    """Puts a kind's verdicts into a file, beside other kinds in it.

    `ratios` are ours over torch's by function, `wrong` the functions with a wrong result, `sizes`
    the elements of each call that was timed. Functions without ratios keep what the file says of
    them: a run may measure a part, or be stopped.
    """
    known = read(path) if path.exists() else {}
    earlier = known.get(kind, {}).get("functions", {})
    found = {}
    for row in TABLE.rows:
        name, calls = row.name, (sizes or {}).get(row.name, ())
        if name in ratios:
            found[name] = judged(ratios[name], name not in wrong, date, calls)
        else:
            found[name] = Verdict(**earlier.get(name, {"verdict": UNMEASURED}))
    known[kind] = {
        "date": date,
        "machine": dict(machine),
        "rule": f"ours for calls whose largest tensor has `least` elements or more: the geometric"
        f" mean of ours/torch is below {WORTH} there, and none above {WORST}",
        "functions": {name: vars(verdict) for name, verdict in sorted(found.items())},
    }
    text = json.dumps({"kinds": known}, indent=1) + "\n"
    with NamedTemporaryFile("w", dir=path.parent, delete=False) as file:  # never half a file
        file.write(text)
    Path(file.name).replace(path)
    return found
