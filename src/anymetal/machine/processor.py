"""The processor that machine code is made for: this machine's own, or one that bundles are for."""

from __future__ import annotations

import contextlib
import functools
import platform
import re
from collections.abc import Iterator
from pathlib import Path

NATIVE = "native"

# The levels of x86-64 that kernels are compiled for ahead of time, by the names that Linux has for
# what they need. Level 2 cannot convert half precision.
_LEVEL_3 = "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave"
_LEVEL_4 = f"{_LEVEL_3} avx512bw avx512cd avx512dq avx512f avx512vl"
LEVELS = {
    "x86-64-v3": frozenset(_LEVEL_3.split()),
    "x86-64-v4": frozenset(_LEVEL_4.split()),
}
_INSTRUCTION_SET = re.compile(
    r"abm|adx|aes|amx_\w+|avx\w*|bmi[12]|cx16|f16c|fma4?|gfni|lahf_lm|movbe|pclmulqdq|pni|popcnt"
    r"|sha_ni|sse\w+|ssse3|vaes|vpclmulqdq|xsave\w*"
)
_CPUINFO = Path("/proc/cpuinfo")

_wanted = [NATIVE]


def wanted() -> str:
    """NATIVE, or a name of LEVELS."""
    return _wanted[-1]


@contextlib.contextmanager
def code_for(processor: str) -> Iterator[None]:
    """Code that is made inside the block is for another processor."""
    _wanted.append(processor)
    try:
        yield
    finally:
        _wanted.pop()


def is_x86() -> bool:
    return platform.machine() in ("x86_64", "AMD64")


def has(feature: str) -> bool:
    """Whether the processor that code is made for has a feature, by LLVM's name for it."""
    if wanted() != NATIVE:
        return feature in LEVELS[wanted()]
    return f"+{feature}" in _host()[1].split(",")


def has_bfloats() -> bool:
    """Whether code that is made now may have vectors of bfloats."""
    return not is_x86() or has("avx512bf16")


def name_and_features() -> tuple[str, str]:
    """What LLVM is told of it."""
    return _host() if wanted() == NATIVE else (wanted(), "")


@functools.cache
def _host() -> tuple[str, str]:
    import llvmlite.binding as llvm  # noqa: PLC0415  (takes a moment)

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def needed() -> frozenset[str]:
    """What code that is made now needs of a processor, in Linux's words."""
    if wanted() != NATIVE:
        return LEVELS[wanted()]
    return frozenset(filter(_INSTRUCTION_SET.fullmatch, present() or ()))


@functools.cache
def present() -> frozenset[str] | None:
    """What this machine's processor has, in Linux's words; None where it is not written down."""
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text().splitlines():
            name, _, words = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(words.split())
    return None
