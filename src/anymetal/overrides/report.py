"""What became of the calls, as a mapping and as text."""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.overrides.counts import COUNTS, Calls


@dataclass(frozen=True)
class Report:
    """Calls by torch's names for the functions; `str` makes a table of it."""

    functions: dict[str, Calls]

    def __str__(self) -> str:
        if not self.functions:
            return "no call of a replaced function yet"
        lines: list[str] = []
        for name, calls in self.functions.items():
            lines.append(f"{name}: {calls.taken} taken, {sum(calls.passed.values())} passed on")
            by_count = sorted(calls.passed.items(), key=lambda one: -one[1])
            lines += [f"    {count:6d}  {reason}" for reason, count in by_count]
            if calls.switched_off:
                lines.append(f"    switched off: {calls.switched_off}")
        return "\n".join(lines)


def report() -> Report:
    """What became of the calls of replaced functions so far. Compiled calls are not counted."""
    return Report(COUNTS.read())
