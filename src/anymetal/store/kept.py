"""Programs that stay in memory, for another engine or level of checking that asks for the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from anymetal.nouns import ConstantValue, Program, Target

_KEPT = 4


class KeptPrograms:
    """The last programs of a front end."""

    def __init__(self) -> None:
        self._programs: deque[tuple[object, tuple[object, ...], Program]] = deque(maxlen=_KEPT)

    def program(
        self,
        origin: object,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        target: Target,
        *,
        optimise: bool,
        lines: bool,
        make: Callable[[], Program],
    ) -> Program:
        """The program that is kept of this very `origin`, or one that is made now."""
        # The values as text: 1 and True are equal, and -0.0 and 0.0.
        wanted = (kernel, repr(sorted(constants.items())), target, optimise, lines)
        for known, asked, program in list(self._programs):
            if known is origin and asked == wanted:
                return program
        program = make()
        self._programs.append((origin, wanted, program))
        return program
