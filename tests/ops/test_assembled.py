"""NVIDIA's assembler takes the kernels of the operators: here one kernel of the first operator of
each module, in a dtype by turns; `make cuda` has all, and a table of their registers."""

from __future__ import annotations

import pytest
import torch
from tests.cuda.assemble import assemble

import anymetal.linalg  # noqa: F401  (declares operators)
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.evidence.ahead import kernels_of
from anymetal.ops.declare import OPERATORS

ROOMS = {operator.room.__module__: name for name, operator in reversed(OPERATORS.items())}
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("place", range(len(ROOMS)), ids=list(ROOMS.values()))
def test_kernels_are_assembled(place: int) -> None:
    name = list(ROOMS.values())[place]
    found = kernels_of([OPERATORS[name]], "cuda", [DTYPES[place % len(DTYPES)]])
    assert found, f"no call of {name} launches a kernel"
    source, kernel, constants = found[place % len(found)]
    made = Compiler(source).compile(kernel, constants, PLAIN, "cuda-sm90")
    assert isinstance(made, CudaExecutable)
    for number in range(len(made.texts)):
        assert not assemble(made, "sm_90", number).said
