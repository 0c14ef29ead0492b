"""A kernel taken apart for vectorisation: its blocks, what each value is, where it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from anymetal.ir import (
    METADATA,
    Block,
    Function,
    Instruction,
    Layout,
    Module,
    Operand,
    Type,
    UnknownInstruction,
)
from anymetal.ir.flow import graph_of
from anymetal.machine.layout import Wait, waits_for
from anymetal.passes.lower.machine import STOP
from anymetal.passes.simdgroup.graph import Flow, NotVectorisable

# Calls that only inform the optimiser: vector code has no use for them.
_NOTES = (
    "llvm.lifetime.",
    "llvm.assume",
    "llvm.dbg.",
    "llvm.experimental.noalias.scope",
    "llvm.invariant.",
)


@dataclass
class Kernel:
    """The function that one thread runs."""

    buffers: Operand
    self: Operand
    blocks: dict[str, list[Instruction]]
    flow: Flow
    types: Layout
    definitions: dict[str, tuple[str, Instruction]] = field(default_factory=dict)

    def phis(self, label: str) -> Iterator[Instruction]:
        return (i for i in self.blocks[label] if i.opcode == "phi")

    def body(self, label: str) -> Iterator[Instruction]:
        return (i for i in self.blocks[label] if i.opcode != "phi")


def read_kernel(module: Module, function: Function) -> Kernel:
    """Takes a normalised kernel apart."""
    buffers, self_parameter = (parameter.operand() for parameter in function.parameters)
    graph = graph_of(function)
    types = module.layout()
    blocks = {
        block.label: list(_instructions(block, types))
        for block in function.blocks
        if block.label in graph
    }
    barriers = {label for label, body in blocks.items() if any(map(_is_barrier, body))}
    flow = Flow(graph, function.entry.label, barriers)
    kernel = Kernel(buffers, self_parameter, blocks, flow, types)
    for label, instructions in blocks.items():
        for instruction in instructions:
            if instruction.result is not None:
                kernel.definitions[instruction.result] = (label, instruction)
    return kernel


def _is_barrier(instruction: Instruction) -> bool:
    if instruction.callee != STOP:
        return False
    what = instruction.operands[0].integer
    assert what is not None
    return waits_for(what) == Wait.THREADGROUP_BARRIER


def _instructions(block: Block, types: Layout) -> Iterator[Instruction]:
    for instruction in block.instructions:
        if (instruction.callee or "").startswith(_NOTES):
            continue
        try:
            _refuse_unusual(instruction)
        except UnknownInstruction as error:
            raise NotVectorisable(str(error)) from None
        if instruction.opcode == "extractvalue":
            instruction.type = _part_type(instruction, types)
        yield instruction


def _refuse_unusual(instruction: Instruction) -> None:
    """Takes an instruction apart; indirect and variadic calls have no vector form."""
    if "addrspace(" in instruction.text:
        raise UnknownInstruction(f"address spaces are erased: {instruction}")
    if instruction.opcode in ("switch", "#dbg_declare"):
        raise UnknownInstruction(f"not expected after normalisation: {instruction}")
    if instruction.target and (instruction.callee is None or instruction.function_type):
        raise UnknownInstruction(f"indirect call: {instruction}")
    if any(operand.type is METADATA for operand in instruction.operands):
        raise UnknownInstruction(f"metadata argument: {instruction}")


def _part_type(instruction: Instruction, types: Layout) -> Type:
    kind = instruction.operands[0].type
    for index in instruction.numbers:
        kind = types.parts(kind)[index]
    return kind
