"""Sources without a file: a place in the text becomes a place in the Python file it stands in.

Kernels are often written as a literal and given to `compile_shader` without a name. Lines of the
text are looked up in the file of that call: as a whole where a literal is all of it, otherwise by
the longest runs of equal lines, which finds the parts of concatenations and f-strings.
"""

from __future__ import annotations

import ast
import linecache
import sys
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from types import FrameType

from anymetal.nouns import Position

UNNAMED = "<shader>"
_HERE = Path(__file__).parents[1]
_COMMAND = str(_HERE / "cli")
_FEWEST_LINES = 2  # of a run of equal lines that is no coincidence


def caller() -> Position | None:
    """The line of Python that the call of this package came from, if it is somebody's own: not a
    command of ours, and not a thread of autograd's."""
    ours = (str(_HERE), *_torch())
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_COMMAND):
            return None
        if not file.startswith((*ours, "<")):
            return Position(str(Path(file).absolute()), frame.f_lineno, 1)
        frame = frame.f_back
    return None


def _torch() -> tuple[str, ...]:
    torch = sys.modules.get("torch")
    return (str(Path(torch.__file__).parent),) if torch and torch.__file__ else ()


@dataclass(frozen=True)
class _Place:
    """Line of the Python file where a line of the text stands, and columns in front of it."""

    line: int
    shift: int = 0


@dataclass(frozen=True)
class InlineSource:
    """A text and the call that handed it over."""

    text: str
    call: Position

    def position(self, position: Position | None) -> Position | None:
        """The place in the Python file; the same where the line does not stand there."""
        if position is None or position.file != UNNAMED:
            return position
        place = self._places.get(position.line)
        if place is None:
            return position
        return Position(self.call.file, place.line, position.column + place.shift)

    def excerpt(self, position: Position | None, text: str) -> str:
        """The line of the text with what stands before it in the Python file, left blank."""
        place = self._places.get(position.line) if position and position.file == UNNAMED else None
        return " " * place.shift + text if place else text

    def back(self, position: Position) -> Position:
        """The place in the text for one that `position` gave."""
        if position.file != self.call.file:
            return position
        line = self._lines.get(position.line)
        return position if line is None else replace(position, file=UNNAMED, line=line)

    @cached_property
    def _places(self) -> dict[int, _Place]:
        lines = [line.rstrip("\n") for line in linecache.getlines(self.call.file)]
        return _literal(self.text, lines, self.call.line) or _runs(self.text, lines)

    @cached_property
    def _lines(self) -> dict[int, int]:
        return {place.line: line for line, place in self._places.items()}


def _literal(text: str, lines: list[str], call: int) -> dict[int, _Place]:
    """The lines of the literal that is the text; of several, the last before the call."""
    try:
        nodes = list(ast.walk(ast.parse("\n".join(lines))))
    except (SyntaxError, ValueError):
        return {}
    literals = (n for n in nodes if isinstance(n, ast.Constant) and n.value == text)
    starts = sorted((node.lineno for node in literals), key=lambda line: (line <= call, line))
    wanted = text.split("\n")
    for start in reversed(starts):
        for first in (start, start + 1):  # a backslash may hide the literal's first line break
            shown = lines[first - 1 : first - 1 + len(wanted)]
            if len(shown) == len(wanted) and all(map(str.__contains__, shown, wanted)):
                shift = shown[0].index(wanted[0])
                rest = {k + 1: _Place(first + k) for k in range(1, len(wanted))}
                return {1: _Place(first, shift), **rest}
    return {}


def _runs(text: str, lines: list[str]) -> dict[int, _Place]:
    """Runs of lines that stand in the file as well; f-strings double their braces there. Between
    runs that are equally far apart in both stand lines with values put in."""
    wanted = [line.strip() for line in text.split("\n")]
    shown = [line.strip().replace("{{", "{").replace("}}", "}") for line in lines]
    blocks = SequenceMatcher(None, wanted, shown, autojunk=False).get_matching_blocks()
    spans: dict[int, list[range]] = {}
    for block in blocks:
        spans.setdefault(block.b - block.a, []).append(range(block.a, block.a + block.size))
    found: dict[int, _Place] = {}
    for distance, runs in spans.items():
        if sum(len(wanted[k]) > 1 for run in runs for k in run) >= _FEWEST_LINES:
            span = range(runs[0].start, runs[-1].stop)
            found |= {k + 1: _Place(k + distance + 1) for k in span}
    return found
