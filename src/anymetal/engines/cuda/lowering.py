"""From the IR of a kernel to what LLVM makes PTX of, and what is learnt about it on the way."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from anymetal.engines.cuda.bfloats import round_in_pairs, widen_in_integers
from anymetal.engines.cuda.block import Block, block_of
from anymetal.engines.cuda.matrices import has_products
from anymetal.engines.cuda.messages import BUFFER
from anymetal.engines.cuda.read_only import mark_read_only_loads
from anymetal.engines.cuda.target import AS_TILES, ENTRY, IS_USUAL, PLACE_OF_ASKED, PROMISE
from anymetal.engines.cuda.unroll import unroll_loops_over_arrays
from anymetal.engines.cuda.vectors import copy_whole_vectors
from anymetal.engines.cuda.watch import watch_loops
from anymetal.errors import LimitError, Unsuitable
from anymetal.ir import I8, Builder, Function, Instruction, Module, Operand, boolean, i32
from anymetal.nouns import MAX_GROUP_SIZE, Program
from anymetal.passes import run
from anymetal.passes.lower.arithmetic import define_integer_arithmetic
from anymetal.passes.lower.bfloat_rounding import round_in_hardware
from anymetal.passes.lower.powers import define_powers
from anymetal.passes.rewrite import rewrite

MAX_THREADGROUP_BYTES = 32 * 1024
_SHARED = re.compile(r"@_ZN9am_sharedILj\d+ELm(?P<size>\d+)E")


def lower(module: Module, program: Program, *, usual: bool) -> dict[str, Any]:
    """Answers the headers' questions, defines arithmetic as other engines do; returns the
    executable's metadata. `usual`: the code is for usual launches alone (anymetal/block.h)."""
    function = module.function(ENTRY)
    _refuse_calls(module)
    static_memory = sum(_shared_bytes(name) for name in module.globals)
    if static_memory > MAX_THREADGROUP_BYTES:
        raise LimitError(
            f"kernel '{program.name}' declares {static_memory} bytes of threadgroup memory; "
            f"the limit is {MAX_THREADGROUP_BYTES}"
        )
    block = block_of(program.arguments)
    metadata = {
        "name": program.name,
        "static_memory": static_memory,
        "used_buffers": sorted(_used_buffers(function, block)),
        "max_threads": min(program.entry.max_total_threads or MAX_GROUP_SIZE, MAX_GROUP_SIZE),
        "arguments": [asdict(argument) for argument in program.arguments],
        "uses_log": f"@{BUFFER}" in module.globals,
        "asked_bytes": _asked_bytes(function),
    }
    rewrite(function, lambda _, instruction: instruction.callee == PROMISE)
    # What threads ask for comes before all else in the memory that a launch sets aside.
    answers = {AS_TILES: boolean(has_products(function)), PLACE_OF_ASKED: i32(0)}
    _answer(module, {**answers, IS_USUAL: boolean(usual)})
    read_only = {
        argument.index
        for argument in program.arguments
        if argument.role == "buffer" and argument.index is not None and argument.is_const
    }
    copy_whole_vectors(function)
    _let_atomics_name_their_memory(function)
    mark_read_only_loads(module, function, block, read_only)
    unroll_loops_over_arrays(module, function)
    watch_loops(module, function, program.name)
    of_bfloats = (round_in_hardware, round_in_pairs, widen_in_integers)
    run(module, (*of_bfloats, define_integer_arithmetic, define_powers))
    return metadata


def _let_atomics_name_their_memory(function: Function) -> None:
    """Metal's atomics take volatile pointers, and clang makes volatile instructions of them. LLVM
    does not touch these: they would go to memory of any kind, on a way that is far longer than that
    to threadgroup memory. An atomic update happens once in any case."""
    for instruction in function.instructions():
        if instruction.opcode in ("atomicrmw", "cmpxchg") and instruction.is_volatile:
            instruction.is_volatile = False


def _refuse_calls(module: Module) -> None:
    """A recursive function is not inlined. Barriers and collectives in it would wait for lanes that
    are elsewhere, and so would a thread's place, which is the kernel's own."""
    for function in module.functions:
        if function.name == ENTRY:
            continue
        callees = (instruction.callee or "" for instruction in function.instructions())
        if any(callee.startswith(("llvm.nvvm.", "am_")) for callee in callees):
            raise Unsuitable(
                f"the function '{function.name}' uses barriers, collectives or its thread's place"
                " and could not be inlined (it is recursive or called through a pointer)"
            )


def _shared_bytes(name: str) -> int:
    match = _SHARED.match(name)
    return int(match["size"]) if match else 0


def _asked_bytes(function: Function) -> int:
    """Threadgroup memory beyond Metal's, for what threads ask for ahead (anymetal/ahead.h)."""
    calls = (one for one in function.instructions() if one.callee == PLACE_OF_ASKED)
    sizes = {call.operands[0].integer or 0 for call in calls}
    if len(sizes) > 1:
        raise Unsuitable(
            "it names several numbers of slots and threads in anymetal_ask and anymetal_take, of"
            f" {sorted(sizes)} bytes in all; they must be the same everywhere"
        )
    return max(sizes, default=0)


def _answer(module: Module, answers: dict[str, Operand]) -> None:
    def emit(build: Builder, instruction: Instruction) -> bool:
        answer = answers.get(instruction.callee or "")
        if answer is None:
            return False
        build.or_(answer, answer, name=str(instruction.result))
        return True

    for function in module.functions:
        rewrite(function, emit)


def _used_buffers(function: Function, block: Block) -> set[int]:
    """The buffers whose place in the block of arguments the kernel reads."""
    parameter = function.parameters[0].name
    used: set[int | None] = set()
    for instruction in function.instructions():
        if parameter not in instruction.text:
            continue
        if instruction.opcode == "getelementptr" and instruction.pointer.text == parameter:
            used.add(block.buffer_at(_offset(instruction)))
    return {index for index in used if index is not None}


def _offset(instruction: Instruction) -> int:
    """clang counts bytes from the start of a structure."""
    assert instruction.element is I8, instruction.text
    return instruction.operands[-1].integer or 0
