"""What the CUDA engine makes of kernels runs on a simulated GPU: the same results as elsewhere, and
the simulator finds what is wrong.

The launches of all header tests, and the tests of all operators: `make simulated`.
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
HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu(), as_if_on("cuda"):
        yield


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("seed", (9_100_000, 9_100_001, 9_100_002, 9_100_018))
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


def test_quotients_and_remainders_of_zero_are_zero() -> None:
    """clang makes one division of both."""
    source = HEADER + (
        "kernel void both(device int2* x, device const int* by,"
        " uint i [[thread_position_in_grid]]) {\n"
        "  x[i] = int2(x[i].x / by[i], x[i].x % by[i]);\n}\n"
    )
    x, by = torch.full((4, 2), -7, dtype=torch.int32), torch.tensor([0, 2, -1, 7]).int()
    anymetal.compile_shader(source).both(x, by, threads=4, group_size=4)
    assert x.tolist() == [[0, 0], [-3, -1], [7, 0], [-1, 0]]


# --- barriers to which a part of the lanes may come ----------------------------------------------

APART = HEADER + (
    "kernel void waits(device float* x, uint i [[thread_position_in_grid]],"
    " uint lane [[thread_index_in_simdgroup]]) {{\n"
    "  float a = x[i];\n"
    "  if (lane < 20)\n"
    "    for (uint k = 0; k < 3; ++k) {{\n"
    "      threadgroup_barrier(mem_flags::{flags});\n      a += x[(i + k) % 64];\n    }}\n"
    "  x[64 + i] = simd_sum(a);\n}}\n"
)


def test_barrier_that_puts_nothing_in_order_needs_no_lane() -> None:
    x = torch.arange(128.0)
    sums = [sum(r + (r + r + 1 + r + 2 if r % 32 < 20 else 0) for r in range(s, s + 32))
            for s in (0, 32)]  # fmt: skip
    source = APART.format(flags="mem_none")
    anymetal.compile_shader(source).waits(x, threads=64, group_size=64)
    assert x[64:].tolist() == [sums[0]] * 32 + [sums[1]] * 32


def test_barrier_that_lanes_pass_by_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the sum and those at the barrier would wait for each other for ever."""
    monkeypatch.setenv("ANYMETAL_TIME_LIMIT", "0.3")
    source = APART.format(flags="mem_threadgroup")
    kernel = anymetal.compile_shader(source).waits
    with pytest.raises(Failure, match="call of __assertfail"):
        kernel(torch.zeros(128), threads=64, group_size=64)


def test_barriers_that_depend_on_memory_let_all_lanes_go_on() -> None:
    """Rounds are known to nobody before, lanes of the last simdgroup end before them."""
    source = HEADER + (
        "kernel void turns(device float* x, device volatile uint* rounds,"
        " uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {\n"
        "  threadgroup float shared[96];\n  shared[i] = x[i];\n"
        "  if (i >= 70) return;\n"
        "  for (uint k = 0; k < rounds[i]; ++k) {\n"
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "    float next = shared[(i + 1) % 70] + simd_sum(lane < 6 ? 1.0f : 0.0f);\n"
        "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    shared[i] = next;\n  }\n"
        "  x[i] = shared[i];\n}\n"
    )
    x, rounds = torch.arange(96.0), torch.full((96,), 5, dtype=torch.int32)
    kernel = anymetal.compile_shader(source).turns
    kernel(x, rounds, threads=96, group_size=96)
    assert x[:70].tolist() == [(i + 5) % 70 + 30.0 for i in range(70)]
    assert x[70:].tolist() == list(range(70, 96))


# --- what the simulator finds ---------------------------------------------------------------------

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
