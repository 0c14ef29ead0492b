"""The kernels of operators are found without running any, and nothing of that stays behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import anymetal.linalg  # noqa: F401  (declares operators)
from anymetal import ops
from anymetal.engines import bundles
from anymetal.engines.ahead import compile_bundle
from anymetal.evidence.ahead import kernels_of
from anymetal.evidence.measure import exercises
from anymetal.evidence.sweep import candidates
from anymetal.evidence.tuning import without_running
from anymetal.launch.requested import Request, Requests
from anymetal.ops.declare import OPERATORS, AnyOperator
from anymetal.policy import policy
from anymetal.store.bundle import Bundle, write_bundle


def test_kernels_of_an_operator_and_of_its_gradient_are_found() -> None:
    x = torch.randn(8)
    before = ops.silu(x)  # its kernel is known to the process already
    found = kernels_of([OPERATORS["silu"]], "cuda", [torch.float32])
    assert {name for _, name, _ in found} == {"silu_vec8_float", "silu_backward_vec4_float"}
    assert torch.equal(ops.silu(x), before)


def test_bundle_has_what_tuning_launches() -> None:
    tuned = [OPERATORS["rope"], OPERATORS["silu"]]
    usual = kernels_of(tuned, "cuda", [torch.float32])
    found = kernels_of(tuned, "cuda", [torch.float32], candidates=True)
    assert found[: len(usual)] == usual and found.policies == usual.policies
    assert {name for _, name, _ in found[len(usual) :]} == {"silu_vec4_float"}
    bundle = compile_bundle("cuda-sm90", found)
    assert len(bundle.executables) == len(found)
    keys = {key(request) for one in tuned for request in launched_by_candidates(one)}
    assert len(keys) > 3 and keys <= bundle.executables.keys()


def key(request: Request) -> str:
    source, kernel, constants = request
    return bundles.executable_key(bundles.source_key(source), kernel, constants, "cuda-sm90")


def launched_by_candidates(operator: AnyOperator) -> Requests:
    """With every candidate of every question, by all benchmarks: forward and backward."""
    found = Requests()
    with policy.as_if_on("cuda"), without_running(operator, found):
        for exercise in exercises(operator, [torch.float32], torch.device("cpu"), 0):
            with policy.recorded() as questions:
                exercise.gradients(operator, *exercise.inputs())
            for question in questions:
                for size, values in candidates(policy.row_for(question)):
                    with policy.override(question.operator, group_size=size, **dict(values)):
                        exercise.gradients(operator, *exercise.inputs())
    return found


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
