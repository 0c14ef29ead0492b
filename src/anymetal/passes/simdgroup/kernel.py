"""A kernel taken apart for vectorisation: its blocks, what each value is, where it is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from anymetal.ir import Function, Instruction, Module
from anymetal.ir.flow import graph_of
from anymetal.passes.layout import Layout, members_of
from anymetal.passes.lower.machine import BARRIER, STOP, parameters_of
from anymetal.passes.operands import Operand, Parsed, UnknownInstruction, read_instruction
from anymetal.passes.simdgroup.graph import Flow, NotVectorisable

# What LLVM only wants to hear about, and vector code has no use for.
_NOTES = (
    "llvm.lifetime.",
    "llvm.assume",
    "llvm.dbg.",
    "llvm.experimental.noalias.scope",
    "llvm.invariant.",
)


@dataclass
class Kernel:
    """The function that one thread runs, as structured instructions."""

    buffers: str
    self: str
    blocks: dict[str, list[Parsed]]
    flow: Flow
    types: Types
    definitions: dict[str, tuple[str, Parsed]] = field(default_factory=dict)

    def phis(self, label: str) -> Iterator[Parsed]:
        return (parsed for parsed in self.blocks[label] if parsed.opcode == "phi")

    def body(self, label: str) -> Iterator[Parsed]:
        return (parsed for parsed in self.blocks[label] if parsed.opcode != "phi")


class Types:
    """Sizes and parts of the types a kernel uses."""

    def __init__(self, module: Module) -> None:
        self._layout = Layout(module)

    def size(self, kind: str) -> int:
        return self._layout.size(kind)

    def parts(self, kind: str) -> list[str]:
        """The types of an aggregate's or vector's parts; none for a scalar."""
        kind = self._layout.resolved(kind)
        if kind.startswith("<{"):
            return members_of(kind[2:-2])
        if kind.startswith("{"):
            return members_of(kind[1:-1])
        if kind[0] in "<[":
            count, element = kind[1:-1].split(" x ", 1)
            return [element] * int(count)
        return []

    def leaves(self, kind: str) -> list[str]:
        """The scalars a type is made of, in order."""
        parts = self.parts(kind)
        return [leaf for part in parts for leaf in self.leaves(part)] if parts else [kind]

    def offset(self, kind: str, index: int) -> int:
        """Bytes from the start of an aggregate to its part number `index`."""
        return self._layout.offset(kind, index)


def read_kernel(module: Module, function: Function) -> Kernel:
    """Takes a normalised kernel apart."""
    buffers, self_parameter = parameters_of(function)
    graph = graph_of(function)
    types = Types(module)
    blocks = {
        block.label: list(_instructions(block.instructions, types))
        for block in function.blocks
        if block.label in graph
    }
    barriers = {label for label, body in blocks.items() if any(map(_is_barrier, body))}
    flow = Flow(graph, function.blocks[0].label, barriers)
    kernel = Kernel(buffers, self_parameter, blocks, flow, types)
    for label, instructions in blocks.items():
        for parsed in instructions:
            if parsed.result is not None:
                kernel.definitions[parsed.result] = (label, parsed)
    return kernel


def _is_barrier(parsed: Parsed) -> bool:
    return parsed.callee == STOP and int(parsed.operands[0].text) & 15 == BARRIER


def _instructions(instructions: list[Instruction], types: Types) -> Iterator[Parsed]:
    for instruction in instructions:
        text = instruction.text
        callee = re.search(r"@([-\w.$]+)\(", text)
        if callee and callee.group(1).startswith(_NOTES):
            continue
        try:
            parsed = read_instruction(text)
        except UnknownInstruction as error:
            raise NotVectorisable(str(error)) from None
        if parsed.opcode == "extractvalue":
            parsed.kind = _part_type(parsed.operands[0], parsed.numbers, types)
        yield parsed


def _part_type(aggregate: Operand, indices: list[int], types: Types) -> str:
    kind = aggregate.kind
    for index in indices:
        kind = types.parts(kind)[index]
    return kind
