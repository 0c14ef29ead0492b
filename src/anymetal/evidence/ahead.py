"""The kernels that operators launch on a device, found by making their calls without running any.

Launch shapes and kernels are chosen as on that device; the tensors are the CPU's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from anymetal.evidence.exercise import Exercise
from anymetal.launch.requested import Request, requests
from anymetal.ops.declare import AnyOperator
from anymetal.ops.declare.kernel_file import forget_kernels
from anymetal.policy.policy import as_if_on


def kernels_of(
    operators: Iterable[AnyOperator], device: str, dtypes: Sequence[torch.dtype] | None = None
) -> list[Request]:
    """Every kernel that the operators' cases and benchmarks ask for, gradients included."""
    forget_kernels()
    try:
        with as_if_on(device), requests() as found:
            for operator in operators:
                for dtype in operator.dtypes:
                    if dtypes is None or dtype in dtypes:
                        _call(operator, dtype)
    finally:
        forget_kernels()
    return list({repr(request): request for request in found}.values())


def _call(operator: AnyOperator, dtype: torch.dtype) -> None:
    for case in (*operator.cases, *operator.bench):
        exercise = Exercise(operator, dtype, case, torch.device("cpu"))
        args, kwargs = exercise.inputs()
        if operator.differentiable:
            exercise.gradients(operator, args, kwargs)
        else:
            exercise.call(operator, args, kwargs)
