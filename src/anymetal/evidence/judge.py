"""A result, torch's own and the float64 truth go in; how wrong the result is comes out.

The rule of the whole library: an error against float64 of at most twice what torch's own operator
has in that dtype, or below a floor of a few roundings where torch happens to be exact. What
factorises a matrix is judged by LAPACK's test ratios: its error depends on the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from anymetal.project import TIMES_TORCH as KEY
from anymetal.project import project

TIMES_TORCH = 2.0
# A ratio passes up to 2, or four times torch's own on the same matrix.
RATIO_FLOOR, RATIO_TIMES_TORCH = 2.0, 4.0
# Errors that nobody is blamed for, in epsilons of the dtype. Kernels compute in float and round a
# half or a bfloat once; a float has the errors of its own arithmetic.
_FLOORS = {torch.float32: 4.0, torch.float16: 1.0, torch.bfloat16: 1.0}


def floor_of(dtype: torch.dtype) -> float:
    """The relative error below which every result passes."""
    return _FLOORS.get(dtype, 1.0) * torch.finfo(dtype).eps


@dataclass(frozen=True)
class Tolerance:
    """What passes: an error of so many of torch's own, or below the floor of its dtype."""

    times_torch: float = TIMES_TORCH
    floors: Mapping[torch.dtype, float] = field(default_factory=dict)  # instead of a few roundings

    def applied(self, judgement: Judgement, dtype: torch.dtype) -> Judgement:
        """A judgement of one result of this dtype by these bounds."""
        floor = self.floors.get(dtype, judgement.floor)
        return replace(judgement, floor=floor, times_torch=self.times_torch)


LIBRARY = Tolerance()


def project_tolerance(start: Path | None = None) -> Tolerance:
    """What `[tool.anymetal.tolerance]` of a project asks for; the library's own rule without it."""
    asked = dict(project(start).tolerance)
    times = asked.pop(KEY, TIMES_TORCH)
    return Tolerance(times, {getattr(torch, name): floor for name, floor in asked.items()})


@dataclass(frozen=True)
class Judgement:
    """Largest errors over all results, relative to the largest value of each."""

    error: float
    torch_error: float
    floor: float
    rounding: float = 0.0  # the largest relative error of rounding to the dtype
    fault: str | None = None  # what is wrong besides the size of the error
    times_torch: float = TIMES_TORCH

    @property
    def bound(self) -> float:
        """The largest error that passes."""
        return max(self.times_torch * self.torch_error, self.floor)

    @property
    def passed(self) -> bool:
        return self.fault is None and self.error <= self.bound

    @property
    def in_torch_errors(self) -> float:
        """The error in units of torch's own, which counts as one rounding at least."""
        return self.error / max(self.torch_error, self.rounding, 1e-300)

    def __str__(self) -> str:
        if self.fault is not None:
            return self.fault
        return f"error {self.error:.2g}, torch's own {self.torch_error:.2g}"


def judge(
    results: Any,
    torch_results: Any,
    exact: Any,
    dtype: torch.dtype,
    tolerance: Tolerance = LIBRARY,
) -> Judgement:
    """Compare trees of tensors, None where there is no tensor."""
    floor, rounding = floor_of(dtype), torch.finfo(dtype).eps / 2
    ours, theirs, truth = flat(results), flat(torch_results), flat(exact)
    if len(ours) != len(truth) or len(theirs) != len(truth):
        return Judgement(
            float("inf"),
            0.0,
            floor,
            rounding,
            f"{len(ours)} results where float64 has {len(truth)}",
        )
    return worst(judge_each(ours, theirs, truth, dtype, tolerance), floor)


def judge_ratios(
    ratios: Mapping[str, torch.Tensor], torch_ratios: Mapping[str, torch.Tensor]
) -> Judgement:
    """Compare ratios by name and matrix; NaN fails."""
    unit = RATIO_FLOOR / RATIO_TIMES_TORCH
    return worst(
        [
            Judgement(ours, theirs, RATIO_FLOOR, unit, times_torch=RATIO_TIMES_TORCH)
            for name, found in ratios.items()
            for ours, theirs in zip(
                found.nan_to_num(torch.inf).flatten().tolist(),
                torch_ratios[name].flatten().tolist(),
                strict=True,
            )
        ],
        RATIO_FLOOR,
    )


def judge_each(
    ours: Sequence[torch.Tensor],
    theirs: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    dtype: torch.dtype,
    tolerance: Tolerance = LIBRARY,
) -> list[Judgement]:
    """One judgement for each of equally many results."""
    floor, rounding = floor_of(dtype), torch.finfo(dtype).eps / 2
    judged = []
    for mine, torchs, truth in zip(ours, theirs, exact, strict=True):
        one = _judge_one(mine, torchs, truth, floor, rounding)
        judged.append(tolerance.applied(one, mine.dtype))
    return judged


def worst(judgements: Sequence[Judgement], floor: float = 0.0) -> Judgement:
    """One that fails, or else the largest in torch errors; a judgement of nothing passes."""
    return max(judgements, key=_rank, default=Judgement(0.0, 0.0, floor))


def flat(tree: Any) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, list | tuple):
        return [tensor for item in tree for tensor in flat(item)]
    return []


def _rank(judgement: Judgement) -> tuple[bool, bool, float]:
    return judgement.fault is not None, not judgement.passed, judgement.in_torch_errors


def _judge_one(
    ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor, floor: float, rounding: float
) -> Judgement:
    if ours.shape != exact.shape:
        fault = f"shape {tuple(ours.shape)} where float64 has {tuple(exact.shape)}"
        return Judgement(float("inf"), 0.0, floor, rounding, fault)
    if not exact.is_floating_point():
        same = torch.equal(ours.cpu(), exact.cpu())
        return Judgement(0.0 if same else float("inf"), 0.0, floor, rounding)
    floor = max(floor, floor_of(ours.dtype))  # a result may be of a narrower dtype than its input
    torch_error = relative_error(theirs, exact)
    if torch_error == float("inf"):  # an overflow of torch's excuses nobody
        torch_error = 0.0
    return Judgement(relative_error(ours, exact), torch_error, floor, rounding)


def relative_error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error over the largest value; infinite where infinities or NaNs are misplaced.

    A value that the result's dtype cannot hold counts as the infinity that it becomes there.
    """
    if exact.numel() == 0:
        return 0.0
    # Apple's GPUs have no float64; an NVIDIA GPU compares where the result is.
    place = result.device if result.device.type == "cuda" else torch.device("cpu")
    exact = exact.detach().to(place)
    got = result.detach().to(place).double()
    want = exact.to(result.dtype).double()
    finite = want.isfinite()
    if not torch.equal(finite, got.isfinite()) or not _same(got[~finite], want[~finite]):
        return float("inf")
    truth = exact.double()[finite]
    if truth.numel() == 0:
        return 0.0
    scale = truth.abs().max().item()
    difference = (got[finite] - truth).abs().max().item()
    # Below the smallest normal number there is no relative accuracy to ask for.
    tiny = torch.finfo(result.dtype).tiny if result.is_floating_point() else 1.0
    return difference / max(scale, tiny)


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return bool(((left == right) | (left.isnan() & right.isnan())).all())
