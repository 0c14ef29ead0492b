"""A function that launches kernels and a reference in torch go in; how well they agree comes out.

The judge is the one of `anymetal health`: errors against the reference in float64, in units of the
reference's own error in that dtype. Every case runs plain, under the checker, and with gradients
where the function has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from anymetal.checker.context import ActiveCheck
from anymetal.checker.finding import Finding
from anymetal.checker.report import Report
from anymetal.evidence.exercise import converted, differentiable, exact_copy, upstream_like
from anymetal.evidence.judge import (
    Judgement,
    Tolerance,
    flat,
    floor_of,
    judge,
    judge_each,
    project_tolerance,
)
from anymetal.testing.cases import LAYOUTS, Case, Make, Shapes, argument_count, cases_of
from anymetal.testing.comparison import BadElement, Comparison, Line

Function = Callable[..., Any]


def compare(
    mine: Function,
    reference: Function,
    *,
    shapes: Shapes | None = None,
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    layouts: Sequence[str] = LAYOUTS,
    check: bool = True,
    special: bool = True,
    inputs: Make | None = None,
    device: str | torch.device = "cpu",
    raises: bool | None = None,
    tolerance: Tolerance | None = None,
) -> Comparison:
    """Call both with the same tensors over many shapes, and judge the results.

    `shapes` has a size, a shape, a shape for each argument, or a text such as "m k, k n" whose
    names go through ragged sizes; without it all arguments have one dimension of ragged sizes.
    `layouts` are dense, offset, strided and transposed. `special` adds a case with NaN and
    infinities. `inputs(shapes, dtype, generator)` makes the arguments where random numbers will not
    do. With `check` every case also runs under the checker. `raises` says whether a difference is
    an error; the default is yes inside a test of pytest, and no elsewhere. `tolerance` is what
    passes; the default is the project's, or else the library's own rule.
    """
    count = argument_count(reference)
    place = torch.device(device)
    cases = cases_of(count, shapes, dtypes, layouts, place, inputs, special)
    allowed = project_tolerance() if tolerance is None else tolerance
    lines = tuple(_Judged(mine, reference, case, allowed).line(check) for case in cases)
    name = getattr(mine, "__name__", type(mine).__name__)
    comparison = Comparison(name, lines, check)
    if raises if raises is not None else "PYTEST_CURRENT_TEST" in os.environ:
        comparison.raise_failures()
    return comparison


class _Judged:
    """One case of a comparison."""

    def __init__(
        self, mine: Function, reference: Function, case: Case, tolerance: Tolerance
    ) -> None:
        self._mine, self._reference, self._case = mine, reference, case
        self._tolerance = tolerance
        # Errors of whole numbers are counted, and floats that come of them judged as such.
        self._dtype = case.dtype if case.dtype.is_floating_point else torch.float32

    def line(self, check: bool) -> Line:
        case = self._case
        given = case.inputs()
        try:
            with torch.no_grad():
                results = flat(self._mine(*given))
        except Exception as error:
            raised = self._fault(f"raised {type(error).__name__}: {error}")
            return Line(case, raised, None, ())
        changed = self._changed(given)
        with torch.no_grad():
            theirs = flat(self._reference(*case.inputs()))
            exact = flat(self._reference(*_exact(case.inputs())))
        judgement = self._fault(changed) if changed else self._judged(results, theirs, exact)
        bad, where = self._bad(results, theirs, exact), "result"
        gradient, gradients = self._gradient()
        if bad is None and gradients is not None:
            bad, where = self._bad(*gradients), "gradient"
        findings = self._findings() if check else ()
        return Line(case, judgement, gradient, findings, bad, where)

    def _judged(self, ours: Any, theirs: Any, exact: Any) -> Judgement:
        return judge(ours, theirs, exact, self._dtype, self._tolerance)

    def _fault(self, text: str) -> Judgement:
        return Judgement(float("inf"), 0.0, floor_of(self._dtype), fault=text)

    def _changed(self, given: Sequence[Any]) -> str | None:
        """An argument that the call wrote to, and that the reference leaves alone."""
        before, theirs = self._case.inputs(), self._case.inputs()
        with torch.no_grad():
            self._reference(*theirs)
        for number, (now, old, kept) in enumerate(zip(given, before, theirs, strict=True)):
            if isinstance(now, torch.Tensor) and _same(kept, old) and not _same(now, old):
                return f"argument {number} was written to, which the reference leaves as it is"
        return None

    def _gradient(self) -> tuple[Judgement | None, tuple[Any, Any, Any] | None]:
        ours = self._gradients(self._mine, self._case.inputs())
        if ours is None:
            return None, None
        theirs = self._gradients(self._reference, self._case.inputs())
        exact = self._gradients(self._reference, _exact(self._case.inputs()))
        if theirs is None or exact is None:
            return self._fault("the reference has no gradient"), None
        missing = [
            i for i, (a, b) in enumerate(zip(ours, exact, strict=True)) if a is None and _any(b)
        ]
        if missing:
            return self._fault(f"no gradient for argument {missing[0]}"), None
        kept = [
            i for i, gradient in enumerate(exact) if gradient is not None and ours[i] is not None
        ]
        ours, theirs, exact = ([each[i] for i in kept] for each in (ours, theirs, exact))
        return self._judged(ours, theirs, exact), (ours, theirs, exact)

    def _gradients(self, function: Function, given: list[Any]) -> list[Any] | None:
        """Gradients of the floating point arguments; None where the results have none."""
        args, _, leaves = differentiable(given, {})
        try:
            results = [one for one in flat(function(*args)) if one.requires_grad]
        except RuntimeError as error:
            if "requires grad" in str(error) or "derivative" in str(error):
                return None
            raise
        if not results:
            return None
        upstream = [upstream_like(result, self._dtype) for result in results]
        return list(torch.autograd.grad(results, leaves, upstream, allow_unused=True))

    def _findings(self) -> tuple[Finding, ...]:
        if self._case.device.type not in ("cpu", "mps"):
            return ()
        with torch.no_grad(), ActiveCheck(Report(), level=0) as active:
            self._mine(*self._case.inputs())
        return tuple(found for found in active.report.findings if found.severity == "error")

    def _bad(
        self, results: list[torch.Tensor], theirs: list[torch.Tensor], exact: list[torch.Tensor]
    ) -> BadElement | None:
        """The first element beyond the bound of its own result."""
        if not len(results) == len(theirs) == len(exact):
            return None
        judged = judge_each(results, theirs, exact, self._dtype, self._tolerance)
        for number, (judgement, ours) in enumerate(zip(judged, results, strict=True)):
            if not judgement.passed and ours.shape == exact[number].shape:
                return _first_bad(number, judgement, ours, theirs[number], exact[number])
        return None


def _first_bad(
    number: int,
    judgement: Judgement,
    ours: torch.Tensor,
    theirs: torch.Tensor,
    exact: torch.Tensor,
) -> BadElement | None:
    got, want = ours.detach().cpu().double(), exact.detach().cpu().double()
    held = exact.detach().cpu().to(ours.dtype).double()  # what the dtype can hold of it
    finite = held.isfinite()
    scale = want[finite].abs().max().item() if finite.any() else 0.0
    tiny = torch.finfo(ours.dtype).tiny if ours.is_floating_point() else 1.0
    allowed = judgement.bound * max(scale, tiny) if ours.is_floating_point() else 0.0
    equal = (got == held) | (got.isnan() & held.isnan())
    near = finite & got.isfinite() & ((got - want).abs() <= allowed)
    places = (~(equal | near)).nonzero()
    if not len(places):
        return None
    index = tuple(int(i) for i in places[0])
    values = (ours.detach().cpu()[index], theirs.detach().cpu()[index], want[index])
    return BadElement(number, index, *(value.item() for value in values))


def _exact(given: Sequence[Any]) -> list[Any]:
    return converted(given, exact_copy)


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.nan_to_num(nan=7.0), right.nan_to_num(nan=7.0))


def _any(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and bool((gradient != 0).any())
