"""LLVM in this process: IR made ready for vectors or machine code, and object code loaded."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence

from anymetal.engines.apart import bounded
from anymetal.engines.cpu import generator
from anymetal.engines.llvm import llvm
from anymetal.ir import parse
from anymetal.ir.native import opened, run_passes
from anymetal.machine import processor
from anymetal.passes.lower.coroutine import COROUTINE
from anymetal.passes.lower.machine import THREAD_MAIN

# llvmlite's own lock covers single calls; a pass pipeline and its target machine need one of ours.
LOCK = threading.Lock()

# What the names of the functions begin with that LLVM makes of a coroutine.
_SPLIT = f"{COROUTINE}."


@functools.cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # the runtime changes stacks in assembly


def target_machine(level: int) -> llvm.TargetMachine:
    return _kept_target_machine(level, *processor.name_and_features())


@functools.cache
def _kept_target_machine(level: int, name: str, features: str) -> llvm.TargetMachine:
    return _new_target_machine(level, name, features)


def _new_target_machine(level: int, name: str, features: str) -> llvm.TargetMachine:
    _initialise()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=name, features=features, opt=level, jit=True)


def rounds_bfloats() -> bool:
    """Whether the processor has an instruction that rounds to bfloat, or LLVM needs none."""
    instructions = ("avx512bf16", "avxneconvert")
    return not processor.is_x86() or any(processor.has(name) for name in instructions)


@bounded
def inlined(ir: str) -> str:
    """A module with everything inlined that asks for it, variables in registers, and no more."""
    with LOCK, opened(ir) as module:
        manager = llvm.create_new_module_pass_manager()
        # Functions without their variables are a third as long to copy.
        manager.add_sroa_pass()
        manager.add_always_inliner_pass()
        for _ in range(2):
            manager.add_sroa_pass()
            manager.add_simplify_cfg_pass()
            manager.add_instruction_combine_pass()
        manager.add_global_dead_code_eliminate_pass()
        builder = llvm.create_pass_builder(
            target_machine(1), llvm.create_pipeline_tuning_options(speed_level=1)
        )
        run_passes(manager, module, builder)
        return str(module)


@bounded
def normalised(ir: str, *, combine: bool = False, unroll: bool = True) -> str:
    """A module with branches folded and loops in the one form that vectorisation reads.

    `combine`: also simplify instructions, so that what was put together and taken apart is gone.
    `unroll`: loops over a thread's arrays, so that these become registers.
    """
    with LOCK, opened(ir) as module:
        manager = folding()
        if combine:
            manager.add_instruction_combine_pass()
        run_manager(manager, module)
        if unroll and _has_variables(module.get_function(THREAD_MAIN)):
            run_pipeline(module, target_machine(2), 2)
        manager = llvm.create_new_module_pass_manager()
        manager.add_simplify_cfg_pass()
        manager.add_lower_switch_pass()
        manager.add_loop_simplify_pass()
        manager.add_lcssa_pass()
        manager.add_dead_code_elimination_pass()
        run_manager(manager, module)
        return str(module)


def _has_variables(function: llvm.ValueRef) -> bool:
    return any(i.opcode == "alloca" for block in function.blocks for i in block.instructions)


def folding() -> llvm.ModulePassManager:
    manager = llvm.create_new_module_pass_manager()
    manager.add_sccp_pass()
    manager.add_simplify_cfg_pass()
    manager.add_sroa_pass()
    return manager


def run_manager(manager: llvm.ModulePassManager, module: llvm.ModuleRef) -> None:
    builder = llvm.create_pass_builder(
        target_machine(1), llvm.create_pipeline_tuning_options(speed_level=1)
    )
    run_passes(manager, module, builder)


def object_code(
    ir: str, level: int = 3, linked: str | None = None, *, shared: bool = False
) -> bytes:
    """Optimises a module, coroutines included, and compiles it for the processor.

    `linked` is a second module whose functions the first one may call and inline. `shared`: for a
    shared library.
    """
    return generator.object_code(_split(ir, level, linked), level, shared=shared)


def vector_code(ir: str, *, shared: bool = False, is_long: bool = False) -> bytes:
    """Likewise for code that is written in vectors, and keeps its values in variables.

    `is_long`: they stay in memory. To look for registers through the whole of long code takes LLVM
    four times as long as everything else.
    """
    if is_long:
        return generator.object_code_as_it_is(ir, 1, shared=shared)
    return generator.object_code(ir, 1, shared=shared)


def quick_code(modules: Sequence[str]) -> bytes:
    """Several modules, coroutines included, compiled together and soon: nothing is optimised."""
    with LOCK, opened(modules[0], modules[1:]) as module:
        run_pipeline(module, target_machine(0), 0)
        run_manager(folding(), module)
        ir = str(module)
    return generator.object_code_as_it_is(ir)


@bounded
def _split(ir: str, level: int, linked: str | None) -> str:
    """A module and what it is linked with, coroutines in parts.

    They are split before anything is optimised: loop invariants moved across a suspend would have
    to be kept in every thread's frame (matmul 512^3: 384 bytes a frame, not 128).
    """
    with LOCK, opened(ir, () if linked is None else (linked,)) as module:
        run_pipeline(module, target_machine(0), 0)
        is_coroutine = _defines(module, f"{_SPLIT}resume")
        if is_coroutine:
            # Each part begins as a copy of the whole: what it cannot reach goes before it is read.
            run_manager(folding(), module)
        return _with_private_frames(module) if is_coroutine and level > 0 else str(module)


def _defines(module: llvm.ModuleRef, name: str) -> bool:
    try:
        module.get_function(name)
    except NameError:
        return False
    return True


def _with_private_frames(module: llvm.ModuleRef) -> str:
    """Nobody but the thread itself touches its frame while it runs, which LLVM cannot know.

    Told so, it keeps what a loop carries in registers instead of writing it to the frame each time.
    """
    parsed = parse(str(module))
    for function in parsed.functions:
        if function.name.startswith(_SPLIT):
            frame = function.parameters[0]
            frame.attributes = ("noalias", *frame.attributes)
    return str(parsed)


def run_pipeline(module: llvm.ModuleRef, machine: llvm.TargetMachine, level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    run_passes(builder.getModulePassManager(), module, builder)


class LoadedCode:
    """Object code linked into this process; it is unloaded when the object goes away."""

    def __init__(self, code: bytes) -> None:
        with LOCK:
            machine = _new_target_machine(0, *processor.name_and_features())
            # The machine becomes the engine's.
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        with LOCK:
            address = int(self._engine.get_function_address(symbol))
        if not address:
            raise KeyError(f"the loaded code has no symbol {symbol!r}")
        return address


def provide_symbol(name: str, address: int) -> None:
    """Lets code that is loaded later refer to `name`."""
    _initialise()
    llvm.add_symbol(name, address)
