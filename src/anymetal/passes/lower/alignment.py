"""Vector accesses may stand at any multiple of their element: no aligned machine moves.

clang aligns a float4 to 16 bytes, and on Apple GPUs programs read one at 8. Accesses are clamped to
4 bytes, which costs nothing on the processors we run on; atomics keep their natural alignment.
"""

from __future__ import annotations

from anymetal.ir import Instruction, Module

_COPIES = ("llvm.memcpy", "llvm.memmove", "llvm.memset")
LARGEST = 4


def clamp_alignment(module: Module) -> None:
    """Lowers `align` on every plain load, store and block copy."""
    for instruction in module.instructions():
        if instruction.opcode in ("load", "store"):
            if instruction.align > LARGEST and not instruction.is_atomic:
                instruction.align = LARGEST
        elif (instruction.callee or "").startswith(_COPIES):
            _clamp_arguments(instruction)


def _clamp_arguments(call: Instruction) -> None:
    call.attributes = tuple(
        tuple(_clamped(attribute) for attribute in argument) for argument in call.attributes
    )


def _clamped(attribute: str) -> str:
    word, _, number = attribute.partition(" ")
    return f"align {min(int(number), LARGEST)}" if word == "align" else attribute
