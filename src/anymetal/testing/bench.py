"""A call goes in; its time comes out, as `anymetal bench` would measure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.evidence.judge import flat
from anymetal.evidence.measure import OURS, TORCH, Row
from anymetal.evidence.own import Own, measure_own
from anymetal.evidence.timing import Times


@dataclass(frozen=True)
class Timing:
    """Microseconds of a call, and what moved in them."""

    row: Row

    @property
    def times(self) -> Times:
        """All that was measured of the function."""
        return self.row.times[OURS]

    @property
    def median(self) -> float:
        """The median, in microseconds."""
        return self.times.p50

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and the third quartile, in microseconds."""
        return self.times.p25, self.times.p75

    @property
    def baseline(self) -> Times | None:
        """The same of the baseline, where there is one."""
        return self.row.times.get(TORCH)

    @property
    def bytes(self) -> int | None:
        """Given, or else counted; None where neither was asked for."""
        return self.row.least_bytes

    @property
    def gigabytes_per_second(self) -> float | None:
        """The bytes of a call over the median, where the bytes are known."""
        return self.row.gigabytes_per_second

    def __str__(self) -> str:
        low, high = self.quartiles
        text = f"{self.row.operator}: {self.median:.1f} µs (quartiles {low:.1f}, {high:.1f})"
        if self.gigabytes_per_second is not None:
            text += f", {self.gigabytes_per_second:.1f} GB/s"
        if self.baseline is not None:
            text += f", {self.row.ratio:.2f} of the baseline's {self.baseline.p50:.1f} µs"
        return text


def do_bench(
    function: Callable[..., Any],
    *args: Any,
    baseline: Callable[..., Any] | None = None,
    bytes: int | None = None,
    flops: int | None = None,
    count: bool = False,
    seconds: float = 0.5,
) -> Timing:
    """Time `function(*args)`: warmed up, synchronised, beside a baseline in turns.

    `bytes` and `flops` are what a call must move and compute; with `count` the bytes that its
    kernels ask for are counted, in one more call. A result that differs from the baseline's is a
    ValueError.
    """
    name = getattr(function, "__name__", type(function).__name__)
    tensors = flat(args)
    device = tensors[0].device if tensors else torch.device("cpu")

    def fresh() -> list[Any]:
        return list(args)

    own = Own(name, function, fresh, None, baseline, bytes, flops)
    row = measure_own(own, device, seconds, count=count)
    if OURS not in row.times:
        raise ValueError(f"do_bench: {name} is wrong: {row.judgements[OURS]}")
    return Timing(row)
