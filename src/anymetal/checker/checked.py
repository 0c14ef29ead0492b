"""Runs one launch under the checker, and says what was found in it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from anymetal.checker.arguments import explained, suspicions
from anymetal.checker.consequences import settled
from anymetal.checker.context import ActiveCheck
from anymetal.checker.finding import Finding, Launched, Place, Severity
from anymetal.checker.inline_source import InlineSource
from anymetal.checker.launch_state import EXACT, Dispatch, LaunchState, Plan
from anymetal.checker.program import CheckedProgram
from anymetal.checker.screening import Kept, may_be_screened, screening_plan
from anymetal.checker.translate import Translator
from anymetal.checker.unwritten import unwritten
from anymetal.checker.views import BufferView
from anymetal.errors import KernelAssertion, KernelFault, KernelTimeout
from anymetal.passes.provenance import Root

# The clock and the shadow are shared: one checked launch at a time.
_lock = threading.Lock()
_TOO_DEEP = "the kernel used up its stack and was stopped: a function that calls itself too often?"
_WILD_CALL = "a call went to an address where there is no function, and the kernel was stopped"


def run_checked(
    checked: CheckedProgram,
    dispatch: Dispatch,
    views: Sequence[BufferView],
    check: ActiveCheck,
    inline: InlineSource | None = None,
) -> None:
    """Runs the launch and adds what it finds to the check's report.

    `inline` is the source, where it has no file.
    """
    number = check.report.launch(checked.name)
    launched = Launched(number, check.caller, check.test, inline.call if inline else None)
    doubts = suspicions(checked, views)
    with _lock:
        launch = _Launch(checked, dispatch, views, check, {doubt.argument for doubt in doubts})
        state, findings = launch.run()
        touched = state.touched()
    for finding in settled(explained(doubts, touched, findings)):
        located = replace(_relocated(finding, inline), launch=launched)
        check.report.add(located, lambda at: checked.comment(inline.back(at) if inline else at))


def _relocated(finding: Finding, inline: InlineSource | None) -> Finding:
    """The finding with places of the file that an inline source stands in."""
    if inline is None:
        return finding

    def moved(place: Place) -> Place:
        excerpt = inline.excerpt(place.position, place.excerpt)
        return replace(place, position=inline.position(place.position), excerpt=excerpt)

    other = moved(finding.other) if finding.other else None
    scene = finding.scene and finding.scene.moved(inline.position)
    return replace(finding, place=moved(finding.place), other=other, scene=scene)


class _Launch:
    """One launch under the checker."""

    def __init__(
        self,
        checked: CheckedProgram,
        dispatch: Dispatch,
        views: Sequence[BufferView],
        check: ActiveCheck,
        watched: Collection[str | None],
    ) -> None:
        self._checked = checked
        self._dispatch = dispatch
        self._views = views
        self._outputs = check.outputs
        self._watched = watched
        self._translator = Translator(checked, dispatch.threads, dispatch.group_size)

    def run(self) -> tuple[LaunchState, list[Finding]]:
        """What was found, and the state that the launch ended in."""
        state = self._screened() if self._may_be_screened() else None
        if state is not None:
            return state, list(self._unwritten(state))
        state = self._state(EXACT)
        return state, self._found(state)

    def _may_be_screened(self) -> bool:
        return not self._watched and may_be_screened(self._checked, self._dispatch, self._views)

    def _state(self, plan: Plan) -> LaunchState:
        fresh = {v.name for v in self._views if v.tensor is not None and self._is_output(v.tensor)}
        return LaunchState(self._checked, self._dispatch, self._views, self._watched, fresh, plan)

    def _screened(self) -> LaunchState | None:
        """The state after a launch in which nothing was found; None, and buffers as before, where
        something was, or it did not come to its end."""
        kept = Kept(self._checked, self._views)
        state = self._state(screening_plan(self._dispatch))
        try:
            state.launch()
            is_clean = not any(state.findings())
        except (KernelTimeout, KernelFault, MemoryError):
            is_clean = False
        if is_clean:
            return state
        kept.put_back()
        return None

    def _found(self, state: LaunchState) -> list[Finding]:
        translator = self._translator
        ends: list[Finding] = []
        try:
            state.launch()
        except KernelTimeout as error:
            ends.append(translator.stopped("timeout", str(error)))
        except KernelAssertion as error:
            ends += map(translator.failed, error.failures)
        except KernelFault as error:
            message = _TOO_DEEP if error.overflow else _WILD_CALL
            kind = "limits" if error.overflow else "out_of_bounds"
            ends.append(translator.stopped(kind, message))
        found = [translator.finding(raw, self._views) for raw in state.findings()]
        return [*found, *ends, *(self._unwritten(state) if not ends else ())]

    def _is_output(self, tensor: Any) -> bool:
        outputs = self._outputs or ()
        return any(tensor is output or _same_memory(tensor, output) for output in outputs)

    def _unwritten(self, state: LaunchState) -> Iterator[Finding]:
        """Buffers that the launch wrote in part, or that were to be written and were not. One that
        is read as well, or updated by atomics, keeps what is not written on purpose."""
        if self._outputs == ():
            return
        for view in self._views:
            region = state.checks.regions[view.index if view.index is not None else 0]
            if view.index is None or view.tensor is None or not region.shadow or region.read_only:
                continue
            expected = self._is_output(view.tensor)
            if not expected and self._checked.is_input(Root("buffer", view.index)):
                continue
            left = unwritten(self._checked, state.checks, view)
            if left.missing and (left.partial or expected):
                severity: Severity = "error" if expected else "warning"
                yield self._translator.unwritten(view, left, severity)


def _same_memory(tensor: Any, output: Any) -> bool:
    return bool(tensor.data_ptr() == output.data_ptr() and tensor.shape == output.shape)
