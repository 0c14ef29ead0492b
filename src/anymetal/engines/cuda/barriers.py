"""Barriers to which a part of a simdgroup's lanes may come.

Each thread counts at a barrier here. Lanes that pass it by, and wait behind it in a collective for
those that stand at it, would wait for ever, and so would all others. Apple's GPUs let such kernels
run, and some rely on it: MLX's gemv_t has a barrier in a loop that a part of its lanes enters.

- A barrier that puts no memory in order is left out where lanes may be apart. No program can tell.
- At others lanes that come alone wait for the rest of their simdgroup, and look at the clock. Where
  the rest does not come, the kernel fails as a loop without end does (watch.py).
"""

from __future__ import annotations

from pathlib import Path

from anymetal.engines.cuda.together import Lanes, waits_for_lanes
from anymetal.engines.cuda.watch import declare_clock, text_constant
from anymetal.ir import I32, VOID, Builder, Function, Instruction, Module, Operand, i32

ONLY_WAIT = "am_only_wait"  # a barrier that puts nothing in order, as the headers say it
_BARRIER = "llvm.nvvm.barrier.cta.sync.all"
_WARP_BARRIER = "llvm.nvvm.bar.warp.sync"
_CODE = Path(__file__).parent / "gather.ll"
_BEGIN, _GATHER, _END = "am_gather_begin", "am_gather", "am_gather_end"


def settle_barriers(module: Module, function: Function, kernel: str) -> None:
    """Rewrites the barriers at which lanes may be apart, and those that only wait."""
    barriers = [block for block in function.blocks if any(map(_waits, block.instructions))]
    if not barriers:
        return
    apart = Lanes(function).apart
    for block in barriers:
        block.instructions = [
            i for i in block.instructions if i.callee != ONLY_WAIT or block.label not in apart
        ]
    doubtful = any(_waits(i) for b in barriers if b.label in apart for i in b.instructions)
    # Where no lane waits for others, those that are elsewhere end, or come to another barrier.
    gathers = doubtful and any(map(waits_for_lanes, function.instructions()))
    for block in barriers:
        named = (_GATHER,) if gathers and block.label in apart else (_BARRIER, i32(0))
        block.instructions = [
            _call(function, *named) if _waits(i) else i for i in block.instructions
        ]
    module.remove_declarations((ONLY_WAIT,))
    module.declare(_BARRIER, VOID, [I32])
    if gathers:
        _define(module, function, kernel)


def _waits(instruction: Instruction) -> bool:
    return instruction.callee in (ONLY_WAIT, _BARRIER)


def _define(module: Module, function: Function, kernel: str) -> None:
    function.at_entry([_call(function, _BEGIN)])
    for block in function.blocks:
        if block.terminator.opcode == "ret":
            block.insert_before(block.terminator, [_call(function, _END)])
    declare_clock(module, kernel)
    module.declare("llvm.nvvm.activemask", I32)
    module.declare("llvm.nvvm.read.ptx.sreg.tid.x", I32)
    module.declare(_WARP_BARRIER, VOID, [I32])
    text = f"kernel '{kernel}': not all threads of a simdgroup come to a barrier"
    module.parts += [text_constant("am_gather_text", text), _CODE.read_text()]


def _call(function: Function, callee: str, *operands: Operand) -> Instruction:
    build = Builder(function.fresh)
    build.call(VOID, callee, operands)
    return build.made[0]
