"""Where an instruction comes from: the chain of places in LLVM's debug metadata, innermost
first."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from anymetal.ir import OWN_METADATA, Function, Instruction, Module, read_signature
from anymetal.ir.tokens import Reader

# A discriminator tells places apart that are one place in the text.
_OPEN = 4242


@dataclass(frozen=True)
class Spot:
    """A place in a compiled file."""

    file: str
    line: int
    column: int


class DebugInfo:
    """The debug metadata of a module, looked up by the nodes attached to instructions."""

    def __init__(self, module: Module) -> None:
        self._nodes = module.nodes()
        self._fields = functools.cache(self._read_fields)
        self._opened: dict[str, str] = {}

    def _read_fields(self, node: str) -> dict[str, str]:
        """`!DILocation(line: 3, scope: !7)` by the names in it."""
        tokens = Reader(self._nodes[node]).tokens
        return {
            tokens[place - 1]: tokens[place + 1]
            for place, token in enumerate(tokens)
            if token == ":"
        }

    def spots(self, node: str | None) -> list[Spot]:
        """Places of a location, from the innermost inlined function out to the kernel."""
        found: list[Spot] = []
        while node is not None:
            fields = self._fields(node)
            line, column = int(fields["line"]), int(fields.get("column", 0))
            found.append(Spot(self._file(fields["scope"]), line, column))
            node = fields.get("inlinedAt")
        return found

    def opened(self, node: str, module: Module) -> str:
        """The same place with a mark, which stays with whatever LLVM makes of an instruction."""
        if node not in self._opened:
            fields, number = self._fields(node), 2 * len(self._opened)
            scope, file = fields["scope"], self._fields(fields["scope"])["file"]
            block = f"scope: {scope}, file: {file}, discriminator: {_OPEN}"
            inner = module.node(number, f"DILexicalBlockFile({block})")
            place = f"line: {fields['line']}, column: {fields.get('column', 0)}, scope: {inner}"
            self._opened[node] = module.node(number + 1, f"DILocation({place})")
        return self._opened[node]

    def is_open(self, node: str | None) -> bool:
        """Whether a place has that mark."""
        if node is None:
            return False
        return self._fields(self._fields(node)["scope"]).get("discriminator") == str(_OPEN)

    def file(self, function: Function) -> str:
        """The file a function is written in; nothing for those the compiler made itself."""
        node = function.signature.metadata.get("dbg")
        return self._file(node) if node else ""

    def _file(self, scope: str) -> str:
        return self._fields(self._fields(scope)["file"])["filename"].strip('"')


def strip_metadata(module: Module) -> None:
    """Takes the compiler's metadata out: calls that a pass adds would need it too, and nobody reads
    it. What our passes have added stays."""
    module.parts = [
        _without_debug(part) if isinstance(part, str) else part
        for part in module.parts
        if not (isinstance(part, str) and part[:1] == "!" and not part.startswith(OWN_METADATA))
    ]
    for function in module.functions:
        function.signature.metadata.clear()
        for block in function.blocks:
            block.instructions = [i for i in block.instructions if not _is_note(i)]
        for instruction in function.instructions():
            _detach(instruction)


def _without_debug(line: str) -> str:
    """A declaration or global without its debug metadata."""
    if " !dbg " not in line:
        return line
    if not line.startswith("declare "):
        return line.partition(", !dbg ")[0]
    signature = read_signature(line)
    signature.metadata.clear()
    return signature.written("declare")


def _is_note(instruction: Instruction) -> bool:
    """Whether an instruction does nothing but refer to metadata."""
    scope = instruction.callee == "llvm.experimental.noalias.scope.decl"
    return scope or instruction.opcode.startswith("#dbg")


def _detach(instruction: Instruction) -> None:
    if "!" in instruction.text:
        own = {k: v for k, v in instruction.metadata.items() if v.startswith(OWN_METADATA)}
        instruction.metadata = own
