"""Prepared -> nothing, or every error in it: one run of clang that looks at all kernels."""

from __future__ import annotations

from collections.abc import Iterable

from anymetal.msl import clang
from anymetal.msl.compile import _POP, _PUSH, _constants_text, _headers_text
from anymetal.msl.diagnostics import raise_compiler_errors
from anymetal.nouns import EntryPoint, Prepared


def check_all(prepared: Prepared, *, instantiate: bool = True) -> None:
    """Raises KernelSyntaxError where a kernel does not compile; generates no code.

    Without `instantiate`, templates are only parsed: the instances of a large library take long.
    """
    check_entries(prepared, prepared.entry_points.values() if instantiate else ())


def check_entries(prepared: Prepared, entries: Iterable[EntryPoint]) -> None:
    """Checks the whole text, and of templates the instances that these entry points name."""
    prologue = _headers_text(prepared) + _constants_text(prepared, {}) + _PUSH
    uses = "".join(_use(number, entry) for number, entry in enumerate(entries))
    text = prologue + prepared.text + _POP + uses
    result = clang.check_syntax(text, fast_math=prepared.source.fast_math)
    if not result.ok:
        raise_compiler_errors(result.messages, prepared.source_map, prologue.count("\n") + 1)


def _use(number: int, entry: EntryPoint) -> str:
    """Takes the address of a kernel, which makes clang instantiate it."""
    line = f"constexpr auto am_kernel_{number} = {entry.expression};"
    for name in reversed(entry.scope.split("::") if entry.scope else []):
        line = f"namespace {name} {{ {line} }}"
    return line + "\n"
