"""Names as Apple's headers have them: which are visible, and how functions are found."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import compiled, kernel

import anymetal


def test_names_that_metal_does_not_have_are_free() -> None:
    source = """#include <metal_stdlib>
using namespace metal;
constant bool forward [[function_constant(0)]];
kernel void turn(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = forward ? x[i] : -x[i];
}"""
    library = anymetal.compile_shader(source)
    x = torch.ones(4)
    library.specialize("turn", {"forward": False})(x)
    assert x.tolist() == [-1] * 4


def test_barriers_and_fences_are_found_by_their_argument() -> None:
    source = """#include <metal_stdlib>
kernel void swap_ends(device float* x, uint i [[thread_position_in_grid]]) {
  float other = x[31 - i];
  threadgroup_barrier(metal::mem_flags::mem_device);
  x[i] = other;
  simdgroup_barrier(metal::mem_flags::mem_none | metal::mem_flags::mem_device);
  atomic_thread_fence(metal::mem_flags::mem_device, metal::memory_order_seq_cst,
                      metal::thread_scope_system);
}"""
    x = torch.arange(32.0)
    anymetal.compile_shader(source).swap_ends(x, group_size=32)
    assert x.tolist() == list(range(31, -1, -1))


@pytest.mark.parametrize("place", ["{} device", "device {}"])
@pytest.mark.parametrize("word", ["coherent", "coherent(device)", "volatile coherent(system)"])
@pytest.mark.parametrize("kind", ["uint", "const int32_t"])
def test_coherent_memory_is_read_and_written(place: str, word: str, kind: str) -> None:
    pointer = f"{place.format(word)} {kind}*"
    source = f"""#include <metal_stdlib>
using namespace metal;
static uint read({pointer} p, uint i) {{ return p[i]; }}
kernel void copy({pointer} x [[buffer(0)]], {place.format(word)} uint* y [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {{
  y[i] = read(x, i);
}}"""
    x, y = torch.arange(5, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    anymetal.compile_shader(source).copy(x, y)
    assert torch.equal(x, y)


def test_coherent_vectors_and_a_name_of_ones_own() -> None:
    source = """#include <metal_stdlib>
using namespace metal;
kernel void copy(coherent(device) device const float4* x [[buffer(0)]],
                 device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float coherent = x[i].w;
  y[i] = (coherent) + 1;
}"""
    x, y = torch.arange(8.0), torch.zeros(2)
    anymetal.compile_shader(source).copy(x, y, threads=2)
    assert y.tolist() == [4, 8]


def test_coherent_memory_is_read_in_every_round() -> None:
    """Without a fresh read the loop would never end."""
    parameters = "coherent(device) device uint* flag [[buffer(0)]]"
    program = compiled(kernel("while (flag[0] == 0) {}", parameters))
    assert "load volatile i32" in program.ir
