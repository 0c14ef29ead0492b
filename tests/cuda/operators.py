"""Every operator's cases on a GPU, results and gradients judged against float64 as `health` does.

`ANYMETAL_BUNDLE=FILE python tests/cuda/operators.py [OPERATOR...]`, with the bundle of `anymetal
compile --operators`.
"""

from __future__ import annotations

import sys
from collections import Counter

import torch

import anymetal.linalg
import anymetal.ops  # noqa: F401  (both declare operators)
from anymetal.evidence.exercise import Exercise
from anymetal.ops.declare import OPERATORS


def examine(exercise: Exercise) -> list[str]:
    """What is wrong with one case; empty where nothing is."""
    acts = {"results": exercise.judge_results}
    if exercise.operator.differentiable:
        acts["gradients"] = exercise.judge_gradients
    faults = []
    for part, act in acts.items():
        try:
            judgement = act()
        except Exception as error:
            if "CUDA error" in str(error):
                raise
            faults.append(f"{part}: {type(error).__name__}: {str(error)[:160]}")
            continue
        if not judgement.passed:
            faults.append(f"{part}: {judgement}")
    return faults


def main(names: list[str]) -> None:
    totals: Counter[str] = Counter()
    for name in names or list(OPERATORS):
        operator, counts = OPERATORS[name], Counter[str]()
        shown = 0
        for dtype in operator.dtypes:
            for case in operator.cases:
                exercise = Exercise(operator, dtype, case, torch.device("cuda"))
                faults = examine(exercise)
                counts["failed" if faults else "passed"] += 1
                if faults and shown < 4:
                    shown += 1
                    print(f"  {exercise.label}: {'; '.join(faults)}", flush=True)
        totals.update(counts)
        if counts["failed"]:
            print(f"{name}: {dict(counts)}", flush=True)
    print("all:", dict(totals))


if __name__ == "__main__":
    main(sys.argv[1:])
