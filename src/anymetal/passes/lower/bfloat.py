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


def has_absolute_values(ir: str) -> bool:
    """Whether a module's text names the function; most do not, and need not be read."""
    return any(_is_of_bfloats(rest.partition("(")[0]) for rest in ir.split(f"@{_FABS}")[1:])


def _is_of_bfloats(suffix: str) -> bool:
    return suffix.endswith("bf16")


def mask_absolute_values(module: Module) -> None:
    """Every such call becomes: to integers, clear the top bit, back to bfloat."""
    for function in module.functions:
        rewrite(function, _mask)


def _mask(build: Builder, call: Instruction) -> bool:
    callee = call.callee or ""
    if not callee.startswith(_FABS) or not _is_of_bfloats(callee):
        return False
    integers = call.type.with_scalar(I16)
    bits = build.cast("bitcast", call.operands[0], integers)
    clear = build.and_(bits, constant(integers, _ALL_BUT_THE_SIGN))
    build.cast("bitcast", clear, call.type, name=str(call.result))
    for made in build.made[-3:]:
        made.metadata = call.metadata
    return True
