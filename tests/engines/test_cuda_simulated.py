"""What the CUDA engine makes of kernels runs on a simulated GPU: the same results as elsewhere, and
the simulator finds what is wrong.

All header tests' launches: `make cuda`. All operators' tests, on the simulator:
pytest -p tests.cuda.simulator.plugin --simulated tests/ops
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.cuda import features
from tests.cuda.operators import examine
from tests.cuda.random_kernels import launch
from tests.cuda.simulator import device
from tests.cuda.simulator.device import Failure, simulated_gpu
from tests.fuzz.driver import compare
from tests.fuzz.generate import generate
from tests.fuzz.model import run

import anymetal
import anymetal.linalg
from anymetal import ops
from anymetal.evidence.exercise import Exercise
from anymetal.ops.declare import OPERATORS
from anymetal.policy.policy import as_if_on

FP16, FP32, BF16 = torch.float16, torch.float32, torch.bfloat16


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu(), as_if_on("cuda"):
        yield


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("seed", range(9_100_000, 9_100_005))
def test_random_kernels_agree_with_the_model(seed: int, capability: tuple[int, int]) -> None:
    kernel = generate(seed, small=True)[0]
    with simulated_gpu(capability):
        assert compare(kernel, run(kernel), "simulated", launch(kernel)) is None


@pytest.mark.parametrize(
    "part", [features.edges, features.structs, features.lists, features.casts, features.errors,
             features.messages], ids=lambda part: part.__name__,
)  # fmt: skip
def test_calls(
    part: Callable[[anymetal.ShaderLibrary], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a call can have, as `tests/cuda/features.py` tries it on a GPU."""
    tried = []

    def expect(right: bool, what: str) -> None:
        assert right, what
        tried.append(what)

    monkeypatch.setattr(features, "expect", expect)
    part(anymetal.compile_shader(features.TEXT))
    assert tried


# Collectives, threadgroup memory, products on tensor cores, copies by themselves, what is asked for
# ahead, and fp32 matrices.
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("silu", BF16),
        ("rms_norm", FP32),
        ("softmax", FP16),
        ("matmul", FP32),
        ("matmul", BF16),
        ("scaled_dot_product_attention", FP16),
        ("quantized_linear", BF16),
        ("cross_entropy", FP32),
        ("cholesky_ex", FP32),
    ],
)
def test_operators_are_right(name: str, dtype: torch.dtype) -> None:
    """The first case and the last, results and gradients, as `anymetal health` judges them."""
    operator = OPERATORS[name]
    for case in {id(one): one for one in (operator.cases[0], operator.cases[-1])}.values():
        assert examine(Exercise(operator, dtype, case, torch.device("cpu"))) == []


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1, 4096, dtype=BF16)


@pytest.fixture
def weight() -> Any:
    """Codes of 4 bits, which a GPU asks for ahead."""
    return ops.quantize(torch.randn(48, 4096, dtype=BF16), "int4", 64)


def test_quantised_weights_that_are_asked_for(x: torch.Tensor, weight: Any) -> None:
    exact = x.double() @ ops.dequantize(weight, FP32).double().T
    torch.testing.assert_close(ops.quantized_linear(x, weight).double(), exact, rtol=0.02, atol=0.5)


# --- what the simulator finds ---------------------------------------------------------------------

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SUMS = HEADER + (
    "kernel void sums(device float* x, uint i [[thread_position_in_grid]],"
    " uint lane [[thread_index_in_simdgroup]]) {\n"
    "  threadgroup float4 shared[32];\n"
    "  shared[lane] = x[i];\n"
    "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
    "  x[i] = simd_sum(shared[31 - lane].y);\n}\n"
)


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Changes the PTX of all kernels; there has to be something to change."""

    def change(pattern: str, to: str) -> None:
        def loaded(text: str) -> str:
            made, times = re.subn(pattern, to, text)
            assert times
            return made

        monkeypatch.setattr(device, "as_loaded", loaded)

    return change


@pytest.mark.parametrize(
    ("pattern", "to", "said"),
    [
        (r"(ld\.shared\.b32.*)\+4\]", r"\1+6]", "line .*: an address that is not aligned"),
        (r"(st\.shared\.\S+\s+\[%rd\d+)", r"\1+512", "an access beyond the threadgroup's memory"),
        (r"(shfl\.sync.*), -1;", r"\1, 1;", "lanes ffffffff wait for 00000001, and are not"),
        (r"shfl\.sync", "setp.eq.b32 %p1, %r2, 5;\n@%p1 barrier.sync 0;\nshfl.sync",
         "threads wait for ever: .*shfl.sync"),
        (r"barrier\.sync", "$L_round: bra $L_round;\nbarrier.sync", "a loop without end"),
        (r"barrier\.sync", "trap;\nbarrier.sync", "trap"),
        (r"(griddepcontrol\.wait;)((.|\n)*?)(ld\.global.*;)", r"\2\4\n\1",
         "an access while the kernels in front may still run"),
    ],
)  # fmt: skip
def test_mistakes_are_told(
    changed: Callable[[str, str], None], pattern: str, to: str, said: str
) -> None:
    changed(pattern, to)
    with pytest.raises(Failure, match=f"(?s){said}"):
        anymetal.compile_shader(SUMS).sums(torch.ones(64), threads=64, group_size=64)


def test_constant_memory_that_is_written_is_told() -> None:
    source = HEADER + (
        "kernel void turns(device float* x, device const float* same,"
        " uint i [[thread_position_in_grid]]) {\n"
        "  x[i] = i;\n  threadgroup_barrier(mem_flags::mem_device);\n  x[i] += same[i ^ 1];\n}\n"
    )
    turns, x, y = anymetal.compile_shader(source).turns, torch.zeros(64), torch.zeros(64)
    turns(x, y, threads=64, group_size=64)
    with pytest.raises(Failure, match=r"memory that does not change \(.nc\) was written"):
        turns(x, x, threads=64, group_size=64)


def test_barrier_that_is_missing_shows(changed: Callable[[str, str], None]) -> None:
    x = torch.arange(64.0)
    changed(r"barrier\.sync \s*0;", "")
    anymetal.compile_shader(SUMS).sums(x, threads=64, group_size=64)
    assert x[0] != 496


def test_copies_come_no_sooner_than_they_are_waited_for(
    changed: Callable[[str, str], None], x: torch.Tensor, weight: Any
) -> None:
    right = ops.quantized_linear(x, weight)
    assert torch.equal(ops.quantized_linear(x, weight), right)
    changed(r"cp\.async\.wait_group \d+;", "")
    assert not torch.equal(ops.quantized_linear(x, weight), right)
