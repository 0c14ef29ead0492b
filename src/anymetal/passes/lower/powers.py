"""x * 2^n, which the headers' exponentials ask LLVM for (llvm.ldexp), in plain arithmetic.

LLVM would call the C library. Processors with AVX-512 have an instruction for vectors of it.
"""

from __future__ import annotations

from anymetal.ir import Builder, Instruction, Module, Operand, constant
from anymetal.passes.rewrite import rewrite

SCALED = "llvm.ldexp."
_BIAS, _MANTISSA = 127, 23  # of a float's exponent; bits


def define_powers(module: Module) -> None:
    """Rewrites the calls."""
    for function in module.functions:
        rewrite(function, _define)


def _define(build: Builder, call: Instruction) -> bool:
    if not (call.callee or "").startswith(SCALED):
        return False
    x, n = call.operands
    scaled(build, x, n, name=str(call.result))
    return True


def scaled(build: Builder, x: Operand, n: Operand, name: str = "") -> Operand:
    """For x in [0.5, 2) and n from -253 to 253.

    In two halves, so that results from the largest float down to the smallest denormal are rounded
    once.
    """
    first = build.binary("ashr", n, constant(n.type, 1))
    low, high = (_power(build, half, x) for half in (first, build.sub(n, first)))
    return build.binary("fmul", build.binary("fmul", x, low), high, name=name)


def _power(build: Builder, n: Operand, like: Operand) -> Operand:
    exponent = build.add(n, constant(n.type, _BIAS))
    return build.cast("bitcast", build.shl(exponent, constant(n.type, _MANTISSA)), like.type)
