"""Counts what a kernel does: each block adds one to its own counter, and has a known cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from anymetal.ir import Block, Instruction, Module
from anymetal.machine.shadow import Access as Kind
from anymetal.passes.accesses import accesses_of
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.provenance import Provenance

_FLOATING = re.compile(
    r"(?:fadd|fsub|fmul|fdiv|frem|fneg|fcmp|fptrunc|fpext|fptosi|fptoui|sitofp|uitofp)"
)
_FLOATING_CALL = re.compile(r"llvm\.(?:fma|fmuladd|sqrt|fabs|floor|ceil|trunc|rint|min|max)")
_NOT_EXECUTED = re.compile(r"llvm\.(?:lifetime|dbg|assume|experimental\.noalias)")
_WAIT = re.compile(r"@am_suspend\(i32 [^)\d]*(\d+)\)")
_PLACES = {
    "buffer": "device",
    "unknown": "device",  # a pointer out of an array of buffers, or one of several buffers
    "dynamic": "threadgroup",
    "static": "threadgroup",
}
_WAITS = {1: "barriers", 2: "simdgroup_barriers", 3: "collectives"}

# What precedes a buffer's number; -1 stands for pointers into one of several buffers.
BUFFER = "buffer "

Costs = list[Counter[str]]


def count_blocks(module: Module, reserve: Callable[[int], int]) -> Costs:
    """Adds a counter to each block of the kernel; returns what one pass through each block costs.

    `reserve(n)` gives the address of n counters of 64 bits. They are not atomic, so the kernel must
    run on one processor.
    """
    function = module.function(THREAD_MAIN)
    provenance = Provenance(function)
    costs = [_cost(block, provenance) for block in function.blocks]
    start = reserve(len(costs))
    for number, block in enumerate(function.blocks):
        _add_counter(block, number, start + 8 * number)
    return costs


def _add_counter(block: Block, number: int, address: int) -> None:
    place = f"ptr inttoptr (i64 {address} to ptr), align 8"
    first = next(i for i, one in enumerate(block.instructions) if one.opcode != "phi")
    block.instructions[first:first] = [
        Instruction(f'%"am.count.{number}" = load i64, {place}'),
        Instruction(f'%"am.counted.{number}" = add i64 %"am.count.{number}", 1'),
        Instruction(f'store i64 %"am.counted.{number}", {place}'),
    ]


def _cost(block: Block, provenance: Provenance) -> Counter[str]:
    cost: Counter[str] = Counter()
    for instruction in block.instructions:
        callee = instruction.callee or ""
        if instruction.opcode in ("phi", "") or _NOT_EXECUTED.match(callee):
            continue
        cost["instructions"] += 1
        if _FLOATING.fullmatch(instruction.opcode) or _FLOATING_CALL.match(callee):
            cost["floating_point"] += 1
        wait = _WAIT.search(instruction.text)
        if wait:
            cost[_WAITS.get(int(wait.group(1)) & 15, "collectives")] += 1
        _add_accesses(cost, instruction, provenance)
    return cost


def _add_accesses(cost: Counter[str], instruction: Instruction, provenance: Provenance) -> None:
    for access in accesses_of(instruction):
        root = provenance.root(access.pointer)
        place = _PLACES.get(root.origin)
        if place is None:
            continue
        size = int(access.size) if access.size.isdigit() else 0
        if place == "device":
            cost[f"{BUFFER}{root.number}"] += size
        if access.kind & Kind.ATOMIC:
            cost[f"{place}_atomics"] += 1
            continue
        verb, past = ("writes", "written") if access.kind & Kind.WRITE else ("reads", "read")
        cost[f"{place}_{verb}"] += 1
        cost[f"{place}_bytes_{past}"] += size
