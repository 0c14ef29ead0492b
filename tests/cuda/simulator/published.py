"""The kernels of a published package on the simulator, as `make conformance` judges them."""

from __future__ import annotations

from collections import Counter

from conformance import wheel
from conformance.case import CASES
from conformance.lint import C10_KERNELS
from conformance.run import judge
from tests.cuda.simulator.ptx import Unknown

# They call functions that LLVM does not inline, which the simulator does not know.
_WITH_FUNCTIONS = ("special_bessel_j1", "special_bessel_y1")


def main() -> int:
    """Prints what is wrong; returns how many cases are."""
    files = {file.name: file for file in (*wheel.fetch().files, C10_KERNELS)}
    counts: Counter[str] = Counter()
    failed = 0
    for case in CASES:
        outcome = judge(case, files)
        verdict = outcome.verdict
        if case.kernel in _WITH_FUNCTIONS and outcome.detail.startswith(Unknown.__name__):
            verdict = "not run"
        elif outcome.failed:
            failed += 1
            label = f"{case.kernel} {case.note}".strip()
            print(f"{label}: {verdict}, {outcome.detail[:300]}", flush=True)
        counts[verdict] += 1
    print(dict(counts))
    return failed
