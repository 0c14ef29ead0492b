"""Files of tests/attack -> cases: a source, its launch, and how each way to run it must end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"

_DIRECTIVE = re.compile(r"// (refused|plain|checked|limit|launch): (.*)")


@dataclass(frozen=True)
class Hostile:
    """A source that means harm. `refused` are words of the compiler's message; else it is launched.

    `plain` is "runs" or an error's name with words of its message; `checked` is "nothing" or the
    kind of a finding that must be there; each may be "ends": any end but a death will do. What is
    "skipped" is not run that way.
    """

    name: str
    source: str
    launch: str = "k float32[64]=zeros threads=64"
    refused: str = ""
    plain: str = "runs"
    checked: str = "nothing"
    limit: int = 60

    def wrong(self, way: str, answer: str) -> str:
        """What is wrong with how it ended, in words; empty if nothing is."""
        if self.refused:
            expected = f"refused: {self.refused}"
            ok = answer.startswith("refused:") and self.refused in answer
        elif (self.checked if way == "checked" else self.plain) == "ends":
            expected, ok = "ends", not answer.startswith(("dies", "hangs"))
        elif way == "checked":
            expected = f"finds {self.checked}"
            ok = self.checked in answer.removeprefix("finds ").split(", ")
        else:
            expected = self.plain
            error, _, words = self.plain.partition(" ")
            ok = answer == "runs" if error == "runs" else _raised(answer, error, words)
        return "" if ok else f"{way}: expected '{expected}', got '{answer}'"


def _raised(answer: str, error: str, words: str) -> bool:
    names, _, message = answer.removeprefix("raises ").partition(": ")
    return error in names.split(" ") and words in message


def hostile_files() -> list[Hostile]:
    return [_read(path) for path in sorted((FOLDER / "hostile").glob("*.metal"))]


def _read(path: Path) -> Hostile:
    source = path.read_text()
    found: dict[str, list[str]] = {}
    for line in source.splitlines():
        if match := _DIRECTIVE.match(line):
            found.setdefault(match[1], []).append(match[2])
    facts = {key: " ".join(texts) for key, texts in found.items()}
    limit = int(facts.pop("limit", "60"))
    return Hostile(path.stem, source, limit=limit, **facts)
