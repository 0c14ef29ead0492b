"""What is doubtful about the arguments of a launch, and which of it the launch has shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anymetal.checker.argument_sizes import wrong_sizes
from anymetal.checker.argument_structs import wrong_structs
from anymetal.checker.argument_types import wrong_types
from anymetal.checker.argument_values import wrong_values
from anymetal.checker.finding import Finding
from anymetal.checker.layouts import wrong_layouts
from anymetal.checker.program import CheckedProgram
from anymetal.checker.suspicion import Suspicion
from anymetal.checker.views import BufferView

_CHECKS = (wrong_sizes, wrong_types, wrong_values, wrong_structs, wrong_layouts)


def suspicions(checked: CheckedProgram, views: Sequence[BufferView]) -> list[Suspicion]:
    """Everything that is wrong with the arguments if the kernel looks at them."""
    return [doubt for judge in _CHECKS for doubt in judge(checked, views)]


def explained(
    doubts: Sequence[Suspicion], touched: Collection[str], findings: Sequence[Finding]
) -> list[Finding]:
    """The doubts that the launch has confirmed, before what it found; what follows from them is
    left out."""
    confirmed = [doubt.finding for doubt in doubts if _is_confirmed(doubt, touched, findings)]
    short = {f.buffer for f in confirmed if f.kind == "argument_size" and f.severity == "error"}
    rest = [f for f in findings if not (f.kind == "out_of_bounds" and f.buffer in short)]
    return [*confirmed, *rest]


def _is_confirmed(doubt: Suspicion, touched: Collection[str], findings: Sequence[Finding]) -> bool:
    if doubt.argument is not None and doubt.argument not in touched:
        return False
    needed, name = doubt.only_with, doubt.argument
    return not needed or any(f.kind == needed and f.buffer == name for f in findings)
