"""metal_quadgroup against numpy: as metal_simdgroup, in groups of four lanes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lane_model import (
    FLOAT_REDUCTIONS,
    LANES,
    OPERATIONS,
    SCALARS,
    Lanes,
    Mask,
    fill,
    first_active,
    is_float,
    read,
    reduce,
    sample,
    scan,
    tensor,
)

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
LANE = "uint lane [[thread_index_in_simdgroup]]"
EXCHANGES = (
    "quad_broadcast(v, 2)",
    "quad_broadcast_first(v)",
    "quad_shuffle(v, lane / 4 + lane & 3)",
    "quad_shuffle_xor(v, 3)",
    "quad_shuffle_down(v, 1)",
    "quad_shuffle_up(v, 2)",
    "quad_shuffle_rotate_down(v, 3)",
    "quad_shuffle_rotate_up(v, 1)",
    "quad_shuffle_and_fill_down(v, f, 2)",
    "quad_shuffle_and_fill_up(v, f, 3)",
    "quad_shuffle_and_fill_down(v, f, 1, 2)",
    "quad_shuffle_and_fill_up(v, f, 1, 2)",
)
SCANS = tuple((name, kind) for name in ("sum", "product") for kind in ("exclusive", "inclusive"))
FULL, THIRDS, ONE = 0xFFFFFFFF, 0x49249249, 1 << 13


def reductions(scalar: str) -> tuple[str, ...]:
    return FLOAT_REDUCTIONS if is_float(SCALARS[scalar]) else tuple(OPERATIONS)


def every_function(scalar: str) -> list[str]:
    calls = list(EXCHANGES)
    calls += [f"quad_{name}(v)" for name in reductions(scalar)]
    calls += [f"quad_prefix_{kind}_{name}(v)" for name, kind in SCANS]
    return calls


def expected(scalar: str, v: Lanes, f: Lanes, active: Mask) -> list[Lanes]:
    """The results of `every_function`, in its order."""
    lane = np.arange(LANES)
    quad = lane % 4
    sources = (
        np.full(LANES, 2),
        first_active(active, 4),
        (lane // 4 + lane) & 3,
        quad ^ 3,
        quad + 1,
        quad - 2,
        (quad + 3) % 4,
        (quad - 1) % 4,
    )
    results = [read(v, active, source, 4) for source in sources]
    results += [fill(v, f, active, *shift) for shift in ((2, 4), (-3, 4), (1, 2), (-1, 2))]
    results += [reduce(name, v, active, 4) for name in reductions(scalar)]
    results += [scan(name, v, active, kind == "inclusive", 4) for name, kind in SCANS]
    return results


def source_of(scalar: str, size: int) -> str:
    kind = scalar if size == 1 else f"{scalar}{size}"
    lines = "".join(
        f"    out[{row} * n + i] = {call};\n" for row, call in enumerate(every_function(scalar))
    )
    return f"""{HEADER}
kernel void every(device const {kind}* x, device const {kind}* fills, device {kind}* out,
                  constant uint& n, constant uint& mask,
                  uint i [[thread_position_in_grid]], {LANE}) {{
  {kind} v = x[i], f = fills[i];
  if (mask >> lane & 1) {{
{lines}  }}
}}"""


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("scalar", SCALARS)
def test_every_function_matches_numpy(scalar: str, size: int) -> None:
    rng = np.random.default_rng(size)
    calls = every_function(scalar)
    library = anymetal.compile_shader(source_of(scalar, size))
    dtype, room = SCALARS[scalar], 4 if size == 3 else size
    # A threadgroup of 45 threads: its last quadgroup has one thread.
    for mask, threads in ((FULL, 32), (FULL, 45), (THIRDS, 45), (ONE, 32)):
        padded = -(-threads // LANES) * LANES
        x = sample(rng, dtype, (padded, room))
        fills = sample(rng, dtype, (padded, room))
        out = np.zeros((len(calls), threads, room), dtype)
        buffers = [tensor(array) for array in (x, fills, out)]
        library.every(*buffers, threads, mask, threads=threads, group_size=threads)
        for start in range(0, threads, LANES):
            live = np.arange(start, start + LANES) < threads
            active = live & (mask >> np.arange(LANES) & 1).astype(bool)
            simd = slice(start, start + LANES)
            models = expected(scalar, x[simd, :size], fills[simd, :size], active)
            taken = np.flatnonzero(active)
            for call, got, want in zip(calls, out, models, strict=True):
                np.testing.assert_array_equal(
                    got[start + taken, :size], want[taken], err_msg=f"{call}, mask {mask:#x}"
                )


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
    lines = "\n".join(f"  (void)({call});" for call in REFUSED)
    source = f"""#include <metal_stdlib>
using namespace metal;
kernel void bad(device long* x, {LANE}) {{
  bfloat b = bfloat(1.0f);
  long l = x[lane];
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(REFUSED, start=6):
        assert f"<shader>:{number}:" in str(error.value), call
