"""LLVM in this process: IR to optimised PTX."""

from __future__ import annotations

import functools

from anymetal.engines.cpu import jit
from anymetal.engines.cuda.assembler_faults import avoid_assembler_faults
from anymetal.engines.cuda.banks import rows_share_banks, spread_over_banks
from anymetal.engines.cuda.barriers import ONLY_WAIT, settle_barriers
from anymetal.engines.cuda.bytes import take_bytes
from anymetal.engines.cuda.catch_up import catch_up
from anymetal.engines.cuda.copies import copy_by_themselves
from anymetal.engines.cuda.early import wait_at_the_start
from anymetal.engines.cuda.keeping import keep_what_is_read
from anymetal.engines.cuda.masks import count_lanes, wait_for_everyone
from anymetal.engines.cuda.matrices import CALLS, lower_matrices
from anymetal.engines.cuda.target import ENTRY, PTX_VERSION, TRIPLE
from anymetal.engines.cuda.together import HERE, name_all_lanes
from anymetal.engines.cuda.unaligned import (
    Places,
    align_variables,
    threadgroup_memory_is_aligned,
)
from anymetal.engines.llvm import llvm
from anymetal.ir import parse
from anymetal.ir.native import opened, run_passes


@functools.cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _unrolled(
    ir: str, kernel: str, machine: llvm.TargetMachine, *, usual: bool
) -> tuple[str, set[int]]:
    """Marked loops are unrolled first. A mark that is left goes: LLVM would complain of it. With
    it comes what `lower_matrices` returns."""
    manager = llvm.create_new_module_pass_manager()
    if usual:
        manager.add_sccp_pass()  # the branch at which lanes ended that are not there is gone
    manager.add_sroa_pass()
    manager.add_loop_rotate_pass()
    manager.add_loop_unroll_pass()
    if any(f"@{call}(" in ir for call in CALLS):
        # Matrices meet their instructions once the arrays that they stand in are registers.
        manager.add_sroa_pass()
        manager.add_instruction_combine_pass()
    with opened(ir) as module:
        run_passes(manager, module, llvm.create_pass_builder(machine, _options()))
        text = str(module)
    for mark in ("full", "enable"):
        text = text.replace(f'!"llvm.loop.unroll.{mark}"', '!"anymetal.loop"')
    return _with_lanes(text, kernel, usual=usual)


def _with_lanes(text: str, kernel: str, *, usual: bool) -> tuple[str, set[int]]:
    """What is better known once loops are unrolled: matrices, who takes part in collectives, and
    who comes to barriers."""
    has_matrices = any(f"@{call}(" in text for call in CALLS)
    has_lanes = has_matrices or f"@{HERE}(" in text
    if not has_lanes and f"@{ONLY_WAIT}(" not in text:
        return text, set()
    module = parse(text)
    function = module.function(ENTRY)
    distances = lower_matrices(module, function) if has_matrices else set()
    if has_lanes:
        count_lanes(module, function, catch_up(module, function))
        name_all_lanes(function, whole=usual)
        wait_for_everyone(module, function)
    settle_barriers(module, function, kernel)
    return str(module), distances


def _options() -> llvm.PipelineTuningOptions:
    return llvm.create_pipeline_tuning_options(speed_level=3)


def ptx(ir: str, kernel: str, processor: str, places: Places | None, *, usual: bool) -> str:
    """The PTX of a module whose one visible function is the kernel of that name; `places` says
    where buffers lie, None that all vectors are aligned. `usual`: for usual launches alone
    (anymetal/block.h)."""
    with jit.LOCK:
        _initialise()
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=processor, features=f"+{PTX_VERSION}", opt=3
        )
        unrolled, row_distances = _unrolled(ir, kernel, machine, usual=usual)
        with opened(unrolled) as module:
            for function in module.functions:
                if not function.is_declaration and function.name != ENTRY:
                    function.linkage = "internal"
            builder = llvm.create_pass_builder(machine, _options())
            run_passes(builder.getModulePassManager(), module, builder)
            text = copy_by_themselves(str(machine.emit_assembly(module)))
    text = avoid_assembler_faults(take_bytes(text))
    text = align_variables(text) if places else text
    if any(map(rows_share_banks, row_distances)) and (
        places is None or threadgroup_memory_is_aligned(text, places)
    ):
        text = spread_over_banks(text)
    return wait_at_the_start(keep_what_is_read(text), processor)
