"""The kernels that operators launch on a device, found by making their calls without running any.

Launch shapes and kernels are chosen as on that device; the tensors are the CPU's. Functions of
anymetal.linalg look at their results on the way, pivots and signs of convergence: they do run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from anymetal.evidence.exercise import Exercise
from anymetal.evidence.measure import forwards
from anymetal.evidence.tuning import request_candidates, without_running
from anymetal.launch.requested import Requests
from anymetal.ops.declare import AnyOperator
from anymetal.policy.policy import as_if_on, recorded, untuned, written


def kernels_of(
    operators: Iterable[AnyOperator],
    device: str,
    dtypes: Sequence[torch.dtype] | None = None,
    *,
    candidates: bool = False,
) -> Requests:
    """Every kernel that the operators' cases and benchmarks ask for, gradients included.

    With `candidates`, also what `anymetal tune` launches to find the best launch shapes.
    """
    found = Requests()
    chosen = list(operators)
    with as_if_on(device):
        for operator in chosen:
            with recorded() as answers, without_running(operator, found):
                for dtype in operator.dtypes:
                    if dtypes is None or dtype in dtypes:
                        _call(operator, dtype)
            found.policies |= written(answers)
        if candidates:
            with untuned():
                request_candidates(forwards(chosen), dtypes, found)
    return found


def _call(operator: AnyOperator, dtype: torch.dtype) -> None:
    for case in (*operator.cases, *operator.bench):
        exercise = Exercise(operator, dtype, case, torch.device("cpu"))
        args, kwargs = exercise.inputs()
        if operator.differentiable:
            exercise.gradients(operator, args, kwargs)
        else:
            exercise.call(operator, args, kwargs)
