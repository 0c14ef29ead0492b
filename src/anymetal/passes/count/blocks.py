"""Counts what a kernel does: each block adds one to its own counter, and has a known cost."""

from __future__ import annotations

from collections import Counter

from anymetal.ir import (
    I64,
    PTR,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    array,
    i64,
)
from anymetal.machine.layout import Wait, waits_for
from anymetal.machine.shadow import Access as Kind
from anymetal.passes.accesses import accesses_of
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.provenance import Provenance

_FLOATING = {
    *("fadd", "fsub", "fmul", "fdiv", "frem", "fneg", "fcmp", "fptrunc", "fpext"),
    *("fptosi", "fptoui", "sitofp", "uitofp"),
}
_FLOATING_CALLS = tuple(
    f"llvm.{name}"
    for name in ("fma", "fmuladd", "sqrt", "fabs", "floor", "ceil", "trunc", "rint", "min", "max")
)
_FREE = ("phi", "#dbg_value", "#dbg_declare", "#dbg_assign", "#dbg_label")
_NOT_EXECUTED = ("llvm.lifetime", "llvm.dbg", "llvm.assume", "llvm.experimental.noalias")
_PLACES = {
    "buffer": "device",
    "unknown": "device",  # a pointer out of an array of buffers, or one of several buffers
    "dynamic": "threadgroup",
    "static": "threadgroup",
}
_WAITS = {
    Wait.THREADGROUP_BARRIER: "barriers",
    Wait.SIMDGROUP_BARRIER: "simdgroup_barriers",
    Wait.COLLECTIVE: "collectives",
}

# What precedes a buffer's number; -1 stands for pointers into one of several buffers.
BUFFER = "buffer "

Costs = list[Counter[str]]
COUNTERS = "am_counters"


def count_blocks(module: Module) -> Costs:
    """Adds a counter to each block of the kernel; returns what one pass through each block costs.

    The counters, of 64 bits, are the module's variable COUNTERS. They are not atomic, so the kernel
    must run on one processor.
    """
    function = module.function(THREAD_MAIN)
    provenance = Provenance(function)
    costs = [_cost(block, provenance) for block in function.blocks]
    for number, block in enumerate(function.blocks):
        _add_counter(function, block, number)
    module.define_zeros(COUNTERS, array(len(costs), I64), align=8)
    return costs


def _add_counter(function: Function, block: Block, number: int) -> None:
    build = Builder(function.fresh)
    place = build.offset(Operand(PTR, f"@{COUNTERS}"), 8 * number)
    build.store(build.add(build.load(I64, place, align=8), i64(1)), place, align=8)
    first = next(i for i in block.instructions if i.opcode != "phi")
    block.insert_before(first, build.made)


def _cost(block: Block, provenance: Provenance) -> Counter[str]:
    cost: Counter[str] = Counter()
    for instruction in block.instructions:
        callee = instruction.callee or ""
        if (
            instruction.opcode == "phi"
            or instruction.opcode[:1] == "#"
            or callee.startswith(_NOT_EXECUTED)
        ):
            continue
        cost["instructions"] += 1
        if instruction.opcode in _FLOATING or callee.startswith(_FLOATING_CALLS):
            cost["floating_point"] += 1
        if callee == "am_suspend":
            cost[_WAITS[waits_for(instruction.operands[0].integer or 0)]] += 1
        _add_accesses(cost, instruction, provenance)
    return cost


def _add_accesses(cost: Counter[str], instruction: Instruction, provenance: Provenance) -> None:
    for access in accesses_of(instruction):
        root = provenance.root(access.pointer)
        place = _PLACES.get(root.origin)
        if place is None:
            continue
        size = access.size.integer or 0
        if place == "device":
            cost[f"{BUFFER}{root.number}"] += size
        if access.kind & Kind.ATOMIC:
            cost[f"{place}_atomics"] += 1
            continue
        verb, past = ("writes", "written") if access.kind & Kind.WRITE else ("reads", "read")
        cost[f"{place}_{verb}"] += 1
        cost[f"{place}_bytes_{past}"] += size
