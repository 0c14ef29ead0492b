"""LLVM for this room: bitcode to text, modules linked, constructors evaluated."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from anymetal.errors import MetallibError
from anymetal.ir import native
from anymetal.ir.native import binding, opened, run_passes

_lock = threading.Lock()


def disassembled(bitcode: bytes, kernel: str) -> str:
    """The text of a module in Apple's bitcode."""
    try:
        return native.disassembled(bitcode)
    except RuntimeError as error:
        raise MetallibError(f"kernel '{kernel}': LLVM cannot read its bitcode: {error}") from None


@functools.cache
def _machine() -> Any:
    llvm = binding()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=1)


def _builder() -> Any:
    llvm = binding()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    # As clang at -O1: what follows unrolls and vectorises where it pays.
    options.loop_unrolling = False
    options.loop_vectorization = False
    options.slp_vectorization = False
    return llvm.create_pass_builder(_machine(), options)


def linked(text: str, support: Iterable[str], *, optimise: bool, quickly: bool = False) -> str:
    """The module with what it needs; optimised, everything is in one function.

    `quickly`: with variables in registers and branches folded, and no more. It is a tenth of the
    work, for callers who do not ask how fast the code is.
    """
    llvm = binding()
    with _lock, _linked(text.replace(_HINT, _HIDDEN), support) as module:
        if optimise:
            first = llvm.create_new_module_pass_manager()
            first.add_always_inliner_pass()
            first.add_global_opt_pass()
            first.add_global_dead_code_eliminate_pass()
            run_passes(first, module, _builder())
            builder = _builder()
            rest = _simple() if quickly else builder.getModulePassManager()
            run_passes(rest, module, builder)
        return _with_hints(str(module))


def _simple() -> Any:
    manager = binding().create_new_module_pass_manager()
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
    llvm = binding()
    with _lock, _linked(text, support) as module:
        for variable in module.global_variables:
            if variable.linkage == llvm.Linkage.internal:
                variable.linkage = llvm.Linkage.external
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_global_opt_pass()
        run_passes(manager, module, _builder())
        return str(module)


@contextlib.contextmanager
def _linked(text: str, support: Iterable[str]) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        try:
            module = stack.enter_context(opened(text, support))
        except RuntimeError as error:
            raise MetallibError(
                f"what was made of a kernel of a metallib is no IR: {str(error).strip()}\n"
                "This is a fault of anymetal; please report it with the kernel's name."
            ) from None
        yield module
