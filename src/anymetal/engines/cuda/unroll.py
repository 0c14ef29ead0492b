"""Loops over a thread's own arrays are unrolled whole, so that the arrays become registers.

An array that is indexed by a loop's counter stays in local memory, which is device memory. LLVM
unrolls short loops by itself and leaves longer ones; these are marked for it, where their number of
rounds is known: LLVM complains aloud of a mark that it cannot follow.
"""

from __future__ import annotations

from anymetal.ir import Function, Module
from anymetal.ir.flow import graph_of, loop_aware_order

_POINTS_ON = ("addrspacecast", "bitcast", "freeze", "getelementptr", "phi", "select")
_UNROLL, _FIRST_LOOP = 1, 2  # metadata nodes


def unroll_loops_over_arrays(module: Module, function: Function) -> None:
    """Marks the innermost loops in which the place of an access to an array varies."""
    varying = _varying_accesses(function)
    if not varying:
        return
    how = module.metadata(_UNROLL, '!"llvm.loop.unroll.full"')
    graph = graph_of(function)
    _, loops = loop_aware_order(graph, function.blocks[0].label)
    for number, loop in enumerate(loops, _FIRST_LOOP):
        inner = any(other.blocks < loop.blocks for other in loops)
        latches = [label for label in loop.blocks if loop.header in graph[label]]
        if inner or not varying & loop.blocks or not _counts(function, latches):
            continue
        node = module.loop(number, how)
        for label in latches:
            function.block(label).terminator.attach("llvm.loop", node)


def _counts(function: Function, latches: list[str]) -> bool:
    """Whether a loop ends when something is compared with a constant, at its one end."""
    if len(latches) != 1:
        return False
    end = function.block(latches[0]).terminator
    if end.opcode != "br" or len(end.labels) != 2:
        return False
    condition = function.definitions().get(end.operands[0].text)
    return (
        condition is not None
        and condition.opcode == "icmp"
        and any(operand.integer is not None for operand in condition.operands)
    )


def _varying_accesses(function: Function) -> set[str]:
    """The blocks that compute a place in an array from something that is not constant."""
    arrays = {i.result for i in function.entry.instructions if i.opcode == "alloca"}
    if not arrays:
        return set()
    found: set[str] = set()
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode not in _POINTS_ON or instruction.result is None:
                continue
            if any(operand.text in arrays for operand in instruction.operands):
                arrays.add(instruction.result)
                if instruction.opcode == "getelementptr" and any(
                    operand.integer is None for operand in instruction.operands[1:]
                ):
                    found.add(block.label)
    return found
