"""LLVM's textual IR as functions, blocks and instructions that a pass can edit, and back to text.

llvmlite can read IR values but not change them, so the passes work on text. LLVM prints IR in one
canonical form (an instruction a line, `switch` being the only one that spans several), which is
what this parser relies on; everything outside function bodies is kept verbatim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# Metadata of our own begins so. No module reaches the number: there may be gaps.
OWN_METADATA = "!400000"

_NAME = r'(?:[-\w.$]+|"[^"]*")'
_DEFINE = re.compile(rf"^define .*?@({_NAME})\(")
_LABEL = re.compile(rf"^({_NAME}):")
_RESULT = re.compile(rf"^(%{_NAME}) = ")
_OPCODE = re.compile(r"^(?:%\S+ = |%\"[^\"]*\" = )?(?:tail |musttail |notail )?(#?[a-z_0-9]+)")
_CALLEE = re.compile(rf"@({_NAME})\(")
_TARGET = re.compile(rf"label (%{_NAME})")
_INCOMING = re.compile(rf"(, )(%{_NAME})( \])")


@dataclass
class Instruction:
    """One instruction; `text` is the whole of it without indentation."""

    text: str

    @property
    def result(self) -> str | None:
        match = _RESULT.match(self.text)
        return match.group(1) if match else None

    @property
    def opcode(self) -> str:
        match = _OPCODE.match(self.text)
        return match.group(1) if match else ""

    @property
    def callee(self) -> str | None:
        """Name of the function called directly, or None."""
        if self.opcode != "call":
            return None
        match = _CALLEE.search(self.text)
        return match.group(1).strip('"') if match else None


@dataclass
class Block:
    """A basic block; `label` is written without the percent sign."""

    label: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def terminator(self) -> Instruction:
        return self.instructions[-1]

    @property
    def successors(self) -> list[str]:
        if self.terminator.opcode not in ("br", "switch"):
            return []
        return [target.removeprefix("%") for target in _TARGET.findall(self.terminator.text)]


@dataclass
class Function:
    """A function definition; `header` is the `define` line up to and including the brace."""

    name: str
    header: str
    blocks: list[Block]

    def instructions(self) -> Iterator[Instruction]:
        for block in self.blocks:
            yield from block.instructions

    def calls(self, callee: str) -> Iterator[Instruction]:
        return (i for i in self.instructions() if i.callee == callee)

    def block(self, label: str) -> Block:
        return next(block for block in self.blocks if block.label == label)

    def rename_predecessor(self, of: list[str], old: str, new: str) -> None:
        """In the phis of the blocks `of`, values that came from `old` now come from `new`."""
        for label in of:
            for instruction in self.block(label).instructions:
                if instruction.opcode == "phi":
                    instruction.text = _rename_incoming(instruction.text, old, new)

    def __str__(self) -> str:
        lines = [self.header]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines.extend(f"  {instruction.text}" for instruction in block.instructions)
        lines.append("}")
        return "\n".join(lines)


def _rename_incoming(text: str, old: str, new: str) -> str:
    def renamed(match: re.Match[str]) -> str:
        label = f"%{new}" if match.group(2) == f"%{old}" else match.group(2)
        return match.group(1) + label + match.group(3)

    return _INCOMING.sub(renamed, text)


@dataclass
class Module:
    """A module: text and functions in the order in which they were printed."""

    parts: list[str | Function]

    @property
    def functions(self) -> list[Function]:
        return [part for part in self.parts if isinstance(part, Function)]

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(f"the module defines no function {name!r}")

    def remove(self, function: Function) -> None:
        self.parts.remove(function)

    def declare(self, declaration: str) -> None:
        """Adds a `declare` line unless the module has the same function already."""
        name = _CALLEE.search(declaration)
        assert name is not None, declaration
        known = any(function.name == name.group(1) for function in self.functions) or any(
            isinstance(part, str) and part.startswith("declare ") and f"@{name.group(1)}(" in part
            for part in self.parts
        )
        if not known:
            self.parts.append(declaration)

    def metadata(self, number: int, contents: str) -> str:
        """A metadata node of our own, by its name; equal calls give the same one."""
        name = f"{OWN_METADATA}{number}"
        line = f"{name} = !{{{contents}}}"
        if line not in self.parts:
            self.parts.append(line)
        return name

    def attribute_group(self, reference: str) -> str:
        """The text between the braces of `attributes #n = { ... }`."""
        for part in self.parts:
            if isinstance(part, str) and part.startswith(f"attributes {reference} = "):
                return part[part.index("{") + 1 : part.rindex("}")].strip()
        return ""

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.parts) + "\n"


def parse(text: str) -> Module:
    """Reads a module printed by LLVM."""
    parts: list[str | Function] = []
    lines = iter(text.split("\n"))
    for line in lines:
        match = _DEFINE.match(line)
        if match and line.endswith("{"):
            parts.append(_parse_function(match.group(1).strip('"'), line, lines))
        else:
            parts.append(line)
    return Module(parts)


def _parse_function(name: str, header: str, lines: Iterator[str]) -> Function:
    blocks: list[Block] = []
    for line in lines:
        if line == "}":
            return Function(name, header, blocks)
        stripped = line.strip()
        if not stripped or stripped.startswith(";"):
            continue
        label = _LABEL.match(line)
        if label:
            blocks.append(Block(label.group(1)))
            continue
        if not blocks:
            blocks.append(Block(_implicit_entry_label(header)))
        if stripped.startswith("switch ") and not stripped.endswith("]"):
            stripped = " ".join([stripped, *_until_bracket(lines)])
        blocks[-1].instructions.append(Instruction(stripped))
    raise ValueError(f"function {name!r} has no closing brace")


def _until_bracket(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.strip().startswith("]"):
            return


def _implicit_entry_label(header: str) -> str:
    """An unnamed entry block takes the next number after the unnamed parameters."""
    numbers = [int(n) for n in re.findall(r"%(\d+)[,)]", header)]
    return str(max(numbers, default=-1) + 1)
