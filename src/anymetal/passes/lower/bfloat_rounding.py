"""Arithmetic on bfloat in float, rounded by integer operations.

For x86 without instructions for bfloat LLVM calls a function for each number that is rounded, and
vectorises nothing around it. The integer operations give the same, bit by bit: the nearest, of two
the even one, NaN quiet.
"""

from __future__ import annotations

import re

from anymetal.ir import Instruction, Module
from anymetal.passes.operands import (
    Operand,
    Parsed,
    UnknownInstruction,
    read_instruction,
    split_metadata,
)

_ARITHMETIC = frozenset(("fadd", "fsub", "fmul", "fdiv"))
_FROM_INTEGERS = frozenset(("sitofp", "uitofp"))
_INTRINSIC = re.compile(r"(llvm\.(?:fma|fmuladd|sqrt)\.(?:v\d+)?)bf16$")


def round_in_integers(module: Module) -> None:
    """Rewrites what yields a bfloat by rounding."""
    for function in module.functions:
        for number, block in enumerate(function.blocks):
            rewritten: list[Instruction] = []
            for instruction in block.instructions:
                name = f"%am.round{number}.{len(rewritten)}"
                rewritten += _rewritten(module, instruction, name)
            block.instructions = rewritten


def _rewritten(module: Module, instruction: Instruction, name: str) -> list[Instruction]:
    if "bfloat" not in instruction.text or instruction.result is None:
        return [instruction]
    try:
        parsed = read_instruction(split_metadata(instruction.text)[0])
    except UnknownInstruction:
        return [instruction]
    if not parsed.kind.endswith(("bfloat", "bfloat>")):
        return [instruction]
    lines = _Lines(name)
    value = _in_float(module, parsed, lines)
    if value is None:
        return [instruction]
    lines.round(value, parsed)
    return [Instruction(line) for line in lines.written]


def _in_float(module: Module, parsed: Parsed, lines: _Lines) -> str | None:
    """Writes the same computation in float; None where there is nothing to round."""
    kind = _as_float(parsed.kind)
    flags = f"{parsed.flags} " if parsed.flags else ""
    if parsed.opcode == "fptrunc":
        return parsed.operands[0].text if parsed.operands[0].kind == kind else None
    if parsed.opcode in _FROM_INTEGERS:
        source = parsed.operands[0]
        return lines.op(f"{parsed.opcode} {flags}{source.kind} {source.text} to {kind}")
    if parsed.opcode in _ARITHMETIC:
        left, right = (lines.widened(operand) for operand in parsed.operands)
        return lines.op(f"{parsed.opcode} {flags}{kind} {left}, {right}")
    intrinsic = _INTRINSIC.match(parsed.callee) if parsed.opcode == "call" else None
    if intrinsic is None:
        return None
    callee = f"@{intrinsic.group(1)}f32"
    arguments = ", ".join(f"{kind} {lines.widened(operand)}" for operand in parsed.operands)
    parameters = ", ".join([kind] * len(parsed.operands))
    module.declare(f"declare {kind} {callee}({parameters})")
    return lines.op(f"call {flags}{kind} {callee}({arguments})")


def _as_float(kind: str) -> str:
    return kind.replace("bfloat", "float")


class _Lines:
    """Instructions with names that begin alike."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.written: list[str] = []

    def op(self, text: str) -> str:
        result = f"{self._name}.{len(self.written)}"
        self.written.append(f"{result} = {text}")
        return result

    def widened(self, operand: Operand) -> str:
        return self.op(f"fpext {operand.kind} {operand.text} to {_as_float(operand.kind)}")

    def round(self, value: str, parsed: Parsed) -> None:
        kind = parsed.kind
        real, word, short, truth = (
            kind.replace("bfloat", other) for other in ("float", "i32", "i16", "i1")
        )

        def number(value: int) -> str:
            return f"splat (i32 {value})" if kind.startswith("<") else str(value)

        bits = self.op(f"bitcast {real} {value} to {word}")
        upper = self.op(f"lshr {word} {bits}, {number(16)}")
        odd = self.op(f"and {word} {upper}, {number(1)}")
        added = self.op(f"add {word} {odd}, {number(0x7FFF)}")
        rounded = self.op(f"add {word} {bits}, {added}")
        quiet = self.op(f"or {word} {bits}, {number(0x400000)}")
        zero = "zeroinitializer" if kind.startswith("<") else "0.000000e+00"
        nan = self.op(f"fcmp uno {real} {value}, {zero}")
        chosen = self.op(f"select {truth} {nan}, {word} {quiet}, {word} {rounded}")
        high = self.op(f"lshr {word} {chosen}, {number(16)}")
        low = self.op(f"trunc {word} {high} to {short}")
        self.written.append(f"{parsed.result} = bitcast {short} {low} to {kind}")
