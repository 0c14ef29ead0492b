"""Local variables that may be read before they are set stay in memory, where reads are checked.

Everywhere else a variable becomes a register, and a read of nothing any value LLVM likes. Here its
address goes to a mark, and so it stays a variable until the checks are in place.
"""

from __future__ import annotations

from anymetal.ir import (
    PTR,
    VOID,
    Block,
    Builder,
    Float,
    Function,
    Instruction,
    Integer,
    Operand,
    Pointer,
)

LOCAL = "am_mark_local"
_LARGE = ("[", "{", "<", "%")  # how the types begin that are not scalars


def keep_unset_variables(function: Function) -> None:
    """Marks the variables of a function that some path reads before it sets them."""
    if not _candidates(function):
        return
    variables = _simple_variables(function)
    doubtful = _read_unset(function, variables) if variables else 0
    build = Builder(function.fresh)
    for name, bit in variables.items():
        if doubtful & bit:
            build.call(VOID, LOCAL, [Operand(PTR, name)], function_type="(...)")
    if build.made:
        _locate(function, build.made)
        function.at_entry(build.made)


def _candidates(function: Function) -> set[str]:
    """The scalar variables that are not set at once where they begin: mostly none.

    Looks at the text alone: taking every instruction apart would cost more than all that follows.
    """
    waiting = {
        str(alloca.result)
        for alloca in function.entry.instructions
        if alloca.opcode == "alloca" and not alloca.text.partition("alloca ")[2].startswith(_LARGE)
    }
    found: set[str] = set()
    for block in function.blocks:
        for instruction in block.instructions:
            opcode = instruction.opcode
            if opcode == "load" and (name := _pointer(instruction.text)) in waiting:
                found.add(name)
            elif opcode == "store":
                waiting.discard(_pointer(instruction.text))
            elif opcode == "call" and "@llvm.lifetime.start" in instruction.text:
                waiting.add(_pointer(instruction.text))
        found |= waiting
        waiting.clear()
    return found


def _pointer(text: str) -> str:
    """The address that a load, a store or a lifetime names last."""
    start = text.rfind("ptr ") + len("ptr ")
    return text[start:].partition(",")[0].partition(")")[0]


def _locate(function: Function, marks: list[Instruction]) -> None:
    """A call that is to be inlined needs a place in the source: any of the function's."""
    places = (i.metadata["dbg"] for i in function.instructions() if "dbg" in i.metadata)
    place = next(places, None)
    for mark in marks if place else ():
        mark.attach("dbg", str(place))


def _simple_variables(function: Function) -> dict[str, int]:
    """A bit for each scalar variable that is only read and written, and known to nobody else."""
    variables: dict[str, int] = {}
    for alloca in function.entry.instructions:
        if alloca.opcode == "alloca" and isinstance(alloca.element, Integer | Float | Pointer):
            variables[str(alloca.result)] = 1 << len(variables)
    for instruction in function.instructions() if variables else ():
        for name in instruction.names:
            if name in variables and not _is_plain_use(instruction, name):
                del variables[name]
    return variables


def _is_plain_use(instruction: Instruction, name: str) -> bool:
    if instruction.opcode == "load":
        return True
    if instruction.opcode == "store":
        return instruction.value.text != name
    return (instruction.callee or "").startswith("llvm.lifetime.")


def _read_unset(function: Function, variables: dict[str, int]) -> int:
    """The variables that are read where some path from their start has not set them."""
    everything = (1 << max(variables.values()).bit_length()) - 1
    is_set = {block.label: everything for block in function.blocks}
    is_set[function.entry.label] = 0
    waiting, doubtful = [function.entry], 0
    blocks = {block.label: block for block in function.blocks}
    seen: set[str] = set()
    while waiting:
        block = waiting.pop()
        seen.add(block.label)
        after, unset = _walk(block, is_set[block.label], variables)
        doubtful |= unset
        for label in block.successors:
            joined = is_set[label] & after
            if joined != is_set[label] or label not in seen:
                is_set[label] = joined
                waiting.append(blocks[label])
    return doubtful


def _walk(block: Block, is_set: int, variables: dict[str, int]) -> tuple[int, int]:
    """What is set at the end of a block, and what it reads unset."""
    unset = 0
    for instruction in block.instructions:
        if instruction.opcode == "load":
            unset |= variables.get(instruction.pointer.text, 0) & ~is_set
        elif instruction.opcode == "store":
            is_set |= variables.get(instruction.pointer.text, 0)
        elif (instruction.callee or "").startswith("llvm.lifetime.start"):
            is_set &= ~variables.get(instruction.operands[-1].text, 0)
    return is_set, unset
