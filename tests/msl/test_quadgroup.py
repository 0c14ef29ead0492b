"""metal_quadgroup against numpy: as metal_simdgroup, in groups of four lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from collective_cases import (
    FULL,
    HEADER,
    LANE,
    ONE,
    THIRDS,
    Family,
    assert_every_function_matches,
    assert_refused,
)
from lane_model import LANES, SCALARS, Mask, first_active, tensor

import anymetal


def sources(active: Mask) -> tuple[npt.NDArray[np.int_], ...]:
    """The lane of its quadgroup that each lane reads, by QUAD.reads."""
    lane = np.arange(LANES)
    quad = lane % 4
    return (
        np.full(LANES, 2),
        first_active(active, 4),
        (lane // 4 + lane) & 3,
        quad ^ 3,
        quad + 1,
        quad - 2,
        (quad + 3) % 4,
        (quad - 1) % 4,
    )


QUAD = Family(
    prefix="quad_",
    width=4,
    reads=(
        "broadcast(v, 2)",
        "broadcast_first(v)",
        "shuffle(v, lane / 4 + lane & 3)",
        "shuffle_xor(v, 3)",
        "shuffle_down(v, 1)",
        "shuffle_up(v, 2)",
        "shuffle_rotate_down(v, 3)",
        "shuffle_rotate_up(v, 1)",
    ),
    sources=sources,
    fills=(
        "shuffle_and_fill_down(v, f, 2)",
        "shuffle_and_fill_up(v, f, 3)",
        "shuffle_and_fill_down(v, f, 1, 2)",
        "shuffle_and_fill_up(v, f, 1, 2)",
    ),
    shifts=((2, 4), (-3, 4), (1, 2), (-1, 2)),
)


@pytest.mark.diverges
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("scalar", SCALARS)
def test_every_function_matches_numpy(scalar: str, size: int) -> None:
    # A threadgroup of 45 threads: a whole simdgroup, and one whose last quadgroup has one thread.
    launches = [(mask, 45) for mask in (FULL, THIRDS, ONE)]
    assert_every_function_matches(QUAD, scalar, size, launches)


@pytest.mark.diverges
def test_every_function_matches_numpy_in_whole_simdgroups() -> None:
    """Threadgroups without a partial simdgroup have code of their own."""
    assert_every_function_matches(QUAD, "int", 3, ((FULL, 32), (ONE, 32)))


VOTES = f"""{HEADER}
kernel void votes(device const bool* yes, device uint* out, constant uint& n, constant uint& mask,
                  uint i [[thread_position_in_grid]], {LANE}) {{
  if (mask >> lane & 1) {{
    out[i] = (quad_vote::vote_t)quad_ballot(yes[i]);
    out[n + i] = (quad_vote::vote_t)quad_active_threads_mask();
    out[2 * n + i] = quad_all(yes[i]);
    out[3 * n + i] = quad_any(yes[i]);
    out[4 * n + i] = quad_is_first();
    out[5 * n + i] = quad_ballot(yes[i]).all();
    out[6 * n + i] = quad_is_helper_thread();
  }}
}}"""


@pytest.mark.diverges
@pytest.mark.parametrize("mask", [FULL, THIRDS, 0x0F0F7317])
@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_votes_count_active_threads_only(mask: int, share: float) -> None:
    threads = 30
    yes = np.random.default_rng(2).random(threads) < share
    out = np.full((7, threads), 99, np.uint32)
    library = anymetal.compile_shader(VOTES)
    library.votes(torch.from_numpy(yes), tensor(out), threads, mask, threads=threads)
    for start in range(0, threads, 4):
        active = [i for i in range(start, min(start + 4, threads)) if mask >> i & 1]
        true = [i for i in active if yes[i]]
        ballot = sum(1 << i % 4 for i in true)
        for i in active:
            mask_of_quad = sum(1 << other % 4 for other in active)
            everyone, anyone, first = true == active, true != [], i == active[0]
            want = [ballot, mask_of_quad, everyone, anyone, first, ballot == 15, 0]
            assert out[:, i].tolist() == want


def test_vote_keeps_four_bits() -> None:
    source = f"""{HEADER}
kernel void convert(device uint* out) {{
  quad_vote wide(0xff), some(0x12), none;
  out[0] = (quad_vote::vote_t)wide;
  out[1] = (uint)some;
  out[2] = wide.all() | some.all() << 1 | some.any() << 2 | none.any() << 3;
}}"""
    out = torch.zeros(3, dtype=torch.int32)
    anymetal.compile_shader(source).convert(out, threads=1)
    assert out.tolist() == [15, 2, 0b101]


REFUSED = (
    "quad_sum(b)",
    "quad_shuffle(bfloat2(b), 0)",
    "quad_sum(lane > 3)",
    "quad_max(l)",
    "quad_broadcast(ulong3(l), 1)",
    "quad_and(1.0f)",
    "quad_xor(half4(1.0h))",
    "quad_prefix_exclusive_product(b)",
)


def test_what_metal_refuses_does_not_compile() -> None:
    assert_refused(REFUSED)
