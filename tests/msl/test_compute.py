"""metal_compute: barriers hold every thread back until all have come, and flags combine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lane_model import tensor

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


@pytest.mark.parametrize("group", [1, 7, 32, 33, 256, 1024])
def test_threadgroup_barrier_shows_all_writes(group: int) -> None:
    source = f"""{HEADER}
kernel void reverse(device const uint* x, device uint* y, constant uint& n,
                    uint i [[thread_position_in_grid]],
                    uint inside [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {{
  threadgroup uint shared[1024];
  for (uint round = 0; round < 3; ++round) {{
    shared[inside] = x[i] + round;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    y[round * n + i] = shared[size - 1 - inside];
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  }}
}}"""
    groups = 3
    n = group * groups
    x = np.arange(n, dtype=np.uint32)
    y = np.zeros((3, groups, group), np.uint32)
    kernel = anymetal.compile_shader(source).reverse
    kernel(tensor(x), tensor(y), n, threads=n, group_size=group)
    want = x.reshape(groups, group)[:, ::-1]
    for round_ in range(3):
        np.testing.assert_array_equal(y[round_], want + round_)


@pytest.mark.diverges
def test_barrier_goes_on_without_threads_that_ended() -> None:
    source = f"""{HEADER}
kernel void early(device uint* y, uint inside [[thread_index_in_threadgroup]]) {{
  threadgroup uint shared[64];
  shared[inside] = inside;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (inside % 5 == 0) return;
  shared[inside] = 100;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint total = 0;
  for (uint i = 0; i < 64; ++i) total += shared[i];
  y[inside] = total;
}}"""
    y = torch.zeros(64, dtype=torch.int32)
    anymetal.compile_shader(source).early(y, threads=64)
    total = sum(i if i % 5 == 0 else 100 for i in range(64))
    assert y.tolist() == [0 if i % 5 == 0 else total for i in range(64)]


def test_simdgroup_barrier_orders_one_simdgroup() -> None:
    source = f"""{HEADER}
kernel void neighbours(device uint* y, uint inside [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {{
  threadgroup uint shared[96];
  threadgroup uint* mine = shared + inside / 32 * 32;
  for (uint round = 0; round <= inside / 32; ++round) {{
    mine[lane] = inside + round;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    y[inside] = mine[(lane + 1) % 32];
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }}
}}"""
    y = torch.zeros(96, dtype=torch.int32)
    anymetal.compile_shader(source).neighbours(y, threads=96, group_size=96)
    assert y.tolist() == [i // 32 * 32 + (i + 1) % 32 + i // 32 for i in range(96)]


def test_barrier_in_a_loop_of_a_whole_group() -> None:
    """A tree reduction: fewer threads work in every round, all come to the barrier."""
    source = f"""{HEADER}
kernel void tree(device const float* x, device float* y, uint i [[thread_position_in_grid]],
                 uint inside [[thread_index_in_threadgroup]],
                 uint size [[threads_per_threadgroup]],
                 uint group [[threadgroup_position_in_grid]]) {{
  threadgroup float shared[512];
  shared[inside] = x[i];
  for (uint half_size = size / 2; half_size > 0; half_size /= 2) {{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (inside < half_size) shared[inside] += shared[inside + half_size];
  }}
  if (inside == 0) y[group] = shared[0];
}}"""
    x, y = torch.randint(0, 100, (5, 512)).float(), torch.zeros(5)
    anymetal.compile_shader(source).tree(x, y, threads=5 * 512, group_size=512)
    assert torch.equal(y, x.sum(1))


def test_flags_and_scopes_have_metals_values() -> None:
    source = f"""{HEADER}
kernel void values(device uint* y) {{
  mem_flags both = mem_flags::mem_device | mem_flags::mem_texture;
  y[0] = uint(both);
  y[1] = uint(mem_flags::mem_none) | uint(mem_flags::mem_threadgroup);
  y[2] = uint(mem_flags::mem_threadgroup_imageblock | mem_flags::mem_object_data);
  y[3] = thread_scope_thread + 10 * thread_scope_simdgroup + 100 * thread_scope_threadgroup +
         1000 * thread_scope::thread_scope_device;
  threadgroup_barrier(both);
}}"""
    y = torch.zeros(4, dtype=torch.int32)
    anymetal.compile_shader(source).values(y, threads=1)
    assert y.tolist() == [5, 2, 24, 2140]


REFUSED = (
    "threadgroup_barrier()",
    "threadgroup_barrier(2)",
    "threadgroup_barrier(mem_threadgroup)",
    "uint bits = mem_flags::mem_device",
    "simdgroup_barrier(memory_order_relaxed)",
)


def test_what_metal_refuses_does_not_compile() -> None:
    lines = "\n".join(f"  {{ {call}; }}" for call in REFUSED)
    source = f"""#include <metal_stdlib>
using namespace metal;
kernel void bad(device uint* x) {{
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(REFUSED, start=4):
        assert f"<shader>:{number}:" in str(error.value), call
