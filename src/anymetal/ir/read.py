"""Text printed by LLVM to a module.

LLVM prints IR in one canonical form, an instruction a line (`switch` being the only one that spans
several), which is what this relies on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anymetal.ir.instruction import Instruction
from anymetal.ir.module import Block, Function, Module

_LABEL = re.compile(r'^([-\w.$]+|"[^"]*"):')


def parse(text: str) -> Module:
    """Reads a module printed by LLVM."""
    parts: list[str | Function] = []
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("define ") and line.endswith("{"):
            parts.append(_parse_function(line, lines))
        else:
            parts.append(line)
    return Module(parts)


def _parse_function(header: str, lines: Iterator[str]) -> Function:
    function = Function(header)
    blocks = function.blocks
    for line in lines:
        if line == "}":
            return function
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
    raise ValueError(f"function {function.name!r} has no closing brace")


def _until_bracket(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.strip().startswith("]"):
            return


def _implicit_entry_label(function: Function) -> str:
    """An unnamed entry block takes the next number after the unnamed parameters."""
    names = [parameter.name[1:] for parameter in function.parameters]
    return str(max((int(name) for name in names if name.isdigit()), default=-1) + 1)
