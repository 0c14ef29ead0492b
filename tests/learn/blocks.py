"""Markdown goes in, its code blocks come out: what each is, and where it stands.

How a block is written decides what is done with it (`running.py`):

- its language: python, sh, metal, objc++ and data formats; `output` is what the block before it
  prints, with `…` for what changes; `text` is no code.
- `title="rows.metal"` behind the language: the block is a file that later blocks find.
- a comment on the line before it: `<!-- mac -->` needs a Mac and is compiled, `<!-- shown: why -->`
  is parsed and not run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MARK = re.compile(r"<!-- (mac|shown: .+?) -->")
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One code block. `line` is that of its first line of code, counted from 1."""

    place: Path
    line: int
    language: str
    text: str
    title: str = ""
    mark: str = ""

    def __str__(self) -> str:
        return f"{self.place.name}:{self.line}"


def pages() -> list[Path]:
    """Every page that is for readers."""
    folders = [
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "skill").rglob("*.md")),
        *sorted((ROOT / "examples").glob("*.md")),
    ]
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *folders]


def blocks_of(text: str, place: Path, first_line: int = 1) -> Iterator[Block]:
    """The fenced blocks of a text, in order; an unfinished one is an error."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = re.match(r"( *)(```+)(.*)", lines[number])
        if not fence:
            number += 1
            continue
        indent, ticks, words = fence.groups()
        end = next(
            (at for at in range(number + 1, len(lines)) if lines[at] == indent + ticks), None
        )
        assert end is not None, f"{place}:{number + first_line}: a code block that does not end"
        mark = MARK.search(lines[number - 1]) if number else None
        title = TITLE.search(words)
        yield Block(
            place,
            number + 1 + first_line,
            words.split()[0] if words.split() else "",
            "".join(line[len(indent) :] + "\n" for line in lines[number + 1 : end]),
            title.group(1) if title else "",
            mark.group(1) if mark else "",
        )
        number = end + 1


def indented_code(text: str) -> Iterator[str]:
    """First lines of code that only its indentation marks: no test would see what follows."""
    in_fence = in_list = False
    before = ""
    for line in text.splitlines():
        in_fence ^= line.lstrip().startswith("```")
        if line and not line.startswith(" "):
            in_list = re.match(r"[-*] |\d+\. ", line) is not None
        elif line.startswith("    ") and not (before or in_list or in_fence):
            yield line
        before = line
