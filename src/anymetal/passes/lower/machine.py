"""Lowers the primitives of the machine: `am_self` becomes the thread's parameter, threadgroup
variables become offsets into the threadgroup's memory.

Everything the author wrote is inlined into one function by now; a primitive left in another
function (a recursive one, say) has no thread to refer to, and is refused.
"""

from __future__ import annotations

from anymetal.errors import EngineError
from anymetal.ir import (
    PTR,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    Parameter,
    boolean,
    zero,
)
from anymetal.machine.layout import Group, Thread
from anymetal.machine.table import offset_of
from anymetal.passes.rewrite import rewrite

THREAD_MAIN = "am_thread_main"
GROUP_MAIN = "am_group_main"
PRIMITIVES = ("am_self", "am_suspend", "am_threadgroup_storage")
GROUP_OFFSET = offset_of(Thread, "group")
THREADGROUP_MEMORY_OFFSET = offset_of(Group, "threadgroup_memory")


def refuse_primitives_outside(module: Module, kernel: str) -> None:
    """Raises when a function other than the kernel itself needs its thread."""
    for function in module.functions:
        if function.name == THREAD_MAIN:
            continue
        if any(instruction.callee in PRIMITIVES for instruction in function.instructions()):
            raise EngineError(
                f"kernel '{kernel}': the function '{function.name}' uses barriers, collectives"
                " or threadgroup variables and could not be inlined into the kernel (it is"
                " recursive or called through a pointer); move them into the kernel or make"
                " the call direct"
            )


def self_of(function: Function) -> Operand:
    """The kernel's thread: its second parameter."""
    return function.parameters[1].operand()


def plain_parameters(function: Function) -> list[Parameter]:
    """The parameters without what the optimiser inferred of them."""
    return [Parameter(parameter.type, parameter.name) for parameter in function.parameters]


def replace_self(module: Module) -> None:
    """Each call of am_self becomes the kernel's second parameter."""
    function = module.function(THREAD_MAIN)

    def emit(build: Builder, call: Instruction) -> bool:
        if call.callee != "am_self":
            return False
        build.offset(self_of(function), 0, name=str(call.result))
        return True

    rewrite(function, emit)


def lay_out_threadgroup_memory(function: Function) -> dict[int, tuple[int, int]]:
    """Gives each threadgroup variable its place; returns {slot: (offset, size)}."""
    sizes: dict[int, tuple[int, int]] = {}
    for call in function.calls("am_threadgroup_storage"):
        slot, size, align = _storage(call)
        sizes[slot] = (size, align)
    places: dict[int, tuple[int, int]] = {}
    offset = 0
    for slot, (size, align) in sorted(sizes.items()):
        offset = -(-offset // align) * align
        places[slot] = (offset, size)
        offset += size
    if places:
        _replace_storage(function, places)
    return places


def _storage(call: Instruction) -> tuple[int, int, int]:
    """Slot, size and alignment of a threadgroup variable."""
    slot, size, align = (operand.integer for operand in call.operands)
    if slot is None or size is None or align is None:
        raise EngineError(f"threadgroup variable of unknown size: {call}")
    return slot, size, align


def _replace_storage(function: Function, places: dict[int, tuple[int, int]]) -> None:
    start = Builder(function.fresh)
    group = start.load(PTR, start.offset(self_of(function), GROUP_OFFSET))
    memory = start.load(PTR, start.offset(group, THREADGROUP_MEMORY_OFFSET))

    def emit(build: Builder, call: Instruction) -> bool:
        if call.callee != "am_threadgroup_storage":
            return False
        build.offset(memory, places[_storage(call)[0]][0], name=str(call.result))
        return True

    rewrite(function, emit)
    function.at_entry(start.made)


AT_ONCE = "am_all_lanes_at_once"
TAKEN = "am_taken"
# What vector code has in the place of am_suspend, with the same argument.
STOP = "am_stop"
MATRIX_PARTS = ("am_matrix_first", "am_matrix_second")


def answer_at_once(module: Module, *, at_once: bool) -> None:
    """Folds the headers' question whether all lanes run at once; if not, removes what only vector
    code needs."""

    def emit(build: Builder, instruction: Instruction) -> bool:
        callee = instruction.callee or ""
        if callee == AT_ONCE:
            answer = boolean(at_once)
            build.or_(answer, answer, name=str(instruction.result))
        elif at_once:
            return False
        elif any(name in callee for name in MATRIX_PARTS):
            nothing = zero(instruction.type)
            build.select(boolean(True), nothing, nothing, name=str(instruction.result))
        else:
            return callee == TAKEN
        return True

    for function in module.functions:
        rewrite(function, emit)


def kept_attributes(module: Module, function: Function) -> tuple[str, ...]:
    """Target and floating-point attributes of a function, without what the optimiser inferred.

    Inferred attributes (`memory(...)`, `willreturn`) describe the body before the passes changed
    it.
    """
    groups = (module.attribute_group(reference) for reference in function.signature.groups)
    return tuple(attribute for group in groups for attribute in group if attribute[:1] == '"')
