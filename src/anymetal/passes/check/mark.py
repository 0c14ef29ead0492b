"""Marks in the author's code, before anything is inlined or simplified, what must be checked there.

A shift or a division that stands in one branch may be computed for both once branches are folded; a
call of a math function is gone once it is inlined. A mark is a call with a side effect, so that it
stays where the operation was; passes/check/instrument.py makes the check of it.
"""

from __future__ import annotations

from collections.abc import Iterable

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
)
from anymetal.passes.check.debug_info import DebugInfo
from anymetal.passes.check.padding import split_copies
from anymetal.passes.check.rows import Rows
from anymetal.passes.check.unset import LOCAL, keep_unset_variables
from anymetal.passes.lower.arithmetic import DIVISIONS, SHIFTS
from anymetal.passes.lower.machine import GROUP_MAIN, THREAD_MAIN
from anymetal.passes.rewrite import rewrite

DIVISOR, SHIFT, NUMBER = "am_mark_divisor", "am_mark_shift", "am_mark_number"
FENCE, INDEX = "am_mark_fence", "am_mark_index"
MARKS = (DIVISOR, SHIFT, NUMBER, FENCE, INDEX, LOCAL)

# Vector operators are our headers' code, but their arithmetic is the author's.
_VECTOR_HEADERS = ("anymetal/arithmetic.h", "anymetal/vector.h")
_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv", "frem"))
_FLOATS = (FLOAT, HALF, BFLOAT)
_FENCE_FUNCTION = "_ZN5metal19atomic_thread_fenceE"
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


def mark(module: Module, author_file: str, *, numbers: bool) -> None:
    """Adds the marks to every function of the author's."""
    info, layout = DebugInfo(module), module.layout()
    for function in module.functions:
        split_copies(function, layout)
        file = info.file(function)
        if file == author_file:
            keep_unset_variables(function)
            _mark_function(function, Rows(function, module), numbers=numbers)
        elif file.endswith(_VECTOR_HEADERS) and numbers:
            _mark_function(function, None, numbers=True)
    for name in MARKS:
        module.add_declaration(Signature(name, VOID, [], is_variadic=True))


def _mark_function(function: Function, rows: Rows | None, *, numbers: bool) -> None:
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
        if (instruction.callee or "").startswith(_FENCE_FUNCTION):
            _add_mark(build, instruction, FENCE, instruction.operands)
        build.made.append(instruction)
        if numbers and _yields_number(instruction):
            operands = (o for o in instruction.operands if o.is_name)
            same = [o for o in operands if o.type is instruction.type]
            _add_mark(build, instruction, NUMBER, [instruction.operand(), *same])
        return True

    rewrite(function, emit)


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
