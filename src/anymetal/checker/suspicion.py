"""A doubt about an argument: it becomes a finding once the launch has touched that buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anymetal.checker.finding import Finding, Place, Severity

if TYPE_CHECKING:
    from anymetal.checker.program import CheckedProgram
    from anymetal.checker.views import BufferView


@dataclass(frozen=True)
class Suspicion:
    """A finding about an argument. Where `argument` is None it holds whatever the launch touches.

    `only_with` names a kind: without a finding of that kind about the buffer this one is none.
    """

    argument: str | None
    finding: Finding
    only_with: str = ""


def suspicion(
    checked: CheckedProgram,
    view: BufferView,
    kind: str,
    message: str,
    hint: str = "",
    severity: Severity = "error",
) -> Suspicion:
    """A doubt that points at the parameter's declaration. `message` goes on after its name."""
    finding = at_parameter(checked, view.name, kind, f"{named(view)} {message}", hint, severity)
    return Suspicion(view.name, finding)


def at_parameter(
    checked: CheckedProgram, name: str, kind: str, message: str, hint: str, severity: Severity
) -> Finding:
    """A finding where the parameter is declared, or at the kernel where there is none."""
    declared = checked.parameters.get(name.partition("[")[0], checked.kernel)
    place = Place(declared.position, declared.text, "argument", None, None, None)
    return Finding(
        kind, severity, checked.name, message, place, buffer=name, hint=hint, space="device"
    )


def named(view: BufferView) -> str:
    """How messages name an argument; a tensor of a list goes by its place in it."""
    number = "" if view.index is None else f" (buffer {view.index})"
    return f"argument '{view.name}'{number}"
