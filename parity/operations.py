"""How many additions, products, fused multiply-adds and so on a program has, or carries out.

An operation on a vector counts for each of its components that anything comes of: optimisers put
two numbers into a vector, and use one of the results. Negations are not counted: they are exact,
and their number says how well an optimiser has shared them, and nothing else.

Apple's compiler leaves loops as they are that clang unrolls: programs that differ are compared
again behind the same optimiser, which unrolls what it was asked to and what is short. Those that
still differ are compared as they run (executed.py).
"""

from __future__ import annotations

import re
from collections import Counter

from anymetal.engines.cpu import jit
from anymetal.engines.llvm import llvm
from anymetal.ir import Block, Function, Instruction, Vector, parse
from anymetal.ir.native import opened
from anymetal.nouns import Program

_OPERATIONS = ("fadd", "fsub", "fmul", "fdiv")
FUSED = "fmuladd"
_INTRINSIC = f"llvm.{FUSED}."
_BY_COMPONENT = (*_OPERATIONS, "fneg", "fptrunc", "fpext", "select", "fcmp", "freeze")
_WISHES = re.compile(r"llvm\.loop\.unroll\.(?:full|enable)")


def compared(apples: Program, ours: Program) -> str:
    """`equal`, or the counts of both."""
    if operations_of(apples.ir) == operations_of(ours.ir):
        return "equal"
    left, right = (operations_of(_settled(program.ir)) for program in (apples, ours))
    return "equal" if left == right else different(left, right)


def different(left: Counter[str], right: Counter[str]) -> str:
    """What two counts say, in words."""
    return f"{dict(sorted(left.items()))}, ours {dict(sorted(right.items()))}"


def operations_of(ir: str) -> Counter[str]:
    """The operations in the text of all functions."""
    found = Counter[str]()
    for function in parse(ir).functions:
        components = Components(function)
        for block in function.blocks:
            found += components.operations(block)
    return found


class Components:
    """Which components of a function's vectors are used."""

    def __init__(self, function: Function) -> None:
        self._users = function.users()
        self._known: dict[str, frozenset[int]] = {}

    def operations(self, block: Block) -> Counter[str]:
        """How many operations one pass through a block is."""
        found = Counter[str]()
        for one in block.instructions:
            is_fused = (one.callee or "").startswith(_INTRINSIC)
            if is_fused or one.opcode in _OPERATIONS:
                count = len(self._used(one)) if isinstance(one.type, Vector) else 1
                found[FUSED if is_fused else one.opcode] += count
        return found

    def _used(self, one: Instruction) -> frozenset[int]:
        """The components of an instruction's vector that reach more than vectors like it."""
        assert isinstance(one.type, Vector)
        every = frozenset(range(one.type.count))
        name = str(one.result)
        if name not in self._known:
            self._known[name] = every  # of a vector that is made of itself
            found = (self._used_by(user, name, every) for user in self._users.get(name, ()))
            self._known[name] = frozenset[int]().union(*found)
        return self._known[name]

    def _used_by(self, user: Instruction, name: str, every: frozenset[int]) -> frozenset[int]:
        index = user.operands[-1].integer if user.operands else None
        if user.opcode == "extractelement" and index is not None:
            return frozenset([index])
        if user.opcode == "insertelement" and index is not None and user.operands[0].text == name:
            return self._used(user) - {index}
        if user.opcode == "shufflevector":
            return self._shuffled(user, name, len(every))
        by_component = user.opcode in _BY_COMPONENT or (user.callee or "").startswith(_INTRINSIC)
        return self._used(user) if by_component and isinstance(user.type, Vector) else every

    def _shuffled(self, user: Instruction, name: str, count: int) -> frozenset[int]:
        wanted = [user.numbers[component] for component in self._used(user)]
        starts = [count * at for at in (0, 1) if user.operands[at].text == name]
        return frozenset(
            number - start for number in wanted for start in starts if 0 <= number - start < count
        )


def _settled(ir: str) -> str:
    """The program after an optimiser that does more than clang and Apple's compiler have done."""
    with jit.LOCK:
        with opened(ir) as module:
            _unroll(module)
            # Wishes that cannot be granted would be complained of.
            text = _WISHES.sub("parity.loop", str(module))
        with opened(text) as module:
            jit.run_pipeline(module, jit.target_machine(2), 2)
            return str(module)


def _unroll(module: llvm.ModuleRef) -> None:
    manager = jit.folding()
    manager.add_loop_simplify_pass()
    manager.add_lcssa_pass()
    manager.add_loop_rotate_pass()
    for _ in range(2):
        manager.add_instruction_combine_pass()
        manager.add_loop_unroll_pass()
        manager.add_simplify_cfg_pass()
    jit.run_manager(manager, module)
