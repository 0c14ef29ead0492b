"""Vectors that are not aligned, on a simulated GPU: Metal lets them lie where elements may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.cuda import unaligned
from tests.cuda.assemble import assemble
from tests.cuda.simulator.device import Failure, simulated_gpu
from tests.cuda.unaligned import CASTS, HEADER, TYPED, TYPES

import anymetal
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.nouns import Source

PROMISE = "#include <anymetal/ahead.h>\nanymetal_vectors_are_aligned;\n"


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated_gpu():
        yield


def kernel(text: str, name: str, target: str = "cuda-sm90") -> CudaExecutable:
    made = Compiler(Source(HEADER + text)).compile(name, {}, PLAIN, target)
    assert isinstance(made, CudaExecutable)
    return made


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("columns", [4, 5, 6, 7])
def test_vectors_begin_at_any_element(type_: str, count: int, columns: int) -> None:
    assert unaligned.vectors(type_, count, columns, "cpu")


@pytest.mark.parametrize("start", range(5))
def test_threadgroup_memory(start: int) -> None:
    assert unaligned.threadgroup_memory(start, "cpu")


def test_signs_are_widened() -> None:
    assert unaligned.signs("cpu")


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_tensors_begin_at_any_element(offset: int) -> None:
    assert unaligned.typed_parameters(offset, "cpu")
    assert unaligned.lists_and_structs(offset, "cpu")


def test_elements_must_be_aligned() -> None:
    library = anymetal.compile_shader(HEADER + TYPED)
    x, y = torch.zeros(80, dtype=torch.uint8), torch.zeros(4)
    with pytest.raises(RuntimeError, match=r"sums: .*'x'.* a multiple of 4 bytes"):
        library.sums(x[2:], y, threads=4, group_size=4)


@pytest.mark.parametrize("name", ["doubled_half4", "doubled_uchar4", "turned"])
def test_both_ways_are_assembled(name: str) -> None:
    for processor in ("sm80", "sm90"):
        made = kernel(CASTS, name, f"cuda-{processor}")
        assert "$L__wide0" in made.ptx
        assert not assemble(made, processor.replace("sm", "sm_")).said


@pytest.mark.parametrize("name", ["sums", "added", "rows"])
def test_what_is_surely_aligned_is_not_looked_at(name: str) -> None:
    assert "$L__wide" not in kernel(TYPED, name).ptx


def test_buffers_should_lie_where_looks_are_spared() -> None:
    """Whole tensors do, whatever the kernel says of their type."""
    made = kernel(TYPED, "rows_of_16")
    assert "$L__wide" not in made.ptx
    assert made.aligned == {0: 16, 1: 16, 2: 4}
    assert kernel(TYPED, "both").aligned == {0: 4}
    looks = kernel(CASTS, "doubled_half4")
    assert looks.ptx.count("$L__wide") == 4  # a label and a jump, for the load and the store
    assert looks.aligned == {0: 2, 1: 2, 2: 4}


def test_addresses_that_are_computed_are_known() -> None:
    """By loops, constant strides and multiples: what real kernels do with typed pointers."""
    text = """
    kernel void known(device const float4* x, device float4* y, constant uint& steps,
                      constant uint& stride, uint i [[thread_position_in_grid]]) {
      threadgroup float4 tile[64];
      threadgroup float flat[64];
      float4 sum = 0;
      for (uint k = 0; k < steps; ++k) {
        tile[(i + k) % 64] = x[i * stride + k * 7];
        sum += *(threadgroup float4*)(flat + (i & ~3u) % 64) + tile[i ^ 1];
      }
      device const float* row = (device const float*)(x + i * stride);
      y[i] = sum + *(device const float4*)(row + 4 * i) + *(device const float4*)(row + 8);
    }
    """
    assert "$L__wide" not in kernel(text, "known").ptx


def test_promise_takes_the_guards_away() -> None:
    made = kernel(PROMISE + CASTS, "doubled_float4")
    assert "$L__wide" not in made.ptx
    assert "am_promise_alignment" not in made.ptx


def test_broken_promise_is_a_fault_of_the_hardware() -> None:
    """The simulator stops as a GPU does: without guards these tests would fail."""
    library = anymetal.compile_shader(HEADER + PROMISE + CASTS)
    with pytest.raises(Failure, match="not aligned"):
        library.doubled_float4(torch.zeros(64), torch.zeros(64), 5, threads=4, group_size=4)
