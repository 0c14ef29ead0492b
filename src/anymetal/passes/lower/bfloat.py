"""Bfloats as bits where LLVM 22's generator of x86 code goes wrong: last, behind the optimiser.

It fails an assertion when the bits of a bfloat are used beside those of its absolute value; the
optimiser makes llvm.fabs of any mask that clears a sign, and a float's may be taken for it. And it
selects between bfloats by way of float, where the processor rounds back: denormals become 0 and
signalling NaNs quiet.
"""

from __future__ import annotations

import re

from anymetal.ir import BFLOAT, FLOAT, I16, I32, Builder, Instruction, Module, constant
from anymetal.passes.rewrite import rewrite

_FABS = "llvm.fabs."
_SELECTED = re.compile(r" = select [^,\n]*, (?:bfloat|<\d+ x bfloat>) ")
_TAKEN_APART = re.compile(r" = bitcast bfloat %")
_ALL_BUT_THE_SIGN = 0x7FFF


def needs_bits(ir: str) -> bool:
    """Whether a module's text has what is done on bits here."""
    found = _SELECTED.search(ir) or _TAKEN_APART.search(ir)
    return found is not None or (_FABS in ir and "bf16(" in ir)


def do_on_bits(module: Module) -> None:
    """Absolute values: to integers, clear the top bit, back to bfloat. Selects: of integers. The
    bits of one bfloat: the upper half of a float's."""
    for function in module.functions:
        rewrite(function, _rewritten)


def _rewritten(build: Builder, one: Instruction) -> bool:
    return _mask(build, one) or _select(build, one) or _take_apart(build, one)


def _take_apart(build: Builder, cast: Instruction) -> bool:
    if cast.opcode != "bitcast" or cast.operands[0].type is not BFLOAT or cast.type is not I16:
        return False
    bits = build.cast("bitcast", build.cast("fpext", cast.operands[0], FLOAT), I32)
    build.cast("trunc", build.lshr(bits, constant(I32, 16)), I16, name=str(cast.result))
    return True


def _select(build: Builder, select: Instruction) -> bool:
    if select.opcode != "select" or select.type.scalar is not BFLOAT:
        return False
    condition, *values = select.operands
    integers = select.type.with_scalar(I16)
    bits = [build.cast("bitcast", value, integers) for value in values]
    chosen = build.select(condition, bits[0], bits[1])
    build.cast("bitcast", chosen, select.type, name=str(select.result))
    return True


def _mask(build: Builder, call: Instruction) -> bool:
    callee = call.callee or ""
    if not callee.startswith(_FABS) or not callee.endswith("bf16"):
        return False
    integers = call.type.with_scalar(I16)
    bits = build.cast("bitcast", call.operands[0], integers)
    clear = build.and_(bits, constant(integers, _ALL_BUT_THE_SIGN))
    build.cast("bitcast", clear, call.type, name=str(call.result))
    for made in build.made[-3:]:
        made.metadata = call.metadata
    return True
