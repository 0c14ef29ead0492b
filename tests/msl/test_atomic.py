"""metal_atomic under contention of many threadgroups, against what must come out in any order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lane_model import tensor

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
INDEX = "uint i [[thread_position_in_grid]]"
# Enough threads that several processors work on them at once.
THREADS, GROUP = 1 << 16, 64


INTEGERS = f"""{HEADER}
template <typename T>
kernel void combine(device const T* x, device atomic<T>* out, {INDEX}) {{
  T v = x[i];
  atomic_fetch_add_explicit(&out[0], v, memory_order_relaxed);
  atomic_fetch_sub_explicit(&out[1], v, memory_order_relaxed);
  atomic_fetch_and_explicit(&out[2], v | ~0x7f, memory_order_relaxed);
  atomic_fetch_or_explicit(&out[3], v & 0x1234, memory_order_relaxed);
  atomic_fetch_xor_explicit(&out[4], v, memory_order_relaxed);
  atomic_fetch_min_explicit(&out[5], v, memory_order_relaxed);
  atomic_fetch_max_explicit(&out[6], v, memory_order_relaxed);
  volatile device atomic<T>* counter = out + 7;
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}}
template [[host_name("combine_int")]] kernel void combine<int>(
    device const int*, device atomic<int>*, uint);
template [[host_name("combine_uint")]] kernel void combine<uint>(
    device const uint*, device atomic<uint>*, uint);
"""


@pytest.mark.parametrize("kind", ["int", "uint"])
def test_integer_operations_of_all_threads(kind: str) -> None:
    dtype = np.int32 if kind == "int" else np.uint32
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(6)
    x = rng.integers(limits.min, limits.max, THREADS, dtype, endpoint=True)
    out = np.array([5, 5, -1, 0, 0, 0, 0, 0], np.int64).astype(dtype)
    out[5:7] = limits.max, limits.min
    kernel = getattr(anymetal.compile_shader(INTEGERS), f"combine_{kind}")
    kernel(tensor(x), tensor(out), threads=THREADS, group_size=GROUP)
    with np.errstate(over="ignore"):
        total = x.sum(dtype=dtype)
        want = [
            dtype(5) + total,
            dtype(5) - total,
            np.bitwise_and.reduce(x | np.array(~0x7F).astype(dtype)),
            np.bitwise_or.reduce(x & dtype(0x1234)),
            np.bitwise_xor.reduce(x),
            x.min(),
            x.max(),
            THREADS,
        ]
    assert out.tolist() == [int(value) for value in want]


def test_fetch_returns_the_value_before() -> None:
    """Each thread draws a number: every one is drawn once."""
    source = f"""{HEADER}
kernel void draw(device atomic_uint* counter, device uint* taken, {INDEX}) {{
  taken[i] = atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
}}"""
    counter = torch.zeros(1, dtype=torch.int32)
    taken = torch.zeros(THREADS, dtype=torch.int32)
    anymetal.compile_shader(source).draw(counter, taken, threads=THREADS, group_size=GROUP)
    assert counter.item() == THREADS
    assert torch.equal(taken.sort().values, torch.arange(THREADS, dtype=torch.int32))


def test_float_add_and_sub() -> None:
    source = f"""{HEADER}
kernel void add(device atomic_float* out, device float* before, {INDEX}) {{
  before[i] = atomic_fetch_add_explicit(&out[0], 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&out[1], 0.5f, memory_order_relaxed);
  atomic_fetch_add_explicit(&out[2 + i % 3], float(i), memory_order_relaxed);
}}"""
    threads = 1 << 14  # small enough for every sum to be exact
    out, before = torch.zeros(5), torch.zeros(threads)
    anymetal.compile_shader(source).add(out, before, threads=threads, group_size=32)
    sums = [sum(range(rest, threads, 3)) for rest in range(3)]
    assert out[:2].tolist() == [threads, -threads / 2]
    assert torch.equal(before.sort().values, torch.arange(threads, dtype=torch.float32))
    # These three exceed 2**24: the order decides the last bits.
    torch.testing.assert_close(out[2:], torch.tensor(sums, dtype=torch.float32), rtol=1e-4, atol=0)


def test_compare_exchange_loops_lose_nothing() -> None:
    source = f"""{HEADER}
kernel void maximum(device const float* x, device atomic_float* largest, device atomic_uint* sum,
                    {INDEX}) {{
  float seen = atomic_load_explicit(largest, memory_order_relaxed);
  while (x[i] > seen && !atomic_compare_exchange_weak_explicit(
      largest, &seen, x[i], memory_order_relaxed, memory_order_relaxed)) {{
  }}
  uint old = 0;
  while (!atomic_compare_exchange_weak_explicit(
      sum, &old, old + i % 7, memory_order_relaxed, memory_order_relaxed)) {{
  }}
}}"""
    x = torch.rand(THREADS)
    largest, total = torch.full((1,), -1.0), torch.zeros(1, dtype=torch.int32)
    kernel = anymetal.compile_shader(source).maximum
    kernel(x, largest, total, threads=THREADS, group_size=GROUP)
    assert largest.item() == x.max().item()
    assert total.item() == sum(i % 7 for i in range(THREADS))


def test_load_store_and_exchange() -> None:
    source = f"""{HEADER}
kernel void single(device atomic_int* a, device atomic_float* f, device atomic_bool* b,
                   device int* out) {{
  atomic_store_explicit(a, 41, memory_order_relaxed);
  out[0] = atomic_exchange_explicit(a, 42, memory_order_relaxed);
  out[1] = atomic_load_explicit(a, memory_order_relaxed);
  atomic_store_explicit(f, 1.5f, memory_order_relaxed);
  out[2] = int(4 * atomic_exchange_explicit(f, 2.25f, memory_order_relaxed));
  const device atomic_float* same = f;
  out[3] = int(4 * atomic_load_explicit(same, memory_order_relaxed));
  out[4] = atomic_exchange_explicit(b, true, memory_order_relaxed);
  bool held = false;
  out[5] = atomic_compare_exchange_weak_explicit(b, &held, false, memory_order_relaxed,
                                                 memory_order_relaxed);
  out[6] = held;
  atomic_store_explicit(b + 1, true, memory_order_relaxed);
  int seen = 7;
  out[7] = atomic_compare_exchange_weak_explicit(a, &seen, 8, memory_order_relaxed,
                                                 memory_order_relaxed);
  out[8] = seen;
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst);
  atomic_thread_fence(mem_flags::mem_device | mem_flags::mem_threadgroup, memory_order_relaxed,
                      thread_scope_threadgroup);
}}"""
    a, f = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    b, out = torch.zeros(2, dtype=torch.bool), torch.zeros(9, dtype=torch.int32)
    anymetal.compile_shader(source).single(a, f, b, out, threads=1)
    assert out.tolist() == [41, 42, 6, 9, 0, 0, 1, 0, 42]
    assert (a.item(), f.item(), b.tolist()) == (42, 2.25, [True, True])


def test_64_bit_minimum_and_maximum() -> None:
    source = f"""{HEADER}
kernel void extremes(device const ulong* x, device atomic_ulong* out, {INDEX}) {{
  atomic_min_explicit(&out[0], x[i], memory_order_relaxed);
  atomic_max_explicit(&out[1], x[i], memory_order_relaxed);
}}"""
    x = np.random.default_rng(7).integers(0, 2**64, THREADS, np.uint64)
    out = np.array([2**64 - 1, 0], np.uint64)
    kernel = anymetal.compile_shader(source).extremes
    kernel(tensor(x), tensor(out), threads=THREADS, group_size=GROUP)
    assert out.tolist() == [int(x.min()), int(x.max())]


def test_threadgroup_atomics_make_a_histogram() -> None:
    source = f"""{HEADER}
kernel void histogram(device const uint* x, device atomic_uint* bins, {INDEX},
                      uint inside [[thread_index_in_threadgroup]]) {{
  threadgroup atomic_uint mine[16];
  threadgroup atomic_int total;
  if (inside < 16) atomic_store_explicit(&mine[inside], 0, memory_order_relaxed);
  if (inside == 0) atomic_store_explicit(&total, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&mine[x[i] % 16], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&total, 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (inside < 16) {{
    uint count = atomic_load_explicit(&mine[inside], memory_order_relaxed);
    atomic_fetch_add_explicit(&bins[inside], count, memory_order_relaxed);
  }}
  if (inside == 0) {{
    uint all = atomic_load_explicit(&total, memory_order_relaxed);
    atomic_fetch_add_explicit(&bins[16], all, memory_order_relaxed);
  }}
}}"""
    x = np.random.default_rng(8).integers(0, 1000, THREADS).astype(np.uint32)
    bins = np.zeros(17, np.uint32)
    kernel = anymetal.compile_shader(source).histogram
    kernel(tensor(x), tensor(bins), threads=THREADS, group_size=128)
    np.testing.assert_array_equal(bins[:16], np.bincount(x % 16, minlength=16))
    assert bins[16] == THREADS


def test_atomics_in_structures() -> None:
    source = f"""{HEADER}
struct Queue {{
  atomic_uint size;
  uint items[8];
}};
kernel void push(device Queue& queue, {INDEX}) {{
  uint slot = atomic_fetch_add_explicit(&queue.size, 1, memory_order_relaxed);
  if (slot < 8) queue.items[slot] = i;
}}"""
    queue = torch.zeros(9, dtype=torch.int32)
    anymetal.compile_shader(source).push(queue, threads=8)
    assert queue[0].item() == 8
    assert sorted(queue[1:].tolist()) == list(range(8))


REFUSED = (
    "atomic_fetch_and_explicit(f, 1, memory_order_relaxed)",
    "atomic_fetch_max_explicit(f, 1, memory_order_relaxed)",
    "atomic_fetch_add_explicit(b, true, memory_order_relaxed)",
    "atomic_load_explicit(l, memory_order_relaxed)",
    "atomic_fetch_add_explicit(l, 1, memory_order_relaxed)",
    "atomic_max_explicit(u, 1, memory_order_relaxed)",
    "atomic_fetch_add_explicit(u, 1, memory_order_seq_cst)",
    "atomic_fetch_add_explicit(u, 1, memory_order_acquire)",
    "atomic_load_explicit(u, order)",
    "atomic_fetch_add_explicit(u, uint2(1), memory_order_relaxed)",
    "atomic_fetch_add_explicit(p, 1, memory_order_relaxed)",
    "*u = 1",
    "uint copy = *u",
    "*u += 1",
    "atomic_uint mine",
)


def test_what_metal_refuses_does_not_compile() -> None:
    lines = "\n".join(f"  {{ {call}; }}" for call in REFUSED)
    source = f"""#include <metal_stdlib>
using namespace metal;
kernel void bad(device atomic_float* f, device atomic_bool* b, device atomic_ulong* l,
                device atomic_uint* u, device uint* p, constant memory_order& order) {{
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(REFUSED, start=5):
        assert f"<shader>:{number}:" in str(error.value), call


@pytest.mark.parametrize("kind", ["short", "long", "half", "char", "float2"])
def test_there_are_no_other_atomic_types(kind: str) -> None:
    source = f"{HEADER}kernel void bad(device atomic<{kind}>* x) {{}}"
    with pytest.raises(SyntaxError):
        anymetal.compile_shader(source).bad  # noqa: B018
