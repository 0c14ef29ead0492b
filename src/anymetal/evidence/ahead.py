"""The kernels that operators launch on a device, found by making their calls without running any.

Launch shapes and kernels are chosen as on that device; the tensors are the CPU's. Functions of
anymetal.linalg look at their results on the way, pivots and signs of convergence: they do run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from anymetal.evidence.exercise import Exercise
from anymetal.launch.requested import Requests, requests
from anymetal.ops.declare import AnyOperator
from anymetal.ops.declare.kernel_file import forget_kernels
from anymetal.policy.policy import as_if_on, recorded, written


def kernels_of(
    operators: Iterable[AnyOperator], device: str, dtypes: Sequence[torch.dtype] | None = None
) -> Requests:
    """Every kernel that the operators' cases and benchmarks ask for, gradients included."""
    found = Requests()
    for operator in operators:
        forget_kernels()
        try:
            running = requests(found, run=_looks_at_results(operator))
            with as_if_on(device), recorded() as answers, running:
                for dtype in operator.dtypes:
                    if dtypes is None or dtype in dtypes:
                        _call(operator, dtype)
            found.policies |= written(answers)
        finally:
            forget_kernels()
    return found


def _looks_at_results(operator: AnyOperator) -> bool:
    return operator.room.__module__.startswith("anymetal.linalg.")


def _call(operator: AnyOperator, dtype: torch.dtype) -> None:
    for case in (*operator.cases, *operator.bench):
        exercise = Exercise(operator, dtype, case, torch.device("cpu"))
        args, kwargs = exercise.inputs()
        if operator.differentiable:
            exercise.gradients(operator, args, kwargs)
        else:
            exercise.call(operator, args, kwargs)
