"""From a kernel's IR to its vectorised form: normalise, take apart, write anew, tidy up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.ir import Instruction, Module
from anymetal.passes.lower.machine import (
    GROUP_MAIN,
    STOP,
    THREAD_MAIN,
    kept_attributes,
    parameters_of,
)
from anymetal.passes.simdgroup.kernel import read_kernel
from anymetal.passes.simdgroup.rules import POSITION, SIMD, GroupShape
from anymetal.passes.simdgroup.vectorise import Vectoriser

_WHAT = re.compile(r"\((i32 [^)]*?\d+)\)")


def replace_suspends(module: Module) -> None:
    """`am_suspend` returns whether to leave; vector code leaves only at barriers, its own way."""
    function = module.function(THREAD_MAIN)
    for block in function.blocks:
        changed: list[Instruction] = []
        for instruction in block.instructions:
            if instruction.callee == "am_suspend":
                what = _WHAT.search(instruction.text)
                assert what is not None, instruction.text
                changed.append(Instruction(f"call void @{STOP}({what.group(1)}) #900"))
                changed.append(Instruction(f"{instruction.result} = add i8 0, 0"))
            else:
                changed.append(instruction)
        block.instructions = changed
    module.parts.append(f"declare void @{STOP}(i32) #900")
    module.parts.append("attributes #900 = { convergent nomerge nounwind }")


_STEP = re.compile(r"^(%\S+) = getelementptr (?:inbounds |nuw |nusw )*i8, ptr (%\S+), i64 (\d+)")
_LONG_LOAD = re.compile(r"^(%\S+) = load i64, ptr (%[^\s,]+)")


def split_position_loads(module: Module) -> bool:
    """Reads x and y of a position apart, where clang reads both at once; whether there were any."""
    function = module.function(THREAD_MAIN)
    offsets = {parameters_of(function)[1]: 0}
    found = False
    for block in function.blocks:
        changed: list[Instruction] = []
        for instruction in block.instructions:
            step = _STEP.match(instruction.text)
            if step and step.group(2) in offsets:
                offsets[step.group(1)] = offsets[step.group(2)] + int(step.group(3))
            load = _LONG_LOAD.match(instruction.text)
            if load and POSITION <= offsets.get(load.group(2), 0) < SIMD:
                changed += _both_halves(load.group(1), load.group(2))
                found = True
            else:
                changed.append(instruction)
        block.instructions = changed
    return found


def _both_halves(result: str, pointer: str) -> list[Instruction]:
    name = f"%am.half{result[1:].strip(chr(34))}"
    return [
        Instruction(f"{name}.a = load i32, ptr {pointer}, align 4"),
        Instruction(f"{name}.p = getelementptr i8, ptr {pointer}, i64 4"),
        Instruction(f"{name}.b = load i32, ptr {name}.p, align 4"),
        Instruction(f"{name}.c = zext i32 {name}.a to i64"),
        Instruction(f"{name}.d = zext i32 {name}.b to i64"),
        Instruction(f"{name}.e = shl i64 {name}.d, 32"),
        Instruction(f"{result} = or disjoint i64 {name}.e, {name}.c"),
    ]


def drop_group_loop(module: Module) -> None:
    """The loop over single threads is not needed; the kernel must not be inlined into it."""
    module.remove(module.function(GROUP_MAIN))


@dataclass(frozen=True)
class Vectorised:
    """What came of it: whether simdgroups wait for each other."""

    has_barriers: bool


# Instructions: LLVM takes a second for about 5,000.
HEAVIEST, HEAVIEST_ON_DEMAND = 20_000, 60_000


def vectorise(module: Module, shape: GroupShape, heaviest: int = HEAVIEST) -> Vectorised:
    """Replaces the kernel by one that runs a whole simdgroup; raises NotVectorisable."""
    function = module.function(THREAD_MAIN)
    kernel = read_kernel(module, function)
    vectoriser = Vectoriser(kernel, shape, heaviest)
    body = vectoriser.body()
    parameters = ", ".join(f"ptr noalias {name}" for name in parameters_of(function))
    attributes = re.sub(
        r'"(?:min-legal-vector-width|prefer-vector-width)"="\d+" ?',
        "",
        " ".join(kept_attributes(module, function)),
    )
    header = f"define void @{THREAD_MAIN}({parameters}) nounwind {attributes} {{"
    index = module.parts.index(function)
    module.parts[index] = "\n".join([header, *body, "}"])
    for helper in vectoriser.functions:
        module.parts.append(helper.replace("ATTRIBUTES", attributes))
    if vectoriser.functions:
        row = "<16 x float>"
        module.declare(f"declare {row} @llvm.fma.v16f32({row}, {row}, {row})")
    for declaration in vectoriser.declarations:
        module.declare(declaration)
    if not any(isinstance(p, str) and p.startswith("!4000000") for p in module.parts):
        module.parts.append("!4000000 = !{}")
    return Vectorised(vectoriser.has_barriers)
