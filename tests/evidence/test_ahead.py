"""The kernels of operators are found without running any, and nothing of that stays behind."""

from __future__ import annotations

import torch

from anymetal import ops
from anymetal.evidence.ahead import kernels_of
from anymetal.ops.declare import OPERATORS


def test_kernels_of_an_operator_and_of_its_gradient_are_found() -> None:
    x = torch.randn(8)
    before = ops.silu(x)  # its kernel is known to the process already
    found = kernels_of([OPERATORS["silu"]], "cuda", [torch.float32])
    assert {name for _, name, _ in found} == {"silu_vec8_float", "silu_backward_vec4_float"}
    assert torch.equal(ops.silu(x), before)
