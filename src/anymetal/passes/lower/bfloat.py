"""llvm.fabs on bfloat as a bit mask.

LLVM 22's generator of x86 code fails an assertion when the bits of a bfloat are used beside those
of its absolute value. The optimiser makes llvm.fabs of any mask that clears a sign, so this comes
last.
"""

from __future__ import annotations

from anymetal.ir import I16, Builder, Instruction, Module, constant
from anymetal.passes.rewrite import rewrite

_FABS = "llvm.fabs."
_ALL_BUT_THE_SIGN = 0x7FFF


def is_absolute_value(function: str) -> bool:
    """Whether the function of this name takes absolute values of bfloats."""
    return function.startswith(_FABS) and function.endswith("bf16")


def mask_absolute_values(module: Module) -> None:
    """Every such call becomes: to integers, clear the top bit, back to bfloat."""
    for function in module.functions:
        rewrite(function, _mask)


def _mask(build: Builder, call: Instruction) -> bool:
    if not is_absolute_value(call.callee or ""):
        return False
    integers = call.type.with_scalar(I16)
    bits = build.cast("bitcast", call.operands[0], integers)
    clear = build.and_(bits, constant(integers, _ALL_BUT_THE_SIGN))
    build.cast("bitcast", clear, call.type, name=str(call.result))
    for made in build.made[-3:]:
        made.metadata = call.metadata
    return True
