"""Integer arithmetic that never traps and is never undefined, as on a GPU.

Division by zero gives 0 (and the remainder 0), the most negative number divided by -1 wraps, and a
shift uses the low bits of its count. LLVM calls all of these undefined, and x86 traps on the first
two.
"""

from __future__ import annotations

import re

from anymetal.ir import Function, Instruction

_DIVISION = re.compile(
    r"^(\S+) = (sdiv|udiv|srem|urem)(?: exact)? (<\d+ x i\d+>|i\d+) (.+), ([^,!]+)"
)
_SHIFT = re.compile(
    r"^(\S+) = (shl|lshr|ashr)((?: nuw| nsw| exact)*) (<\d+ x i\d+>|i\d+) (.+), ([^,!]+)"
)


def define_integer_arithmetic(function: Function) -> None:
    """Rewrites divisions and shifts whose right operand is not a constant."""
    for block in function.blocks:
        rewritten: list[Instruction] = []
        for instruction in block.instructions:
            rewritten.extend(
                _defined(instruction, f"am.a{len(rewritten)}.{block.label.strip(chr(34))}")
            )
        block.instructions = rewritten


def _defined(instruction: Instruction, name: str) -> list[Instruction]:
    division = _DIVISION.match(instruction.text)
    if division and division.group(5).startswith("%"):
        return _safe_division(division, name)
    shift = _SHIFT.match(instruction.text)
    if shift and shift.group(6).startswith("%"):
        return _masked_shift(shift, name)
    return [instruction]


def _width(kind: str) -> int:
    return int(kind[kind.index("i") + 1 :].rstrip(">"))


def _splat(kind: str, value: int) -> str:
    if not kind.startswith("<"):
        return str(value)
    count, element = kind.strip("<>").split(" x ")
    return "<" + ", ".join([f"{element} {value}"] * int(count)) + ">"


def _mask_type(kind: str) -> str:
    return f"<{kind[1:].split(' ')[0]} x i1>" if kind.startswith("<") else "i1"


def _safe_division(match: re.Match[str], name: str) -> list[Instruction]:
    result, opcode, kind, left, right = match.groups()
    mask, zero, one = _mask_type(kind), _splat(kind, 0), _splat(kind, 1)
    lines = [f'%"{name}.z" = icmp eq {kind} {right}, {zero}']
    unusual = f'%"{name}.z"'
    if opcode in ("sdiv", "srem"):
        lines += [
            f'%"{name}.m" = icmp eq {kind} {right}, {_splat(kind, -1)}',
            f'%"{name}.u" = or {mask} %"{name}.z", %"{name}.m"',
        ]
        unusual = f'%"{name}.u"'
    lines += [
        f'%"{name}.d" = select {mask} {unusual}, {kind} {one}, {kind} {right}',
        f'%"{name}.q" = {opcode} {kind} {left}, %"{name}.d"',
    ]
    if opcode == "sdiv":
        lines += [
            f'%"{name}.n" = sub {kind} {zero}, {left}',
            f'%"{name}.s" = select {mask} %"{name}.m", {kind} %"{name}.n", {kind} %"{name}.q"',
            f'{result} = select {mask} %"{name}.z", {kind} {zero}, {kind} %"{name}.s"',
        ]
    else:
        lines.append(f'{result} = select {mask} %"{name}.z", {kind} {zero}, {kind} %"{name}.q"')
    return [Instruction(line) for line in lines]


def _masked_shift(match: re.Match[str], name: str) -> list[Instruction]:
    result, opcode, flags, kind, left, right = match.groups()
    limit = _splat(kind, _width(kind) - 1)
    return [
        Instruction(f'%"{name}.c" = and {kind} {right}, {limit}'),
        Instruction(f'{result} = {opcode}{flags} {kind} {left}, %"{name}.c"'),
    ]
