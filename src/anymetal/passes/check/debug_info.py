"""Where an instruction comes from: the chain of places in LLVM's debug metadata, innermost
first."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.ir import OWN_METADATA, Function, Instruction, Module

_NODE = re.compile(r"^(!\d+) = (?:distinct )?!(DI\w+)\((.*)\)$")
_REFERENCE = re.compile(r", !dbg (!\d+)")
_ATTACHMENT = re.compile(rf", ![\w.]+ (?!{OWN_METADATA})!\d+")
_METADATA = re.compile(rf"(?!{OWN_METADATA})!")
_FIELD = re.compile(r"(\w+): (\"[^\"]*\"|[^,]+)")


@dataclass(frozen=True)
class Spot:
    """A place in a compiled file."""

    file: str
    line: int
    column: int


class DebugInfo:
    """The debug metadata of a module, looked up by the references on instructions."""

    def __init__(self, module: Module) -> None:
        self._nodes: dict[str, dict[str, str]] = {}
        for part in module.parts:
            match = _NODE.match(part) if isinstance(part, str) else None
            if match:
                self._nodes[match.group(1)] = dict(_FIELD.findall(match.group(3)))

    def spots(self, text: str) -> list[Spot]:
        """Places of an instruction, from the innermost inlined function out to the kernel."""
        match = _REFERENCE.search(text)
        found: list[Spot] = []
        reference = match.group(1) if match else None
        while reference is not None:
            node = self._nodes[reference]
            spot = Spot(self._file(node["scope"]), int(node["line"]), int(node.get("column", 0)))
            found.append(spot)
            reference = node.get("inlinedAt")
        return found

    def files(self, function: Function) -> set[str]:
        """The files that a function's own instructions come from, not counting inlined ones."""
        found = (self.spots(instruction.text) for instruction in function.instructions())
        return {spots[-1].file for spots in found if spots}

    def _file(self, scope: str) -> str:
        return self._nodes[self._nodes[scope]["file"]]["filename"].strip('"')


def strip_metadata(module: Module) -> None:
    """Takes the compiler's metadata out: calls that a pass adds would need it too, and nobody reads
    it. What our passes have added stays."""
    parts = (p for p in module.parts if not (isinstance(p, str) and _METADATA.match(p)))
    module.parts = [re.sub(r" !dbg !\d+", "", p) if isinstance(p, str) else p for p in parts]
    for function in module.functions:
        function.header = re.sub(r" !dbg !\d+", "", function.header)
        for block in function.blocks:
            block.instructions = [i for i in block.instructions if not _is_note(i)]
        for instruction in function.instructions():
            instruction.text = _ATTACHMENT.sub("", instruction.text)


def _is_note(instruction: Instruction) -> bool:
    """Whether an instruction does nothing but refer to metadata."""
    scope = instruction.callee == "llvm.experimental.noalias.scope.decl"
    return scope or instruction.text.startswith("#dbg")
