"""Marks in the author's code, before anything is inlined or simplified, what must be checked there.

A shift or a division that stands in one branch may be computed for both once branches are folded; a
call of a math function is gone once it is inlined. A mark is a call with a side effect, so that it
stays where the operation was; passes/check/instrument.py makes the check of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    HALF,
    VOID,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    Signature,
    constant,
    i32,
)
from anymetal.machine.shadow import QUAD, Source
from anymetal.nouns import SIMDGROUP, AddedBytes
from anymetal.passes.check.by_value import copy_arguments
from anymetal.passes.check.debug_info import DebugInfo, Spot
from anymetal.passes.check.overflow import CHECKED, doubtful_indices
from anymetal.passes.check.padding import Padding, split_copies
from anymetal.passes.check.quotients import hide
from anymetal.passes.check.rows import Rows
from anymetal.passes.check.unset import LOCAL, keep_unset_variables
from anymetal.passes.lower.arithmetic import DIVISIONS, SHIFTS
from anymetal.passes.lower.machine import GROUP_MAIN, THREAD_MAIN
from anymetal.passes.rewrite import rewrite

DIVISOR, SHIFT, NUMBER = "am_mark_divisor", "am_mark_shift", "am_mark_number"
FENCE, INDEX = "am_mark_fence", "am_mark_index"
RETURN, SHUFFLE, OVERFLOW = "am_mark_return", "am_mark_shuffle", "am_mark_overflow"
MARKS = (DIVISOR, SHIFT, NUMBER, FENCE, INDEX, RETURN, SHUFFLE, OVERFLOW, LOCAL)

# Vector operators are our headers' code, but their arithmetic is the author's.
_VECTOR_HEADERS = ("anymetal/arithmetic.h", "anymetal/vector.h")
_ARRAY_HEADER = "metal_array"
_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem"))
_FLOATS = (FLOAT, HALF, BFLOAT)
_FENCE_FUNCTION = "_ZN5metal19atomic_thread_fenceE"
# Functions that read another lane's value, as C++ names them: `metal::simd_shuffle` and so on.
_SHUFFLES = {
    f"_ZN5metal{len(name)}{name}I": (from_, width)
    for group, width in (("simd", SIMDGROUP), ("quad", QUAD))
    for name, from_ in (
        (f"{group}_broadcast", Source.LANE),
        (f"{group}_shuffle", Source.LANE),
        (f"{group}_shuffle_xor", Source.XOR),
        (f"{group}_shuffle_down", Source.ABOVE),
        (f"{group}_shuffle_up", Source.BELOW),
    )
}
# `am_divide<int>` and its like, as C++ names them; the letters are of integers.
_COMPONENT_DIVISION = re.compile(r"_Z(?:9am_|12am_)(divide|remainder)I([chstijlmxya])ET_")
_UNSIGNED = "htjmy"
_INLINING = frozenset(("noinline", "alwaysinline", "optnone"))


def inline_everything(module: Module) -> None:
    """Functions the compiler made itself, such as default constructors, carry no wish of ours."""
    for name in (THREAD_MAIN, GROUP_MAIN):
        _keep_apart(module, module.function(name))
    for reference, attributes in module.attribute_groups().items():
        # Groups without a target belong to calls.
        is_functions = any(attribute.startswith('"target-cpu"') for attribute in attributes)
        if is_functions:
            inline = () if _INLINING.intersection(attributes) else ("alwaysinline",)
            # LLVM must not take an access at address 0 for code that is never reached.
            module.set_attribute_group(reference, (*inline, "null_pointer_is_valid", *attributes))


def _keep_apart(module: Module, function: Function) -> None:
    """Gives a function attributes of its own, and one that keeps it from being inlined."""
    signature = function.signature
    for reference in signature.groups[:1]:
        group = module.attribute_group(reference)
        own = module.new_attribute_group(dict.fromkeys(("noinline", *group)))
        signature.attributes = tuple(
            own if attribute == reference else attribute for attribute in signature.attributes
        )


def mark(
    module: Module,
    author_file: str,
    is_return: Callable[[Spot], bool],
    *,
    padding: Collection[AddedBytes] = (),
    numbers: bool,
) -> None:
    """Adds the marks to every function of the author's. `is_return` tells whether a return
    statement begins at a place."""
    info, layout = DebugInfo(module), module.layout()
    kernels = {call.callee for call in module.function(THREAD_MAIN).instructions() if call.callee}
    own = [function for function in module.functions if info.file(function) == author_file]
    overflowing = doubtful_indices(own)
    holes = Padding(layout, padding)
    copy_arguments(module)
    for function in module.functions:
        split_copies(function, module, holes, info)
        file = info.file(function)
        if file == author_file:
            keep_unset_variables(function, layout)
            _mark_function(function, Rows(function, module), overflowing, numbers=numbers)
            _hide_divisions(function, module)
            if function.name in kernels:
                _mark_returns(function, info, is_return)
        elif file.endswith(_ARRAY_HEADER):
            rows = Rows(function, module, of_array=True)
            _mark_function(function, rows, set(), numbers=False)
        elif file.endswith(_VECTOR_HEADERS):
            _hide_component_divisions(function, module)
            if numbers:
                _mark_function(function, None, set(), numbers=True)
    for name in MARKS:
        module.add_declaration(Signature(name, VOID, [], is_variadic=True))


def _mark_function(
    function: Function, rows: Rows | None, overflowing: Container[int], *, numbers: bool
) -> None:
    """Without `rows` the function is not the author's: only its numbers are."""

    def emit(build: Builder, instruction: Instruction) -> bool:
        if rows is not None and instruction.opcode == "getelementptr":
            row = rows.index(instruction)
            if row is not None:
                _add_mark(
                    build, instruction, INDEX, [row.index, constant(row.index.type, row.count)]
                )
        if rows is not None and _is_doubtful(instruction):
            name = SHIFT if instruction.opcode in SHIFTS else DIVISOR
            _add_mark(build, instruction, name, [instruction.operands[1]])
        if id(instruction) in overflowing:
            operation = i32(CHECKED[instruction.opcode])
            _add_mark(build, instruction, OVERFLOW, [operation, *instruction.operands])
        if (instruction.callee or "").startswith(_FENCE_FUNCTION):
            _add_mark(build, instruction, FENCE, instruction.operands)
        shuffle = _shuffle_of(instruction) if rows is not None else []
        if shuffle:
            _add_mark(build, instruction, SHUFFLE, shuffle)
        build.made.append(instruction)
        if numbers and _yields_number(instruction):
            operands = (o for o in instruction.operands if o.is_name)
            same = [o for o in operands if o.type is instruction.type]
            _add_mark(build, instruction, NUMBER, [instruction.operand(), *same])
        return True

    rewrite(function, emit)


def _hide_divisions(function: Function, module: Module) -> None:
    def emit(build: Builder, instruction: Instruction) -> bool:
        if instruction.opcode not in DIVISIONS or not _is_doubtful(instruction):
            return False
        hide(build, module, instruction)
        return True

    rewrite(function, emit)


def _hide_component_divisions(function: Function, module: Module) -> None:
    """A vector is divided by a function of ours a component: again a division, with its mark."""
    if not any("am_divide" in i.text or "am_remainder" in i.text for i in function.instructions()):
        return

    def emit(build: Builder, call: Instruction) -> bool:
        match = _COMPONENT_DIVISION.match(call.callee or "")
        if match is None:
            return False
        sign = "u" if match[2] in _UNSIGNED else "s"
        opcode = f"{sign}{'div' if match[1] == 'divide' else 'rem'}"
        _add_mark(build, call, DIVISOR, [call.operands[1]])
        hide(build, module, call, opcode)
        return True

    rewrite(function, emit)


def _mark_returns(function: Function, info: DebugInfo, is_return: Callable[[Spot], bool]) -> None:
    """Marks where the author's `return` ends a thread: at the branch that it becomes."""
    for block in function.blocks if len(function.blocks) > 1 else ():
        last = block.instructions[-1]
        spots = info.spots(last.metadata.get("dbg")) if last.opcode == "br" else []
        if spots and is_return(spots[0]):
            build = Builder(function.fresh)
            _add_mark(build, last, RETURN, [])
            block.instructions[-1:] = [*build.made, last]


def _shuffle_of(instruction: Instruction) -> list[Operand]:
    """How a call finds the lane it reads from, the width of its group, and the number it is given;
    nothing for other calls."""
    callee = instruction.callee or ""
    if not callee.startswith(("_ZN5metal1", "_ZN5metal2")):
        return []
    for prefix, (source, width) in _SHUFFLES.items():
        if callee.startswith(prefix):
            return [i32(source), i32(width), instruction.operands[-1]]
    return []


def _is_doubtful(instruction: Instruction) -> bool:
    """Whether the result of integer arithmetic depends on what the right operand is."""
    if instruction.opcode not in DIVISIONS | SHIFTS:
        return False
    return instruction.type.is_integer and instruction.operands[1].is_name


def _yields_number(instruction: Instruction) -> bool:
    """Whether a NaN or an infinity may come out: of arithmetic, or of a function of ours."""
    if instruction.opcode == "call":
        callee = instruction.callee
        if instruction.result is None or callee is None or callee.startswith("llvm."):
            return False
    elif instruction.opcode not in _ARITHMETIC:
        return False
    return instruction.type in _FLOATS


def _add_mark(
    build: Builder, instruction: Instruction, name: str, values: Iterable[Operand]
) -> None:
    """A call of a variadic function, at the place of the instruction."""
    build.call(VOID, name, list(values), function_type="(...)")
    if "dbg" in instruction.metadata:
        build.made[-1].attach("dbg", instruction.metadata["dbg"])
