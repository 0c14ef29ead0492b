"""The kernels of operators are found without running any, and nothing of that stays behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import anymetal.linalg  # noqa: F401  (declares operators)
from anymetal import ops
from anymetal.engines import bundles
from anymetal.evidence.ahead import kernels_of
from anymetal.ops.declare import OPERATORS
from anymetal.policy import policy
from anymetal.store.bundle import Bundle, write_bundle


def test_kernels_of_an_operator_and_of_its_gradient_are_found() -> None:
    x = torch.randn(8)
    before = ops.silu(x)  # its kernel is known to the process already
    found = kernels_of([OPERATORS["silu"]], "cuda", [torch.float32])
    assert {name for _, name, _ in found} == {"silu_vec8_float", "silu_backward_vec4_float"}
    assert torch.equal(ops.silu(x), before)


def test_functions_that_look_at_their_results_run() -> None:
    found = kernels_of([OPERATORS["lu"]], "cuda")
    assert len({repr(request) for request in found}) == len(found) > 0
    groups = [group for request in found for group, _ in found.launches(*request)]
    assert groups
    assert all(" on cuda" in question for question in found.policies)


def test_launch_shapes_of_a_bundle_are_used(tmp_path: Path) -> None:
    asked = ("silu", "fp32", "any", "cuda", "elementwise")
    before = policy.choose(*asked)
    size = 32 if before.group_size != 32 else 64
    shapes = policy.written({policy.Question(*asked): replace(before, group_size=size)})
    write_bundle(tmp_path / "k.bundle", Bundle("cuda-sm80", {}, {}, shapes))
    used = bundles.use(tmp_path / "k.bundle")
    try:
        chosen = policy.choose(*asked)
        assert (chosen.group_size, chosen.origin) == (size, "bundle")
    finally:
        bundles._used.remove(used)
        policy.forget()
    assert policy.choose(*asked) == before
