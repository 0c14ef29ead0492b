"""Text printed by LLVM to a module.

LLVM prints IR in one canonical form, an instruction a line (`switch` being the only one that spans
several), which is what this relies on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anymetal.ir.instruction import Instruction
from anymetal.ir.module import Block, Function, Module, UnreadBody

_DEFINE = "define "
_LABEL = re.compile(r'^([-\w.$]+|"[^"]*"):')


def parse(text: str) -> Module:
    """Reads a module printed by LLVM; the bodies of functions when somebody asks for them."""
    parts: list[str | Function] = []
    at = 0
    while (start := _next_function(text, at)) >= 0:
        parts += text[at:start].split("\n")[:-1]
        head = text.index("\n", start)
        end = _closing_brace(text, head)
        header = text[start:head]
        if end < 0:
            raise ValueError(f"a function has no closing brace: {header}")
        parts.append(Function(header, UnreadBody(text[head + 1 : end], _read_blocks)))
        at = end + len("\n}\n")
    parts += text[at:].split("\n")
    return Module(parts)


def _next_function(text: str, at: int) -> int:
    """Where the next definition begins, -1 where there is none."""
    if text.startswith(_DEFINE, at):
        return at
    found = text.find(f"\n{_DEFINE}", at)
    return found if found < 0 else found + 1


def _closing_brace(text: str, at: int) -> int:
    """Where the line ends before the brace that stands alone, -1 where there is none."""
    found = text.find("\n}\n", at)
    return len(text) - 2 if found < 0 and text.endswith("\n}") else found


def _read_blocks(function: Function, body: str) -> list[Block]:
    blocks: list[Block] = []
    lines = iter(body.split("\n"))
    for line in lines:
        stripped = line.strip()
        if not stripped or stripped[0] == ";":
            continue
        if line[0] != " " and (label := _LABEL.match(line)):
            blocks.append(Block(label.group(1)))
            continue
        if not blocks:
            blocks.append(Block(_implicit_entry_label(function)))
        if stripped.startswith("switch ") and "]" not in stripped:
            stripped = " ".join([stripped, *_until_bracket(lines)])
        blocks[-1].instructions.append(Instruction(stripped))
    return blocks


def _until_bracket(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.strip().startswith("]"):
            return


def _implicit_entry_label(function: Function) -> str:
    """An unnamed entry block takes the next number after the unnamed parameters."""
    names = [parameter.name[1:] for parameter in function.parameters]
    return str(max((int(name) for name in names if name.isdigit()), default=-1) + 1)
