"""torch's own functions that `anymetal bench` times, where references compute more than they do."""

from __future__ import annotations

import pytest
import torch

from anymetal.evidence.exercise import Exercise
from anymetal.evidence.judge import flat
from anymetal.ops.declare import OPERATORS

TIMED = [name for name, operator in OPERATORS.items() if operator.timed is not None]


@pytest.mark.parametrize("name", TIMED)
def test_timed_computes_what_the_reference_does(name: str) -> None:
    operator = OPERATORS[name]
    assert operator.timed is not None
    for case in operator.cases:
        exercise = Exercise(operator, torch.float32, case, torch.device("cpu"))
        with torch.no_grad():
            theirs = flat(exercise.call(operator.timed, *exercise.inputs()))
            expected = flat(exercise.call(operator.reference, *exercise.inputs()))
        # Results that torch does not give come last.
        for one, other in zip(theirs, expected, strict=False):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
