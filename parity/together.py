"""Programs of a batch as machine code: one module and one run of clang for many kernels.

The judge asks what two programs compute, not how fast they are. So each runs as its front end left
it: threads become loops and coroutines as always, and clang generates code without optimising
again. What is found to differ is compiled once more in the ordinary way (mlx.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anymetal.engines.cpu import jit
from anymetal.engines.cpu.runtime import runtime
from anymetal.engines.cpu.threads.engine import ThreadExecutable, transform
from anymetal.engines.llvm import llvm
from anymetal.ir import Function, Module, parse
from anymetal.ir.native import opened
from anymetal.nouns import Program
from anymetal.passes.lower.coroutine import COROUTINE
from anymetal.passes.lower.machine import GROUP_MAIN


@dataclass(frozen=True)
class Numbered:
    """One kernel of the code: its functions have its number behind their names."""

    code: jit.LoadedCode
    number: int

    def address(self, symbol: str) -> int:
        return self.code.address(_numbered(symbol, self.number))


def _numbered(symbol: str, number: int) -> str:
    return f"{symbol}_{number}"


def simplified(ir: str) -> str:
    """A module with everything inlined and variables in registers, and no more."""
    with jit.LOCK, opened(ir) as module:
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.add_always_inliner_pass()
        manager.add_global_opt_pass()
        manager.add_global_dead_code_eliminate_pass()
        manager.add_sroa_pass()
        manager.add_sccp_pass()
        manager.add_instruction_combine_pass()
        manager.add_simplify_cfg_pass()
        manager.add_aggressive_dce_pass()
        jit.run_manager(manager, module)
        return str(module)


def compile_together(programs: Sequence[Program]) -> list[ThreadExecutable]:
    """Executables of these programs for the reference engine.

    Raises what a single one of them raises.
    """
    texts, notes = [], []
    for number, program in enumerate(programs):
        module = parse(program.ir)
        metadata, _ = transform(module, program)
        metadata["reason"] = ""
        _make_private(module, COROUTINE if metadata["coroutine"] else GROUP_MAIN, number)
        texts.append(str(module))
        notes.append(metadata)
    # Bfloats cost a pass over all text of their module.
    has_bfloats = ["bfloat" in text for text in texts]
    codes = {
        kind: _loaded([text for text, has in zip(texts, has_bfloats, strict=True) if has is kind])
        for kind in set(has_bfloats)
    }
    host = runtime()
    return [
        ThreadExecutable(b"", metadata, host, Numbered(codes[has_bfloats[number]], number))
        for number, metadata in enumerate(notes)
    ]


def _make_private(module: Module, entry: str, number: int) -> None:
    """Gives the entry its number; other functions are nobody else's, whatever they are called."""
    for function in module.functions:
        if function.name == entry:
            function.signature = replace(function.signature, name=_numbered(entry, number))
        else:
            _hide(function)


def _hide(function: Function) -> None:
    signature = function.signature
    convention = tuple(word for word in signature.words if word == "fastcc")
    attributes = tuple(one for one in signature.attributes if not one.startswith("comdat"))
    function.signature = replace(signature, words=("internal", *convention), attributes=attributes)


def _loaded(modules: Sequence[str]) -> jit.LoadedCode:
    return jit.LoadedCode(jit.quick_code(modules))
