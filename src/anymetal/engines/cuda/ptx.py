"""LLVM in this process: IR to optimised PTX."""

from __future__ import annotations

import functools

from anymetal.engines.cpu import jit
from anymetal.engines.cuda.target import ENTRY, PTX_VERSION, TRIPLE
from anymetal.engines.llvm import llvm


@functools.cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def ptx(ir: str, processor: str) -> str:
    """The PTX of a module whose one visible function is the kernel."""
    with jit.LOCK:
        _initialise()
        module = jit.read(ir)
        for function in module.functions:
            if not function.is_declaration and function.name != ENTRY:
                function.linkage = "internal"
        machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
            cpu=processor, features=f"+{PTX_VERSION}", opt=3
        )
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        builder = llvm.create_pass_builder(machine, options)
        jit.run_passes(builder.getModulePassManager(), module, builder)
        return str(machine.emit_assembly(module))
