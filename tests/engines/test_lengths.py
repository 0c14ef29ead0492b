"""What `python -m tests.engines.lengths` says of kernels: of short ones, long ones and too long."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.engines import kernel_sets, lengths
from tests.engines.kernel_sets import Wanted, sized

from anymetal.engines.compiler import Compiler
from anymetal.engines.cpu.simdgroups import engine
from anymetal.nouns import Source
from anymetal.ops.declare import OPERATORS
from anymetal.passes.simdgroup import prepare

KERNEL = """
#include <metal_stdlib>
using namespace metal;

kernel void sums(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  threadgroup float kept[32];
  kept[i % 32] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 32; ++k) sum += kept[k] * kept[(k + i) % 32];
  x[i] = sum;
}
"""


def wanted(*groups: tuple[tuple[int, int, int], bool]) -> Wanted:
    return Wanted("sums", partial(Compiler(Source(KERNEL)).program, "sums", {}), groups)


def test_a_kernel_has_a_row_for_each_shape() -> None:
    found = lengths.written([wanted(((64, 1, 1), False), ((8, 4, 1), False), ((40, 1, 1), True))])
    assert {(row.shape.row, row.shape.complete) for row in found.rows} == {
        (32, True),
        (32, False),
        (8, True),
    }
    assert all(row.instructions > 20 and not row.is_long and not row.why for row in found.rows)
    assert "3 forms of 1 kernels" in found.summary("these")
    assert "0 fall back for their length" in found.summary("these")


def test_the_long_form_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "LONG", 10)
    found = lengths.written([wanted()])
    assert [row.is_long for row in found.rows] == [True]
    assert str(found.rows[0]).endswith("sums long")


def test_a_kernel_that_is_too_long_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine, "HEAVIEST", 10)
    monkeypatch.setattr(engine, "_TIMES_AS_LONG", 0)
    monkeypatch.setitem(kernel_sets.SETS, "these", lambda: [wanted()])
    assert lengths.main(["these"]) == 1
    assert "1 fall back for their length, 0 for another reason" in capsys.readouterr().out


def test_a_kernel_that_is_long_itself_may_be_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HEAVIEST", 10)
    monkeypatch.setattr(engine, "_TIMES_AS_LONG", 100)
    assert not lengths.written([wanted()]).fallen


def test_a_kernel_that_unrolling_makes_long_keeps_its_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = KERNEL.replace("kept[32];", "kept[32]; float own[8];").replace(
        "float sum = 0;", "float sum = 0; for (uint k = 0; k < 8; ++k) own[k] = x[i + k];"
    )
    text = text.replace("kept[(k + i) % 32]", "own[k % 8]")
    program = Compiler(Source(text)).program("sums", {})
    unrolled, _ = engine.SimdgroupEngine().prepared(program, patient=False)
    monkeypatch.setattr(engine, "_LONGEST_UNROLLED", 10)
    kept, _ = engine.SimdgroupEngine().prepared(program, patient=False)
    assert kept.count("\n") < unrolled.count("\n")
    assert kept == engine.SimdgroupEngine().prepared(program, patient=False, unroll=False)[0]


def test_the_longest_of_the_operators_do_not_fall_back() -> None:
    """The gradients of attention; the script itself has all of them."""
    chosen = [OPERATORS["scaled_dot_product_attention"]]
    kernels = kernel_sets.operators(chosen, [torch.float16])
    longest = [one for one in kernels if "half_half_128" in one.name]
    found = lengths.written(longest)
    assert any(row.is_long for row in found.rows)
    assert not found.fallen


def test_the_largest_of_a_family() -> None:
    names = {"gemm_nt_float16_bm32": 10, "gemm_nt_bfloat16_bm64": 30, "gemm_tn_complex64_bm8": 20}
    kernels = [replace(wanted(), name=name, size=size) for name, size in names.items()]
    assert [one.name for one in lengths.largest(kernels)] == [
        "gemm_nt_bfloat16_bm64",
        "gemm_tn_complex64_bm8",
    ]


def test_sizes_of_launches() -> None:
    assert sized((100,), (32,)) == ((32, 1, 1), True)
    assert sized((64, 6, 2), (32, 3)) == ((32, 3, 1), False)
