"""Marks in the author's code, before anything is inlined or simplified, what must be checked there.

A shift or a division that stands in one branch may be computed for both once branches are folded; a
call of a math function is gone once it is inlined. A mark is a call with a side effect, so that it
stays where the operation was; passes/check/instrument.py makes the check of it.
"""

from __future__ import annotations

import re

from anymetal.ir import Function, Instruction, Module
from anymetal.passes.check.debug_info import DebugInfo
from anymetal.passes.lower.machine import GROUP_MAIN, THREAD_MAIN

DIVISOR, SHIFT, NUMBER = "am_mark_divisor", "am_mark_shift", "am_mark_number"
MARKS = (DIVISOR, SHIFT, NUMBER)

# Vector operators are our headers' code, but their arithmetic is the author's.
_VECTOR_HEADERS = ("anymetal/arithmetic.h", "anymetal/vector.h")
_INTEGER = re.compile(
    r"^\S+ = (sdiv|udiv|srem|urem|shl|lshr|ashr)(?: nuw| nsw| exact)* (i\d+) .+, (%[-\w.$]+)"
)
_ARITHMETIC = re.compile(
    r"^(\S+) = (?:fadd|fsub|fmul|fdiv|frem)(?: [a-z]+)* (float|half|bfloat) ([^,]+), ([^,]+)"
)
_CALL = re.compile(r"^(\S+) = (?:tail )?call [^@]*?\b(float|half|bfloat) @[^(]+\((.*)\)[^()]*$")
_OPERAND = re.compile(r"\b(float|half|bfloat) (?:noundef )?(%[-\w.$]+)")


def inline_everything(module: Module) -> None:
    """Functions the compiler made itself, such as default constructors, carry no wish of ours."""
    for name in (THREAD_MAIN, GROUP_MAIN):
        _keep_apart(module, module.function(name))
    for number, part in enumerate(module.parts):
        if not isinstance(part, str) or not part.startswith("attributes #"):
            continue
        # Groups without a target belong to calls.
        if '"target-cpu"' in part and not re.search(r"\b(?:noinline|alwaysinline|optnone)\b", part):
            module.parts[number] = part.replace("{ ", "{ alwaysinline ", 1)


def _keep_apart(module: Module, function: Function) -> None:
    """Gives a function attributes of its own, and one that keeps it from being inlined."""
    reference = re.search(r"#\d+", function.header[function.header.rindex(")") :])
    if reference is None:
        return
    number = f"#9{len(module.parts)}"
    group = " ".join(module.attribute_group(reference.group(0)))
    kept = "" if "noinline" in group else "noinline "
    module.parts.append(f"attributes {number} = {{ {kept}{group} }}")
    function.header = function.header.replace(f" {reference.group(0)} ", f" {number} ")


def mark(module: Module, author_file: str, *, numbers: bool) -> None:
    """Adds the marks to every function of the author's."""
    info = DebugInfo(module)
    for function in module.functions:
        files = info.files(function)
        vectors = any(file.endswith(_VECTOR_HEADERS) for file in files)
        if author_file in files:
            _mark_function(function, integers=True, numbers=numbers)
        elif vectors and numbers:
            _mark_function(function, integers=False, numbers=True)
    for name in MARKS:
        module.parts.append(f"declare void @{name}(...)")


def _mark_function(function: Function, *, integers: bool, numbers: bool) -> None:
    for block in function.blocks:
        marked: list[Instruction] = []
        for instruction in block.instructions:
            place = re.search(r", !dbg !\d+", instruction.text)
            where = place.group(0) if place else ""
            if integers:
                marked += _integer_mark(instruction, where)
            marked.append(instruction)
            if numbers:
                marked += _number_mark(instruction, where)
        block.instructions = marked


def _integer_mark(instruction: Instruction, where: str) -> list[Instruction]:
    match = _INTEGER.match(instruction.text)
    if match is None:
        return []
    opcode, kind, right = match.groups()
    name = SHIFT if opcode in ("shl", "lshr", "ashr") else DIVISOR
    return [Instruction(f"call void (...) @{name}({kind} {right}){where}")]


def _number_mark(instruction: Instruction, where: str) -> list[Instruction]:
    """The result first, then the operands of the same kind."""
    arithmetic = _ARITHMETIC.match(instruction.text)
    if arithmetic:
        result, kind, left, right = arithmetic.groups()
        operands = [value for value in (left, right) if value.startswith("%")]
    else:
        call = _CALL.match(instruction.text)
        if call is None or "@llvm." in instruction.text:
            return []
        result, kind = call.group(1), call.group(2)
        operands = [name for of, name in _OPERAND.findall(call.group(3)) if of == kind]
    values = ", ".join(f"{kind} {value}" for value in (result, *operands))
    return [Instruction(f"call void (...) @{NUMBER}({values}){where}")]
