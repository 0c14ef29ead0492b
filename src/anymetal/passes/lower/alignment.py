"""Vector accesses may stand at any multiple of their element: no aligned machine moves.

clang aligns a float4 to 16 bytes, and on Apple GPUs programs read one at 8. Accesses are clamped to
4 bytes, which costs nothing on the processors we run on; atomics keep their natural alignment.
"""

from __future__ import annotations

import re

from anymetal.ir import Function

_ALIGN = re.compile(r"\balign (\d+)")
_MEMORY = ("load", "store")
_COPIES = ("llvm.memcpy", "llvm.memmove", "llvm.memset")
LARGEST = 4


def clamp_alignment(function: Function) -> None:
    """Lowers `align` on every plain load, store and block copy."""
    for instruction in function.instructions():
        plain = instruction.opcode in _MEMORY and " atomic " not in instruction.text
        if plain or (instruction.callee or "").startswith(_COPIES):
            instruction.text = _ALIGN.sub(_lowered, instruction.text)


def _lowered(match: re.Match[str]) -> str:
    return f"align {min(int(match.group(1)), LARGEST)}"
