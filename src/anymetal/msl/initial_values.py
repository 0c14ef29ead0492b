"""Threadgroup variables that begin with a value: code that stores it before the kernel starts.

Metal initialises them statically: where the declaration stands, no thread does anything. The entry
function asks for all values at once; what is stored is found in the constants of the module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.ir import (
    PTR,
    VOID,
    Builder,
    Function,
    Global,
    Module,
    Operand,
    boolean,
    i64,
)
from anymetal.msl.threadgroup import INITIAL

_PLACE, _MARK, _STORAGE = "am_place_initial_values", "am_initial_value", "am_threadgroup_storage"
_COPY = "llvm.memcpy.p0.p0.i64"
_CONSTANT = re.compile(rf'@"?\w*?{INITIAL}(\d+)"?')
# Where a machine has memory of its own for them, each variable is one of its globals:
# am_shared<slot, size, alignment>::bytes.
_SHARED = re.compile(r"@_ZN9am_sharedILj(\d+)ELm(\d+)ELm\d+EE5bytesE")


@dataclass(frozen=True)
class Variable:
    """A threadgroup variable: its bytes, and what its storage is asked for with or where it is."""

    size: int
    question: tuple[Operand, ...]
    place: str = ""


def place_initial_values(module: Module) -> None:
    """Puts the stores in the place of the call that asks for them."""
    calls = [*module.calls(_PLACE), *module.calls(_MARK)]
    if not calls:
        return
    variables = _variables(module) | _shared(module)
    constants = {
        int(found[1]): one
        for one in module.globals.values()
        if (found := _CONSTANT.fullmatch(one.name))
    }
    for function in module.functions:
        if any(True for name in (_PLACE, _MARK) for _ in function.calls(name)):
            _rewrite(function, module, variables, constants)
    module.parts = [part for part in module.parts if not _declares(part)]


def _declares(part: str | Function) -> bool:
    return isinstance(part, str) and part.startswith("declare ") and f"@{_PLACE}(" in part


def _variables(module: Module) -> dict[int, Variable]:
    """The variables whose storage is asked for, by slot."""
    found: dict[int, Variable] = {}
    for call in module.calls(_STORAGE):
        slot, size = (operand.integer for operand in call.operands[:2])
        if slot is not None and size is not None:
            found[slot] = Variable(size, call.operands)
    return found


def _shared(module: Module) -> dict[int, Variable]:
    """The variables that are globals, by slot."""
    found = [(one, match) for one in module.globals if (match := _SHARED.fullmatch(one))]
    return {
        int(match[1]): Variable(
            int(match[2]), (), f"addrspacecast (ptr addrspace(3) {name} to ptr)"
        )
        for name, match in found
    }


def _rewrite(
    function: Function,
    module: Module,
    variables: dict[int, Variable],
    constants: dict[int, Global],
) -> None:
    for block in function.blocks:
        build = Builder(function.fresh)
        for instruction in block.instructions:
            if instruction.callee == _PLACE:
                into = Builder(function.fresh, metadata=instruction.metadata, into=build.made)
                _store(into, module, variables, constants)
            elif instruction.callee != _MARK:
                build.made.append(instruction)
        block.instructions = build.made


def _store(
    build: Builder,
    module: Module,
    variables: dict[int, Variable],
    constants: dict[int, Global],
) -> None:
    for slot, one in sorted(constants.items()):
        if slot not in variables:  # nothing of the kernel that is left uses it
            continue
        variable = variables[slot]
        if variable.place:
            storage = Operand(PTR, variable.place)
        else:
            storage = build.call(PTR, _STORAGE, variable.question)
        operands = (storage, Operand(PTR, one.name), i64(variable.size), boolean(False))
        module.declare(_COPY, VOID, [operand.type for operand in operands])
        build.call(VOID, _COPY, operands)
