"""LLVM for this room: bitcode to text, modules linked, constructors evaluated."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

from anymetal.errors import MetallibError

_lock = threading.Lock()


def _binding() -> Any:
    import llvmlite.binding as llvm  # noqa: PLC0415  (not needed where everything is cached)

    return llvm


def disassembled(bitcode: bytes, kernel: str) -> str:
    """The text of a module in Apple's bitcode."""
    llvm = _binding()
    try:
        return str(llvm.parse_bitcode(bitcode, llvm.create_context()))
    except RuntimeError as error:
        raise MetallibError(f"kernel '{kernel}': LLVM cannot read its bitcode: {error}") from None


@functools.cache
def _machine() -> Any:
    llvm = _binding()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1)


def _builder() -> Any:
    llvm = _binding()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    # As clang at -O1: what follows unrolls and vectorises where it pays.
    options.loop_unrolling = False
    options.loop_vectorization = False
    options.slp_vectorization = False
    return llvm.create_pass_builder(_machine(), options)


def _run(manager: Any, module: Any, builder: Any) -> None:
    """Runs passes and frees them; llvmlite 0.50 forgets to."""
    manager.run(module, builder)
    _binding().newpassmanagers.NewPassManager._dispose(manager)
    manager.detach()


def linked(text: str, support: Iterable[str], *, optimise: bool, quickly: bool = False) -> str:
    """The module with what it needs; optimised, everything is in one function.

    `quickly`: with variables in registers and branches folded, and no more. It is a tenth of the
    work, for callers who do not ask how fast the code is.
    """
    llvm = _binding()
    with _lock:
        module = _linked(text.replace(_HINT, _HIDDEN), support)
        if optimise:
            builder = _builder()
            first = llvm.create_new_module_pass_manager()
            first.add_always_inliner_pass()
            first.add_global_opt_pass()
            first.add_global_dead_code_eliminate_pass()
            _run(first, module, builder)
            _run(_simple() if quickly else builder.getModulePassManager(), module, builder)
        return _with_hints(str(module))


def _simple() -> Any:
    manager = _binding().create_new_module_pass_manager()
    manager.add_sroa_pass()
    manager.add_sccp_pass()
    manager.add_instruction_combine_pass()
    manager.add_simplify_cfg_pass()
    manager.add_aggressive_dce_pass()
    return manager


# What an author says about unrolling is for later passes; told now, LLVM complains of loops that it
# was not to unroll.
_HINT, _HIDDEN = "llvm.loop.unroll.", "anymetal.loop.unroll."


def _with_hints(text: str) -> str:
    return text.replace(_HIDDEN, _HINT)


def evaluated(text: str, support: Iterable[str]) -> str:
    """A module whose static constructors have run; its variables stay."""
    llvm = _binding()
    with _lock:
        module = _linked(text, support)
        for variable in module.global_variables:
            if variable.linkage == llvm.Linkage.internal:
                variable.linkage = llvm.Linkage.external
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_global_opt_pass()
        _run(manager, module, _builder())
        return str(module)


def _linked(text: str, support: Iterable[str]) -> Any:
    llvm = _binding()
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(text, context)
        for other in support:
            module.link_in(llvm.parse_assembly(other, context))
    except RuntimeError as error:
        raise MetallibError(
            f"what was made of a kernel of a metallib is no IR: {str(error).strip()}\n"
            "This is a fault of anymetal; please report it with the kernel's name."
        ) from None
    return module
