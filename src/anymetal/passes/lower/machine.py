"""Puts the machine under a kernel: `am_self` becomes the thread's parameter, threadgroup variables
become offsets into the threadgroup's memory.

Everything the author wrote is inlined into one function by now; a primitive left in another
function (a recursive one, say) has no thread to refer to, and is refused.
"""

from __future__ import annotations

import re

from anymetal.errors import EngineError
from anymetal.ir import Function, Instruction, Module
from anymetal.machine.layout import Group, Thread, Wait
from anymetal.machine.table import offset_of

THREAD_MAIN = "am_thread_main"
GROUP_MAIN = "am_group_main"
PRIMITIVES = ("am_self", "am_suspend", "am_threadgroup_storage")
GROUP_OFFSET = offset_of(Thread, "group")
THREADGROUP_MEMORY_OFFSET = offset_of(Group, "threadgroup_memory")
_STORAGE_ARGUMENTS = re.compile(r"\(i32 [^)]*?(\d+), i64 [^)]*?(\d+), i64 [^)]*?(\d+)\)")
_PARAMETER = re.compile(r'(%(?:[-\w.$]+|"[^"]*"))(?=[,)])')


def refuse_primitives_outside(module: Module, kernel: str) -> None:
    """Raises when a function other than the kernel itself needs its thread."""
    for function in module.functions:
        if function.name == THREAD_MAIN:
            continue
        for primitive in PRIMITIVES:
            if any(True for _ in function.calls(primitive)):
                raise EngineError(
                    f"kernel '{kernel}': the function '{function.name}' uses barriers, collectives"
                    " or threadgroup variables and could not be inlined into the kernel (it is"
                    " recursive or called through a pointer); move them into the kernel or make"
                    " the call direct"
                )


def parameters_of(function: Function) -> list[str]:
    """Names of a function's parameters, with their percent signs."""
    signature = function.header[function.header.index("(", function.header.index("@")) :]
    depth = 0
    for position, character in enumerate(signature):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return _PARAMETER.findall(signature[: position + 1])
    raise ValueError(f"no parameter list in {function.header!r}")


def replace_self(function: Function) -> None:
    """Each call of am_self becomes the kernel's second parameter."""
    self_parameter = parameters_of(function)[1]
    for call in function.calls("am_self"):
        call.text = f"{call.result} = getelementptr i8, ptr {self_parameter}, i64 0"


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
    match = _STORAGE_ARGUMENTS.search(call.text)
    if match is None:
        raise EngineError(f"threadgroup variable of unknown size: {call.text}")
    slot, size, align = (int(text) for text in match.groups())
    return slot, size, align


def _replace_storage(function: Function, places: dict[int, tuple[int, int]]) -> None:
    for call in function.calls("am_threadgroup_storage"):
        offset = places[_storage(call)[0]][0]
        call.text = f"{call.result} = getelementptr i8, ptr %am.threadgroup, i64 {offset}"
    self_parameter = parameters_of(function)[1]
    entry = function.blocks[0].instructions
    first = next(i for i, instruction in enumerate(entry) if instruction.opcode != "alloca")
    entry[first:first] = [
        Instruction(
            f"%am.group.place = getelementptr i8, ptr {self_parameter}, i64 {GROUP_OFFSET}"
        ),
        Instruction("%am.group = load ptr, ptr %am.group.place"),
        Instruction(
            f"%am.memory.place = getelementptr i8, ptr %am.group, i64 {THREADGROUP_MEMORY_OFFSET}"
        ),
        Instruction("%am.threadgroup = load ptr, ptr %am.memory.place"),
    ]


AT_ONCE = "am_all_lanes_at_once"
TAKEN = "am_taken"
# What vector code has in the place of am_suspend, with the same argument.
STOP = "am_stop"
BARRIER = Wait.THREADGROUP_BARRIER
MATRIX_PARTS = ("am_matrix_first", "am_matrix_second")


def answer_at_once(module: Module, *, at_once: bool) -> None:
    """Tells the headers whether all lanes run at once; if not, the calls for that case go away."""
    for function in module.functions:
        if not at_once:
            for block in function.blocks:
                block.instructions = [i for i in block.instructions if i.callee != TAKEN]
        for instruction in function.instructions():
            callee = instruction.callee or ""
            if callee == AT_ONCE:
                word = "true" if at_once else "false"
                instruction.text = f"{instruction.result} = or i1 {word}, {word}"
            elif not at_once and any(name in callee for name in MATRIX_PARTS):
                kind = instruction.text.split(f" @{callee}(", 1)[0].split()[-1]
                nothing = f"{kind} zeroinitializer"
                instruction.text = f"{instruction.result} = select i1 true, {nothing}, {nothing}"


def kept_attributes(module: Module, function: Function) -> str:
    """Target and floating-point attributes of a function, without what the optimiser inferred.

    Inferred attributes (`memory(...)`, `willreturn`) describe the body before the passes changed
    it.
    """
    references = re.findall(r"#\d+", function.header[function.header.rindex(")") :])
    text = " ".join(a for reference in references for a in module.attribute_group(reference))
    return " ".join(re.findall(r'"[^"]+"(?:="[^"]*")?', text))


def debug_reference(function: Function) -> str:
    """The ` !dbg !n` of a function's header, or nothing."""
    match = re.search(r" !dbg !\d+", function.header)
    return match.group(0) if match else ""
