"""Which instructions use a value, and how often, by their text."""

from __future__ import annotations

import re

from anymetal.ir import Function, Instruction

_NAME = re.compile(r'%(?:[-\w.$]+|"[^"]*")')


def names_in(instruction: Instruction) -> list[str]:
    """The values and labels that an instruction names, its own result excepted."""
    found = _NAME.findall(instruction.text)
    return found[1:] if instruction.result is not None else found


def users(function: Function) -> dict[str, list[Instruction]]:
    """The instructions that name each value; one that names it twice stands there twice."""
    found: dict[str, list[Instruction]] = {}
    for instruction in function.instructions():
        for name in names_in(instruction):
            found.setdefault(name, []).append(instruction)
    return found


def name_numbered(function: Function) -> None:
    """Gives values that have numbers names: numbers must stand in order, and values are moved."""
    names = {
        result: function.fresh("moved")
        for instruction in function.instructions()
        if (result := instruction.result) is not None and result[1:].isdigit()
    }
    for block in function.blocks:
        block.instructions = [
            Instruction(_NAME.sub(lambda match: names.get(match[0], match[0]), one.text))
            for one in block.instructions
        ]
