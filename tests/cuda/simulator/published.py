"""The kernels of a published package on the simulator, as `make conformance` judges them."""

from __future__ import annotations

from collections import Counter

from conformance import wheel
from conformance.case import CASES
from conformance.lint import C10_KERNELS
from conformance.run import judge


def main() -> int:
    """Prints what is wrong; returns how many cases are."""
    files = {file.name: file for file in (*wheel.fetch().files, C10_KERNELS)}
    counts: Counter[str] = Counter()
    for case in CASES:
        outcome = judge(case, files)
        counts[outcome.verdict] += 1
        if outcome.failed:
            label = f"{case.kernel} {case.note}".strip()
            print(f"{label}: {outcome.verdict}, {outcome.detail[:300]}", flush=True)
    print(dict(counts))
    return counts["our fault"] + counts["unexpected"]
