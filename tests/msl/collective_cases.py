"""Runs every collective of a family, `simd_` or `quad_`, against lane_model, or has it refused.

One kernel holds all functions for one type: a launch with another mask costs no compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from lane_model import (
    FLOAT_REDUCTIONS,
    LANES,
    OPERATIONS,
    SCALARS,
    Lanes,
    Mask,
    fill,
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
FULL, THIRDS, ODD, ONE = 0xFFFFFFFF, 0x49249249, 0xAAAAAAAA, 1 << 13
_SCANS = tuple((name, kind) for name in ("sum", "product") for kind in ("exclusive", "inclusive"))


@dataclass(frozen=True)
class Family:
    """Collectives over groups of `width` lanes.

    `reads` and `fills` are calls on v, f and lane without their prefix; `sources` tells which lane
    of its group each of the reads takes, and `shifts` distance and modulus of the fills.
    """

    prefix: str
    width: int
    reads: tuple[str, ...]
    sources: Callable[[Mask], tuple[npt.NDArray[np.int_], ...]]
    fills: tuple[str, ...]
    shifts: tuple[tuple[int, int], ...]

    def calls(self, scalar: str) -> list[str]:
        names = [*self.reads, *self.fills]
        names += [f"{name}(v)" for name in _reductions(scalar)]
        names += [f"prefix_{kind}_{name}(v)" for name, kind in _SCANS]
        return [f"{self.prefix}{name}" for name in names]

    def expected(self, scalar: str, v: Lanes, f: Lanes, active: Mask) -> list[Lanes]:
        """The results of `calls`, in their order."""
        results = [read(v, active, source, self.width) for source in self.sources(active)]
        results += [fill(v, f, active, *shift) for shift in self.shifts]
        results += [reduce(name, v, active, self.width) for name in _reductions(scalar)]
        results += [scan(name, v, active, kind == "inclusive", self.width) for name, kind in _SCANS]
        return results


def _reductions(scalar: str) -> tuple[str, ...]:
    return FLOAT_REDUCTIONS if is_float(SCALARS[scalar]) else tuple(OPERATIONS)


def _source(scalar: str, size: int, calls: list[str]) -> str:
    kind = scalar if size == 1 else f"{scalar}{size}"
    lines = "".join(f"    out[{row} * n + i] = {call};\n" for row, call in enumerate(calls))
    return f"""{HEADER}
kernel void every(device const {kind}* x, device const {kind}* fills, device {kind}* out,
                  constant uint& n, constant uint& mask,
                  uint i [[thread_position_in_grid]], {LANE}) {{
  {kind} v = x[i], f = fills[i];
  if (mask >> lane & 1) {{
{lines}  }}
}}"""


def assert_every_function_matches(
    family: Family, scalar: str, size: int, launches: Iterable[tuple[int, int]]
) -> None:
    """Each launch is a mask of lanes and a number of threads, in one threadgroup."""
    rng = np.random.default_rng(size)
    calls = family.calls(scalar)
    library = anymetal.compile_shader(_source(scalar, size, calls))
    dtype, room = SCALARS[scalar], 4 if size == 3 else size
    for mask, threads in launches:
        padded = -(-threads // LANES) * LANES
        x, fills = (sample(rng, dtype, (padded, room)) for _ in range(2))
        out = np.zeros((len(calls), threads, room), dtype)
        buffers = [tensor(array) for array in (x, fills, out)]
        library.every(*buffers, threads, mask, threads=threads, group_size=threads)
        for start in range(0, threads, LANES):
            live = np.arange(start, start + LANES) < threads
            active = live & (mask >> np.arange(LANES) & 1).astype(bool)
            simd = slice(start, start + LANES)
            models = family.expected(scalar, x[simd, :size], fills[simd, :size], active)
            taken = np.flatnonzero(active)
            for call, got, want in zip(calls, out, models, strict=True):
                np.testing.assert_array_equal(
                    got[start + taken, :size], want[taken], err_msg=f"{call}, mask {mask:#x}"
                )


def assert_refused(calls: tuple[str, ...]) -> None:
    """Every call, on a bfloat b, a long l and the lane, is an error at its line."""
    lines = "\n".join(f"  (void)({call});" for call in calls)
    source = f"""{HEADER}kernel void bad(device long* x, {LANE}) {{
  bfloat b = bfloat(1.0f);
  long l = x[lane];
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(calls, start=6):
        assert f"<shader>:{number}:" in str(error.value), call
