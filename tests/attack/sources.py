"""Hostile sources, made by rule: every way to spell a harmful thing, times the places it may stand.

Each row says how it must end; files in hostile/ are for what no rule makes.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cases import HEADER, Hostile

_K = "kernel void k(device float* x, uint i [[thread_position_in_grid]])"


def generated() -> list[Hostile]:
    return [*_undefined()]


def _kernel(body: str, before: str = "") -> str:
    return f"{HEADER}{before}\n{_K} {{ {body} }}\n"


def _undefined() -> Iterator[Hostile]:
    """Functions of the C library and of our runtime, declared in each way C++ has."""
    ways = {
        "plain": "int {name}(int a);",
        "external": 'extern "C" int {name}(int a);',
        "template": "template <class T> int {name}(T a);",
    }
    for way, declaration in ways.items():
        for name in ("system", "exit", "abort", "am_run", "dlopen", "nothing_at_all"):
            yield Hostile(
                f"undefined-{way}-{name}",
                _kernel(f"if (x[i] > 5) x[i] = {name}((int)i);", declaration.format(name=name)),
                refused=f"'{name}' is used but not defined",
            )
