"""llvm.fabs on bfloat as a bit mask.

LLVM 22's generator of x86 code fails an assertion when the bits of a bfloat are used beside those
of its absolute value. The optimiser makes llvm.fabs of any mask that clears a sign, so this comes
last.
"""

from __future__ import annotations

import itertools
import re

_CALL = re.compile(
    r"^(?P<indent> *)(?P<result>%\S+) = (?:\w+ )*?call [\w ]*?(?P<type>bfloat|<\d+ x bfloat>) "
    r"@llvm\.fabs\.(?:v\d+)?bf16\((?P=type) (?:noundef )?(?P<value>[^,)]+)\)"
    r"[^,\n]*(?P<metadata>.*)$",
    re.MULTILINE,
)


def has_absolute_values(ir: str) -> bool:
    return _CALL.search(ir) is not None


def mask_absolute_values(ir: str) -> str:
    """Every such call becomes: to integers, clear the top bit, back to bfloat."""
    numbers = itertools.count()
    return _CALL.sub(lambda call: _masked(call, next(numbers)), ir)


def _masked(call: re.Match[str], number: int) -> str:
    kind, note = call["type"], call["metadata"]
    integers = kind.replace("bfloat", "i16")
    mask = "32767" if kind == "bfloat" else "splat (i16 32767)"
    bits, clear = f"%am.fabs.{number}.bits", f"%am.fabs.{number}.clear"
    lines = (
        f"{bits} = bitcast {kind} {call['value']} to {integers}{note}",
        f"{clear} = and {integers} {bits}, {mask}{note}",
        f"{call['result']} = bitcast {integers} {clear} to {kind}{note}",
    )
    return "\n".join(call["indent"] + line for line in lines)
