"""How many additions, products, fused multiply-adds and so on a program has.

An operation on a vector counts for each of its components. Apple's compiler leaves loops as they
are that clang unrolls: programs that differ are compared again behind the same optimiser, which
unrolls what it was asked to and what is short.
"""

from __future__ import annotations

import re
from collections import Counter

from anymetal.engines.cpu import jit
from anymetal.engines.llvm import llvm
from anymetal.nouns import Program

_ARITHMETIC = re.compile(
    r"= (?:tail )?(f(?:add|sub|mul|div|neg)|call [^@]*@llvm\.fmuladd)(?:[^%@<]*<(\d+) x|\.v(\d+))?"
)
_WISHES = re.compile(r"llvm\.loop\.unroll\.(?:full|enable)")


def compared(apples: Program, ours: Program) -> str:
    """`equal`, or the counts of both."""
    if operations_of(apples.ir) == operations_of(ours.ir):
        return "equal"
    left, right = (operations_of(_settled(program.ir)) for program in (apples, ours))
    return "equal" if left == right else f"{dict(left)}, ours {dict(right)}"


def operations_of(ir: str) -> Counter[str]:
    found = Counter[str]()
    for word, *width in _ARITHMETIC.findall(ir):
        found["fmuladd" if "fmuladd" in word else word] += int("".join(width) or 1)
    return found


def _settled(ir: str) -> str:
    """The program after an optimiser that does more than clang and Apple's compiler have done."""
    with jit.LOCK:
        module = jit.read(ir)
        _unroll(module)
        # Wishes that cannot be granted would be complained of.
        module = jit.read(_WISHES.sub("parity.loop", str(module)))
        jit._run_pipeline(module, jit._target_machine(2), 2)
        return str(module)


def _unroll(module: llvm.ModuleRef) -> None:
    manager = jit._folding()
    manager.add_loop_simplify_pass()
    manager.add_lcssa_pass()
    manager.add_loop_rotate_pass()
    for _ in range(2):
        manager.add_instruction_combine_pass()
        manager.add_loop_unroll_pass()
        manager.add_simplify_cfg_pass()
    jit._run(manager, module)
