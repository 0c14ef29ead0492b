"""Simdgroups as vectors, beside the coroutine engine: results are equal bit by bit."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest
import torch
from simdgroup_cases import CASES, MATRICES, source

import anymetal
from anymetal.engines.cpu import generator
from anymetal.engines.cpu.simdgroups.engine import (
    SimdgroupEngine,
    SimdgroupExecutable,
    shape_of,
)
from anymetal.engines.cpu.target import HOST
from anymetal.errors import EngineError, Unsuitable
from anymetal.msl.compile import compile_program
from anymetal.msl.prepare import prepare
from anymetal.nouns import Source
from anymetal.passes.simdgroup.rules import GroupShape

Sizes = tuple[int, int, int]
WORDS = 1 << 15


def run(
    monkeypatch: pytest.MonkeyPatch, engine: str, text: str, threads: Sizes, group_size: Sizes
) -> list[torch.Tensor]:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(0, 1 << 20, (WORDS,), generator=generator, dtype=torch.int32)
    y = torch.rand(WORDS, generator=generator)
    out = torch.zeros(WORDS, dtype=torch.int32)
    counters = torch.zeros(64, dtype=torch.int32)
    kernel = anymetal.compile_shader(text).f
    kernel(x, y, out, counters, threads=threads, group_size=group_size)
    return [out, counters]


def assert_equal_on_both(
    monkeypatch: pytest.MonkeyPatch, text: str, threads: Sizes, group_size: Sizes
) -> None:
    expected = run(monkeypatch, "coroutine", text, threads, group_size)
    found = run(monkeypatch, "simdgroup", text, threads, group_size)
    for wanted, got in zip(expected, found, strict=True):
        different = (wanted != got).nonzero().flatten().tolist()
        assert not different, f"words {different[:8]}"
    assert any(wanted.any() for wanted in expected)


def text_of(name: str) -> str:
    case = CASES[name]
    return source(case) if isinstance(case, str) else source(*case)


@pytest.mark.parametrize("name", sorted(CASES))
def test_whole_simdgroups(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_equal_on_both(monkeypatch, text_of(name), (192, 1, 1), (96, 1, 1))


@pytest.mark.parametrize("name", sorted(set(CASES) - MATRICES))
def test_partial_simdgroups(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_equal_on_both(monkeypatch, text_of(name), (133, 1, 1), (45, 1, 1))


SHAPES = [
    ((70, 1, 1), (64, 1, 1)),
    ((64, 4, 1), (16, 2, 1)),
    ((24, 16, 1), (8, 8, 1)),
    ((20, 13, 1), (8, 8, 1)),
    ((5, 7, 2), (5, 7, 2)),
    ((11, 15, 5), (5, 7, 2)),
    ((9, 9, 1), (3, 3, 1)),
    ((10, 8, 1), (3, 3, 1)),
    ((1, 64, 1), (1, 64, 1)),
    ((2, 2, 32), (2, 2, 16)),
    ((64, 3, 2), (32, 3, 2)),
    ((4, 8, 6), (4, 8, 3)),
    ((3, 2, 33), (1, 1, 32)),
]
EVERYTHING_OF_A_POSITION = """
  threadgroup uint tile[1024];
  const uint threads = size.x * size.y * size.z;
  tile[threads - 1 - index] = (in_group.z * 100 + in_group.y) * 100 + in_group.x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint total = tile[index] + simd_sum(lane + in_group.y) * 1000;
  if (in_group.x % 2 == 1) total += simd_sum(index) + simd;
  for (uint k = 0; k < in_group.y; ++k) total = total * 3 + k;
  out[i] = total ^ v;
"""


@pytest.mark.parametrize(("threads", "group_size"), SHAPES)
def test_shapes_of_grids_and_threadgroups(
    monkeypatch: pytest.MonkeyPatch, threads: Sizes, group_size: Sizes
) -> None:
    assert_equal_on_both(monkeypatch, source(EVERYTHING_OF_A_POSITION), threads, group_size)


TILES = """
  threadgroup float a[32][32], b[32][64];
  const uint width = min(size.x, 64u), column = in_group.x % 64, rows = size.y;
  float one = 0, other = w, third = 0;
  for (uint start = 0; start < 3; ++start) {
    for (uint k = in_group.x; k < 32; k += width) a[in_group.y][k] = y[i + start * 7 + k];
    for (uint k = in_group.y; k < 32; k += rows) b[k][column] = y[start * 100 + k * 64 + column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 32; ++k) one += a[in_group.y][k] * b[k][column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 20; ++k) {
      one = fma(b[k][column], w, one);
      other -= b[k][column] * a[in_group.y][k + 1] + one;
      third = third * w + b[k + start][column];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < in_group.y; ++k) other += b[k][column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[i] = as_type<uint>(one) ^ (as_type<uint>(other) * 3) ^ (as_type<uint>(third) * 5);
"""


@pytest.mark.parametrize(
    ("threads", "group_size"),
    [
        ((64, 16, 1), (32, 8, 1)),
        ((32, 14, 1), (32, 7, 1)),
        ((64, 20, 1), (64, 10, 1)),
        ((48, 9, 1), (32, 5, 1)),
        ((16, 32, 1), (16, 16, 1)),
    ],
)
def test_simdgroups_side_by_side(
    monkeypatch: pytest.MonkeyPatch, threads: Sizes, group_size: Sizes
) -> None:
    """Between barriers some run as one; those that are left over, or lie elsewhere, do not."""
    assert_equal_on_both(monkeypatch, source(TILES), threads, group_size)


def test_results_of_atomics_are_all_different(monkeypatch: pytest.MonkeyPatch) -> None:
    text = source("out[i] = atomic_fetch_add_explicit(&counters[0], 1, memory_order_relaxed);")
    out, counters = run(monkeypatch, "simdgroup", text, (150, 1, 1), (64, 1, 1))
    assert sorted(out[:150].tolist()) == list(range(150))
    assert counters[0] == 150


def test_compare_and_exchange_under_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    text = source("""
  if (v % 2) return;
  uint seen = atomic_load_explicit(&counters[0], memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&counters[0], &seen, seen + lane + 1,
                                                memory_order_relaxed, memory_order_relaxed)) {}
  out[i] = lane + 1;""")
    out, counters = run(monkeypatch, "simdgroup", text, (96, 1, 1), (32, 1, 1))
    assert counters[0] == out.sum()
    assert counters[0] > 0


@pytest.mark.parametrize(
    ("group_size", "shape"),
    [
        ((64, 1, 1), GroupShape(32, complete=True)),
        ((45, 1, 1), GroupShape(32, complete=False)),
        ((32, 3, 2), GroupShape(32, complete=True)),
        ((16, 2, 1), GroupShape(16, complete=True)),
        ((8, 3, 1), GroupShape(8, complete=False)),
        ((4, 8, 3), GroupShape(4, complete=True)),
        ((4, 3, 8), GroupShape(0, complete=True)),
        ((5, 7, 2), GroupShape(0, complete=False)),
        ((1, 64, 1), GroupShape(1, complete=True)),
    ],
)
def test_shape_of_a_threadgroup(group_size: Sizes, shape: GroupShape) -> None:
    assert shape_of(group_size) == shape


def executable_of(text: str) -> SimdgroupExecutable:
    return SimdgroupEngine().compile(compile_program(prepare(Source(text)), "f", {}, HOST))


def test_too_long_for_one_shape_is_left_to_coroutines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Complete simdgroups need no masked copy of the whole kernel; others may ask too much."""
    text = source("out[i] = v * 3;  // too long for one shape")
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    kernel = anymetal.compile_shader(text).f
    executable = kernel._plain.executable
    assert (kernel.engine, kernel.engine_reason) == ("simdgroup", "")
    monkeypatch.setitem(executable.metadata, "heaviest", 1)
    monkeypatch.setattr("anymetal.engines.cpu.simdgroups.engine.default_store", NoStore)
    x = torch.arange(40, dtype=torch.int32)
    out, spare = torch.zeros_like(x), torch.zeros(40)
    with caplog.at_level("INFO", "anymetal.engines"):
        for _ in range(2):
            kernel(x, spare, out, out, threads=40, group_size=20)
    assert len(caplog.messages) == 1
    assert "a launch runs on the coroutine engine: its vector code" in caplog.text
    assert kernel.engine_reason.startswith("coroutine for threadgroups of (20, 1, 1): its vector")
    assert out.tolist() == (x * 3).tolist()
    monkeypatch.setenv("ANYMETAL_ENGINE", "simdgroup")
    kernel._plain._spare = None
    with pytest.raises(EngineError, match="cannot run on the simdgroup engine: its vector code"):
        kernel(x, spare, out, out, threads=40, group_size=20)


class NoStore:
    """Keeps nothing, so that code is generated anew."""

    def get(self, room: str, key: str) -> None:
        return None

    def put(self, *entry: object) -> None:
        pass


def test_what_cannot_be_vectorised_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = source("Step steps[3] = {&a, &b, &c}; out[i] = steps[v % 3](v);", FUNCTION_POINTERS)
    monkeypatch.setenv("ANYMETAL_ENGINE", "simdgroup")
    with pytest.raises(EngineError, match="'f' cannot run on the simdgroup engine: indirect call"):
        anymetal.compile_shader(text).f  # noqa: B018
    with pytest.raises(Unsuitable, match="indirect call"):
        executable_of(text)
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    with caplog.at_level("INFO", "anymetal.engines"):
        kernel = anymetal.compile_shader(text).f
    assert kernel.engine == "coroutine"
    assert "indirect call" in kernel.engine_reason
    assert f"kernel 'f' runs on the coroutine engine: {kernel.engine_reason}" in caplog.messages


def test_the_former_name_of_the_engine_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "regions")
    assert anymetal.compile_shader(source("out[i] = v;")).f.engine == "simdgroup"


FUNCTION_POINTERS = """
typedef uint (*Step)(uint);
uint a(uint v) { return v + 1; }
uint b(uint v) { return v * 2; }
uint c(uint v) { return v ^ 99; }
"""

CONTIGUOUS = """#include <metal_stdlib>
kernel void f(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * 2.0f + 1.0f;
}
"""


def assembly_of(monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """What the engine compiles for complete simdgroups, as the processor's instructions."""
    seen: list[str] = []
    run = generator._run

    def run_both(ir: str, flags: list[str]) -> bytes:
        seen.append(run(ir, ["-S" if flag == "-emit-obj" else flag for flag in flags]).decode())
        return run(ir, flags)

    monkeypatch.setattr(generator, "_run", run_both)
    monkeypatch.setattr("anymetal.engines.cpu.simdgroups.engine.default_store", NoStore)
    executable_of(text).code_for(GroupShape(32, complete=True))
    return seen[-1]


@pytest.mark.skipif(
    not llvm.get_process_triple().startswith(("x86_64", "amd64")), reason="names of registers"
)
def test_code_uses_the_widest_registers_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    features = llvm.get_host_cpu_features()
    register = "zmm" if features.get("avx512f") else "ymm" if features.get("avx") else "xmm"
    assembly = assembly_of(monkeypatch, CONTIGUOUS)
    arithmetic = re.findall(rf"\n\s+v?(?:fmadd|mulps|addps)\w*\s.*%{register}\d+", assembly)
    moves = re.findall(rf"\n\s+v?movup[sd]\w*\s.*%{register}\d+", assembly)
    assert len(arithmetic) >= 2
    assert len(moves) >= 2
    assert "gather" not in assembly


def test_vector_code_that_llvm_refuses_is_reported_with_a_way_out() -> None:
    program = compile_program(prepare(Source(source("out[i] = v * 3 + 7;"))), "f", {}, HOST)
    executable = SimdgroupEngine().compile(program)
    shape = GroupShape(32, complete=True)
    broken = executable.written_for(shape)
    broken.module.parts.append("nonsense")
    executable.keep(broken, shape)
    executable._key = "a key that no earlier run has used"
    with pytest.raises(EngineError, match=r"please report it(?s:.*)ANYMETAL_ENGINE=coroutine"):
        executable.code_for(shape)
