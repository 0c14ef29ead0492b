"""Loads whose value cannot change during a launch are marked invariant, so that LLVM hoists them
out of the loop over threads.

The table of buffer addresses, the shape of the grid and memory in the constant address space stay
as they are; but LLVM must assume that a store to any buffer may change them. Without the marks a
kernel that does nothing but scale its input reloads four arguments a thread and is not vectorised.
"""

from __future__ import annotations

from collections.abc import Collection

from anymetal.ir import Function, Instruction, Module
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.provenance import Provenance, Root


def invariant(module: Module) -> dict[str, str]:
    """The metadata that marks a load."""
    return {"invariant.load": module.metadata(0, "")}


def mark_invariant_loads(module: Module, constant_buffers: Collection[int]) -> None:
    """Marks the loads of the kernel that read nothing but arguments and the shape of the grid."""
    function = module.function(THREAD_MAIN)
    provenance = Provenance(function)
    unchanging = {Root("buffer", index) for index in constant_buffers}
    for load in _plain_loads(function):
        pointer = load.pointer
        if provenance.root(pointer) in unchanging or provenance.is_fixed_part(pointer):
            load.metadata = load.metadata | invariant(module)


def mark_loads_through(module: Module, parameter: str) -> None:
    """Marks the loads, in every function, from what a parameter points to, at whatever offset."""
    for function in module.functions:
        inside: set[str | None] = {parameter}
        for instruction in function.instructions():
            if instruction.opcode == "getelementptr" and instruction.pointer.text in inside:
                inside.add(instruction.result)
        for load in _plain_loads(function):
            if load.pointer.text in inside:
                load.metadata = load.metadata | invariant(module)


def _plain_loads(function: Function) -> list[Instruction]:
    loads = (i for i in function.instructions() if i.opcode == "load")
    return [load for load in loads if not load.is_atomic and not load.is_volatile]
