"""Arithmetic on bfloat in float, rounded by integer operations.

For x86 without instructions for bfloat LLVM calls a function for each number that is rounded, and
vectorises nothing around it. The integer operations give the same, bit by bit: the nearest, of two
the even one, NaN quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    I16,
    I32,
    Builder,
    Instruction,
    Module,
    Operand,
    constant,
    zero,
)
from anymetal.passes.rewrite import rewrite

_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv"))
_CASTS = frozenset(("fptrunc", "sitofp", "uitofp"))
_INTRINSICS = ("llvm.fma", "llvm.fmuladd", "llvm.sqrt")
_SUFFIX = "bf16"


def round_in_integers(module: Module) -> None:
    """Rewrites what yields a bfloat by rounding."""
    _rewrite_with(module, _round, _may_round)


def round_in_hardware(module: Module) -> None:
    """Rewrites arithmetic on bfloat: in float, then rounded by the processor's conversion. Its own
    arithmetic on bfloat, where it has any, rounds a fused multiply-add once and not twice."""
    _rewrite_with(module, _truncate, _may_round_twice)


def _rewrite_with(
    module: Module,
    round_: Callable[[Builder, Operand, Instruction], None],
    concerns: Callable[[Instruction], bool],
) -> None:
    def emit(build: Builder, instruction: Instruction) -> bool:
        if not concerns(instruction) or instruction.type.scalar is not BFLOAT:
            return False
        value = _in_float(module, build, instruction)
        if value is None:
            return False
        round_(build, value, instruction)
        return True

    for function in module.functions:
        rewrite(function, emit)


def _may_round(instruction: Instruction) -> bool:
    if instruction.opcode == "call":
        return (instruction.callee or "").startswith(_INTRINSICS)
    return instruction.opcode in _ARITHMETIC | _CASTS


def _may_round_twice(instruction: Instruction) -> bool:
    return instruction.opcode != "fptrunc" and _may_round(instruction)


def _truncate(build: Builder, value: Operand, instruction: Instruction) -> None:
    build.cast("fptrunc", value, instruction.type, name=str(instruction.result))


def _in_float(module: Module, build: Builder, instruction: Instruction) -> Operand | None:
    """Builds the same computation in float; None where there is nothing to round."""
    kind, opcode = instruction.type.with_scalar(FLOAT), instruction.opcode
    source = instruction.operands[0]
    if opcode == "fptrunc":
        return source if source.type is kind else None
    if opcode in _CASTS:
        return build.cast(opcode, source, kind, instruction.flags)
    widened = [build.cast("fpext", operand, kind) for operand in instruction.operands]
    if opcode in _ARITHMETIC:
        return build.binary(opcode, widened[0], widened[1], instruction.flags)
    callee = f"{str(instruction.callee).removesuffix(_SUFFIX)}f32"
    module.declare(callee, kind, [kind] * len(widened))
    return build.call(kind, callee, widened, flags=instruction.flags)


def _round(build: Builder, value: Operand, instruction: Instruction) -> None:
    words = value.type.with_scalar(I32)

    def number(value: int) -> Operand:
        return constant(words, value)

    bits = build.cast("bitcast", value, words)
    odd = build.and_(build.lshr(bits, number(16)), number(1))
    rounded = build.add(bits, build.add(odd, number(0x7FFF)))
    quiet = build.or_(bits, number(0x400000))
    nan = build.fcmp("uno", value, zero(value.type))
    chosen = build.select(nan, quiet, rounded)
    short = build.cast("trunc", build.lshr(chosen, number(16)), words.with_scalar(I16))
    build.cast("bitcast", short, instruction.type, name=str(instruction.result))
