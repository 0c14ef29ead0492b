"""A call that somebody else wrote goes in; a row of a benchmark comes out, as of an operator.

What it is compared with is a baseline: a function that takes the same arguments. Its float64 result
is the truth, its result in the dtype of the arguments has the error that ours is measured by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.evidence.exercise import converted, exact_copy
from anymetal.evidence.judge import Judgement, flat, judge, project_tolerance, worst
from anymetal.evidence.measure import FORWARD, OURS, TORCH, Row, shape_text
from anymetal.evidence.timing import measure, rest_on, synchroniser
from anymetal.launch.handing import Tally, handed_to

Arguments = Callable[[], list[Any]]


@dataclass(frozen=True)
class Own:
    """What is timed. `call(*arguments)` gives tensors, or writes those that `written` picks out."""

    name: str
    call: Callable[..., Any]
    arguments: Arguments
    written: Callable[[Sequence[Any]], list[torch.Tensor]] | None = None
    baseline: Callable[..., Any] | None = None
    least_bytes: int | None = None
    flops: int | None = None

    def results(self) -> list[torch.Tensor]:
        """Of a fresh call."""
        given = self.arguments()
        with torch.no_grad():
            returned = flat(self.call(*given))
        return self.written(given) if self.written is not None else returned

    def judgement(self) -> Judgement | None:
        """The results beside the baseline's; None without one."""
        if self.baseline is None:
            return None
        with torch.no_grad():
            theirs = flat(self.baseline(*self.arguments()))
            exact = flat(self.baseline(*converted(self.arguments(), exact_copy)))
        return judge(self.results(), theirs, exact, self.dtype, project_tolerance())

    @property
    def dtype(self) -> torch.dtype:
        """Of the first floating point argument; results without any are judged as float32."""
        kinds = (one.dtype for one in flat(self.arguments()))
        return next((kind for kind in kinds if kind.is_floating_point), torch.float32)


def measure_own(own: Own, device: torch.device, seconds: float, *, count: bool = True) -> Row:
    """Judge, time, judge again; a wrong result has no time."""
    before = own.judgement()
    calls = {}
    given, theirs = own.arguments(), own.arguments()
    if before is None or before.passed:
        calls[OURS] = lambda: own.call(*given)
    baseline = own.baseline
    if baseline is not None:
        calls[TORCH] = lambda: baseline(*theirs)
    with torch.no_grad():
        times = measure(calls, synchroniser(device), seconds=seconds, rest=rest_on(device))
    after = own.judgement()
    judgements = {} if before is None or after is None else {OURS: worst([before, after])}
    if judgements and not judgements[OURS].passed:
        times.pop(OURS, None)
    tally = Tally()
    if count:
        with handed_to(tally), torch.no_grad():
            own.call(*own.arguments())
    tensors = flat(given)
    counted, given_bytes = tally.moved_bytes, own.least_bytes
    return Row(
        operator=own.name,
        dtype=str(own.dtype).removeprefix("torch."),
        case=", ".join("x".join(map(str, t.shape)) or "scalar" for t in tensors),
        direction=FORWARD,
        elements=max((t.numel() for t in tensors), default=0),
        times=times,
        judgements=judgements,
        # Where nobody says what is least, what the kernels ask for stands in its place.
        least_bytes=counted if given_bytes is None else given_bytes,
        moved_bytes=None if given_bytes is None else counted,
        variant=" + ".join(dict.fromkeys(name for name, *_ in tally.launches)) or "-",
        launch=" + ".join(
            dict.fromkeys(
                f"{shape_text(threads)}/{shape_text(group)}"
                for _, threads, group, _ in tally.launches
            )
        ),
        flops=own.flops,
        launches=len(tally.launches) if count else None,
    )
