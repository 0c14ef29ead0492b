"""Which math functions a kernel calls, and whether the fast or the precise ones.

Results cannot tell: where a machine has no faster exp, metal::fast::exp is the precise one. The
programs are read before anything is inlined, so that all calls still stand in them: Apple's of
`air.fast_exp.f32`, ours of `metal::fast::exp(float)`.
"""

from __future__ import annotations

import re

from anymetal.engines.cuda.target import ENTRY, target
from anymetal.ir import Function, parse
from anymetal.nouns import Program
from anymetal.passes.lower.machine import THREAD_MAIN

# Its headers have fast functions of their own; where they are the precise ones, nothing is seen.
TARGET = target("sm_90")

# Those that Metal has in a fast and in a precise form of its own here (anymetal/math/functions.h),
# and those that are one function under two names.
_TWO_FORMS = ("cos", "exp", "exp10", "exp2", "log", "log10", "log2", "rsqrt", "sin", "sqrt")
_ONE_FORM = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "cospi", "fmod"),
    *("nextafter", "pow", "powr", "sinh", "sinpi", "tan", "tanh", "tanpi"),
)
_MANGLED = re.compile(r"_ZN5metal(?P<form>7precise|4fast|)(?P<length>\d+)(?P<rest>[a-z]\w*)")
_AIR = re.compile(r"air\.(?P<form>fast_|)(?P<name>[a-z]\w*)\.")


def compared(apples: Program, ours: Program) -> str:
    """`equal`, or what only one of them calls."""
    left, right = functions_of(apples), functions_of(ours)
    return "equal" if left == right else f"{sorted(left - right)}, ours {sorted(right - left)}"


def functions_of(program: Program) -> set[str]:
    """The functions that code reaches from a kernel's first line, `fast::` where they are that."""
    defined = {function.name: function for function in parse(program.ir).functions}
    reached: set[str] = set()
    waiting = [THREAD_MAIN, ENTRY]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        if _math(name) is None and name in defined:
            waiting += _called(defined[name])
    return {known for name in reached if (known := _math(name)) is not None}


def _called(function: Function) -> list[str]:
    return [
        instruction.callee
        for block in function.blocks
        for instruction in block.instructions
        if instruction.callee
    ]


def _math(function: str) -> str | None:
    if found := _MANGLED.match(function):
        is_fast, name = found["form"] == "4fast", found["rest"][: int(found["length"])]
    elif found := _AIR.match(function):
        is_fast, name = found["form"] == "fast_", found["name"]
    else:
        return None
    if name in _TWO_FORMS:
        return f"fast::{name}" if is_fast else name
    return name if name in _ONE_FORM else None
