"""Loads whose value cannot change during a launch are marked so, and may leave the loop over
threads.

The table of buffer addresses, the shape of the grid and memory in the constant address space stay
as they are; but LLVM must assume that a store to any buffer may change them. Without the marks a
kernel that does nothing but scale its input reloads four arguments a thread and is not vectorised.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from anymetal.ir import Function, Instruction, Module
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.provenance import Provenance, Root

_POINTER = re.compile(r', ptr (%(?:[-\w.$]+|"[^"]*"))')
_BASE = re.compile(r"getelementptr .*?, ptr (%[-\w.$]+)")


def invariant(module: Module) -> str:
    """What is put behind a load to mark it."""
    return f", !invariant.load {module.metadata(0, '')}"


def mark_invariant_loads(module: Module, constant_buffers: Collection[int]) -> None:
    """Marks the loads of the kernel that read nothing but arguments and the shape of the grid."""
    function = module.function(THREAD_MAIN)
    provenance = Provenance(function)
    unchanging = {Root("buffer", index) for index in constant_buffers}
    marked = [load for load in _plain_loads(function) if _is_fixed(load, provenance, unchanging)]
    for load in marked:
        load.text += invariant(module)


def mark_loads_through(module: Module, parameter: str) -> None:
    """Marks the loads, in every function, from what a parameter points to, at whatever offset."""
    for function in module.functions:
        inside = {parameter}
        for instruction in function.instructions():
            base = _BASE.search(instruction.text)
            if base and base.group(1) in inside and instruction.result:
                inside.add(instruction.result)
        for load in _plain_loads(function):
            match = _POINTER.search(load.text)
            if match and match.group(1) in inside:
                load.text += invariant(module)


def _plain_loads(function: Function) -> list[Instruction]:
    loads = (i for i in function.instructions() if i.opcode == "load")
    return [load for load in loads if not re.search(r"load (?:atomic|volatile)", load.text)]


def _is_fixed(load: Instruction, provenance: Provenance, unchanging: Collection[Root]) -> bool:
    match = _POINTER.search(load.text)
    if match is None:
        return False
    pointer = match.group(1)
    return provenance.root(pointer) in unchanging or provenance.is_fixed_part(pointer)
