"""metal_simdgroup against numpy: every function, type and vector size, whole and partial groups."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from collective_cases import (
    FULL,
    HEADER,
    LANE,
    ODD,
    ONE,
    THIRDS,
    Family,
    assert_every_function_matches,
    assert_refused,
)
from lane_model import LANES, SCALARS, Mask, fill, first_active, reduce, scan, tensor

import anymetal


def sources(active: Mask) -> tuple[npt.NDArray[np.int_], ...]:
    """The lane that each lane reads, by SIMD.reads."""
    lane = np.arange(LANES)
    return (
        np.full(LANES, 5),
        first_active(active),
        (lane * 7 + 3) & 31,
        lane ^ 5,
        lane + 3,
        lane - 3,
        (lane + 5) % 32,
        (lane - 5) % 32,
    )


SIMD = Family(
    prefix="simd_",
    width=LANES,
    reads=(
        "broadcast(v, 5)",
        "broadcast_first(v)",
        "shuffle(v, lane * 7 + 3 & 31)",
        "shuffle_xor(v, 5)",
        "shuffle_down(v, 3)",
        "shuffle_up(v, 3)",
        "shuffle_rotate_down(v, 5)",
        "shuffle_rotate_up(v, 5)",
    ),
    sources=sources,
    fills=(
        "shuffle_and_fill_down(v, f, 3)",
        "shuffle_and_fill_up(v, f, 3)",
        "shuffle_and_fill_down(v, f, 3, 8)",
        "shuffle_and_fill_up(v, f, 1, 2)",
    ),
    shifts=((3, 32), (-3, 32), (3, 8), (-1, 2)),
)


@pytest.mark.diverges
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("scalar", SCALARS)
def test_every_function_matches_numpy(scalar: str, size: int) -> None:
    # A threadgroup of 77 threads: two whole simdgroups and one of 13 lanes.
    launches = [(mask, 77) for mask in (FULL, THIRDS, ODD, ONE)]
    assert_every_function_matches(SIMD, scalar, size, launches)


@pytest.mark.diverges
def test_every_function_matches_numpy_in_whole_simdgroups() -> None:
    """Threadgroups without a partial simdgroup have code of their own."""
    launches = ((FULL, 64), (ODD, 64), (ONE, 32))
    assert_every_function_matches(SIMD, "int", 3, launches)


VOTES = f"""{HEADER}
kernel void votes(device const bool* yes, device ulong* out, constant uint& n, constant uint& mask,
                  uint i [[thread_position_in_grid]], {LANE}) {{
  if (mask >> lane & 1) {{
    out[i] = (simd_vote::vote_t)simd_ballot(yes[i]) & 0xffffffff;
    out[n + i] = (simd_vote::vote_t)simd_active_threads_mask() & 0xffffffff;
    out[2 * n + i] = simd_all(yes[i]);
    out[3 * n + i] = simd_any(yes[i]);
    out[4 * n + i] = simd_is_first();
    out[5 * n + i] = simd_ballot(yes[i]).all();
    out[6 * n + i] = simd_ballot(yes[i]).any();
    out[7 * n + i] = simd_is_helper_thread();
  }}
}}"""


@pytest.mark.diverges
@pytest.mark.parametrize("threads", [32, 77])
@pytest.mark.parametrize("mask", [FULL, THIRDS, ONE])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_votes_count_active_threads_only(threads: int, mask: int, share: float) -> None:
    yes = np.random.default_rng(1).random(threads) < share
    out = np.full((8, threads), 99, np.uint64)
    library = anymetal.compile_shader(VOTES)
    library.votes(
        torch.from_numpy(yes), tensor(out), threads, mask, threads=threads, group_size=threads
    )
    for start in range(0, threads, LANES):
        lanes = np.arange(min(LANES, threads - start))
        active = [lane for lane in lanes if mask >> int(lane) & 1]
        true = [lane for lane in active if yes[start + lane]]
        ballot = sum(1 << int(lane) for lane in true)
        for lane in active:
            row = out[:, start + lane].tolist()
            assert row[0] == ballot
            assert row[1] == sum(1 << int(other) for other in active)
            assert row[2] == (true == active)
            assert row[3] == (true != [])
            assert row[4] == (lane == active[0])
            assert row[5] == (ballot == 0xFFFFFFFF)
            assert row[6] == (ballot != 0)
            assert row[7] == 0


def test_vote_converts_and_compares_its_bits() -> None:
    source = f"""{HEADER}
kernel void convert(device ulong* out) {{
  simd_vote none, all(0xffffffff), some(6), above(0xff00000000ul);
  out[0] = (simd_vote::vote_t)none;
  out[1] = static_cast<simd_vote::vote_t>(some);
  out[2] = none.any() | none.all() << 1 | all.any() << 2 | all.all() << 3 | some.any() << 4;
  out[3] = above.any();
  out[4] = sizeof(simd_vote::vote_t);
}}"""
    out = torch.zeros(5, dtype=torch.int64)
    anymetal.compile_shader(source).convert(out, threads=1)
    assert out.tolist() == [0, 6, 0b11100, 0, 8]


@pytest.mark.diverges
def test_min_and_max_pass_over_nan() -> None:
    source = f"""{HEADER}
kernel void extremes(device const float* x, device const half* y, device float* out,
                     constant uint& mask, {LANE}) {{
  if (mask >> lane & 1) {{
    out[lane] = simd_min(x[lane]);
    out[32 + lane] = simd_max(x[lane]);
    out[64 + lane] = simd_min(y[lane]);
    out[96 + lane] = simd_max(y[lane]);
  }}
}}"""
    library = anymetal.compile_shader(source)
    fast = anymetal.compile_shader(source, fast_math=True)
    x = torch.full((32,), float("nan"))
    x[3], x[20], x[21] = 4.0, -7.0, 2.0
    for kernels in (library, fast):
        for mask, low, high in ((FULL, -7.0, 4.0), (1 << 3 | 1 << 4, 4.0, 4.0)):
            out = torch.zeros(4, 32)
            kernels.extremes(x, x.half(), out, mask, threads=32)
            taken = [lane for lane in range(32) if mask >> lane & 1]
            assert (out[[0, 2]][:, taken] == low).all()
            assert (out[[1, 3]][:, taken] == high).all()
    out = torch.zeros(4, 32)
    library.extremes(x, x.half(), out, 0b11, threads=32)
    assert out[:, :2].isnan().all()
    everywhere = torch.full((32,), float("inf"))
    library.extremes(everywhere, everywhere.half(), out, 0b11, threads=32)
    assert (out[:, :2] == float("inf")).all()


@pytest.mark.diverges
def test_lanes_that_wait_elsewhere_keep_their_values() -> None:
    """Both branches hold a collective of another size; neither may disturb the other's lanes."""
    source = f"""{HEADER}
kernel void branches(device const float4* x, device float4* out, {LANE}) {{
  float4 v = x[lane];
  float4 r = v;
  if (lane % 3 == 0) {{
    r.x = simd_sum(v.x);
    r.yz = simd_max(v.yz);
  }} else if (lane % 3 == 1) {{
    r = simd_shuffle_and_fill_down(v, -v, 3);
  }} else {{
    ushort s = simd_sum(ushort(lane));
    r.x = s;
    r.y = simd_prefix_inclusive_sum(v.y);
  }}
  out[lane] = r + simd_broadcast_first(v);
}}"""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(32, 4)).astype(np.float32)
    out = torch.zeros(32, 4)
    anymetal.compile_shader(source).branches(torch.from_numpy(x), out, threads=32)
    lane = np.arange(32)
    want = x.copy()
    zero, one, two = (lane % 3 == rest for rest in range(3))
    want[zero, 0] = reduce("sum", x[:, :1], zero)[zero, 0]
    want[zero, 1:3] = reduce("max", x[:, 1:3], zero)[zero]
    want[one] = fill(x, -x, one, 3, 32)[one]
    want[two, 0] = lane[two].sum()
    want[two, 1] = scan("sum", x[:, 1:2], two, inclusive=True)[two, 0]
    np.testing.assert_array_equal(out.numpy(), want + x[0])


@pytest.mark.diverges
def test_loops_with_different_trip_counts() -> None:
    """In each round the lanes that are still in the loop take part, and no others."""
    source = f"""{HEADER}
kernel void rounds(device const uint* trips, device uint* out, {LANE}) {{
  uint total = 0;
  for (uint i = 0; i < trips[lane]; ++i) {{
    if (i % 2 == 1 && lane % 2 == 0) continue;
    total = total * 3 + simd_sum(i + lane);
  }}
  out[lane] = total;
  out[32 + lane] = simd_sum(1u);
}}"""
    trips = np.random.default_rng(4).integers(0, 7, 32).astype(np.uint32)
    out = np.zeros(64, np.uint32)
    anymetal.compile_shader(source).rounds(tensor(trips), tensor(out), threads=32)
    total = np.zeros(32, np.uint32)
    lane = np.arange(32, dtype=np.uint32)
    for i in range(trips.max()):
        active = (trips > i) & ~((i % 2 == 1) & (lane % 2 == 0))
        total[active] = total[active] * np.uint32(3) + (lane[active] + i).sum()
    np.testing.assert_array_equal(out[:32], total)
    np.testing.assert_array_equal(out[32:], 32)


@pytest.mark.diverges
def test_threads_that_ended_take_no_part() -> None:
    source = f"""{HEADER}
kernel void early(device uint* out, constant uint& n, uint i [[thread_position_in_grid]], {LANE}) {{
  out[i] = 7;
  if (lane % 4 == 1 || i >= n) return;
  out[i] = simd_sum(1u) * 1000 + simd_max(lane);
  if (lane < 16) return;
  out[i] += simd_sum(1u) * 100000 + simd_is_first() * 10000000;
}}"""
    threads, limit = 70, 60
    out = np.zeros(threads, np.uint32)
    anymetal.compile_shader(source).early(tensor(out), limit, threads=threads, group_size=threads)
    want = np.full(threads, 7, np.uint32)
    for start in range(0, threads, LANES):
        lanes = np.arange(start, min(start + LANES, threads))
        stay = lanes[(lanes % 4 != 1) & (lanes < limit)]
        last = stay[stay % 32 >= 16]
        if stay.size:
            want[stay] = stay.size * 1000 + (stay % 32).max()
        if last.size:
            want[last] += last.size * 100000
            want[last[0]] += 10000000
    np.testing.assert_array_equal(out, want)


def test_exchange_repeated_without_a_barrier() -> None:
    """A lane that runs on must not disturb what slower lanes still have to read."""
    source = f"""{HEADER}
kernel void spin(device uint* out, {LANE}) {{
  uint v = lane;
  for (uint i = 0; i < 32; ++i) v = simd_shuffle_rotate_down(v, 1);
  out[lane] = v;
  for (uint i = 0; i < 5; ++i) v += simd_shuffle_xor(v, 1 << i);
  out[32 + lane] = v;
}}"""
    out = torch.zeros(64, dtype=torch.int32)
    anymetal.compile_shader(source).spin(out, threads=32)
    assert out[:32].tolist() == list(range(32))
    assert out[32:].tolist() == [sum(range(32))] * 32


def test_names_of_the_compiler_itself() -> None:
    source = f"""{HEADER}
kernel void inner(device const uint* x, device uint* out, {LANE}) {{
  uint v = x[lane];
  out[lane] = __metal_simd_sum(v) + __metal_simd_shuffle_down(v, 1) + __metal_quad_max(v);
  out[32 + lane] =
      __metal_simd_shuffle_and_fill_up(v, 0u, 2, __metal_get_simdgroup_size(ushort()));
}}"""
    x = np.arange(1, 33, dtype=np.uint32)
    out = np.zeros((2, 32), np.uint32)
    anymetal.compile_shader(source).inner(tensor(x), tensor(out), threads=32)
    down = np.append(x[1:], x[-1])
    np.testing.assert_array_equal(out[0], x.sum() + down + np.repeat(x[3::4], 4))
    np.testing.assert_array_equal(out[1], np.append([0, 0], x[:-2]))


def test_programs_add_overloads_for_other_types() -> None:
    """What MLX does for bfloat, through the compiler's names, and for 64 bits, as two halves."""
    source = f"""#include <metal_stdlib>
namespace metal {{
METAL_FUNC bfloat simd_sum(bfloat data) {{
  return static_cast<bfloat>(__metal_simd_sum(static_cast<float>(data)));
}}
METAL_FUNC bfloat simd_shuffle(bfloat data, ushort source) {{
  return as_type<bfloat>(__metal_simd_shuffle(as_type<uint16_t>(data), source));
}}
}}
inline uint64_t simd_shuffle_down(uint64_t data, uint16_t delta) {{
  return as_type<uint64_t>(metal::simd_shuffle_down(as_type<metal::uint2>(data), delta));
}}
using namespace metal;
kernel void overloads(device const bfloat* x, device const ulong* l, device bfloat* y,
                      device ulong* m, {LANE}) {{
  y[lane] = simd_sum(x[lane]);
  y[32 + lane] = simd_shuffle(x[lane], 31 - lane);
  m[lane] = simd_shuffle_down(l[lane], 1);
  m[32 + lane] = simd_sum(uint(lane));
}}"""
    x = torch.arange(32).bfloat16()
    wide = torch.arange(32) * (1 << 40) + 5
    y, m = torch.zeros(2, 32, dtype=torch.bfloat16), torch.zeros(2, 32, dtype=torch.int64)
    anymetal.compile_shader(source).overloads(x, wide, y, m, threads=32)
    assert (y[0] == 496).all() and torch.equal(y[1], x.flip(0))
    assert m[0].tolist() == [*wide[1:].tolist(), wide[31].item()]
    assert (m[1] == 496).all()


REFUSED = (
    "simd_sum(b)",
    "simd_max(bfloat2(b))",
    "simd_shuffle(b, 0)",
    "simd_broadcast_first(b)",
    "simd_prefix_inclusive_sum(b)",
    "simd_sum(lane > 3)",
    "simd_shuffle_down(lane > 3, 1)",
    "simd_sum(l)",
    "simd_min(ulong(l))",
    "simd_shuffle_xor(l, 1)",
    "simd_broadcast(ulong2(l), 1)",
    "simd_and(1.0f)",
    "simd_or(half2(1.0h))",
    "simd_xor(lane > 3)",
    "simd_shuffle_and_fill_up(1.0f, 1, 2)",
    "uint(simd_ballot(true))",
    "simd_ballot(true) + 1",
)


def test_what_metal_refuses_does_not_compile() -> None:
    assert_refused(REFUSED)
