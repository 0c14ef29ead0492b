"""Prepared -> nothing, or every error in it: one run of clang that looks at all kernels."""

from __future__ import annotations

from collections.abc import Iterable

from anymetal.msl import clang
from anymetal.msl.entry import entry_kernel
from anymetal.msl.unit import Unit, make_unit
from anymetal.nouns import EntryPoint, Prepared, Target


def check_all(prepared: Prepared, target: Target, *, instantiate: bool = True) -> tuple[str, ...]:
    """Raises KernelSyntaxError where a kernel does not compile; returns warnings, no code.

    Without `instantiate`, templates are only parsed: the instances of a large library take long.
    """
    return check_entries(prepared, prepared.entry_points.values() if instantiate else (), target)


def mistakes(prepared: Prepared, target: Target) -> tuple[str, ...]:
    """What clang warns about in a text that compiles, templates' instances included."""
    unit = _unit_of(prepared, prepared.entry_points.values())
    fast_math = prepared.source.fast_math
    result = clang.check_syntax(unit.text, target, fast_math=fast_math, warnings=clang.MISTAKES)
    return unit.mistakes(result.messages)


def check_entries(
    prepared: Prepared, entries: Iterable[EntryPoint], target: Target
) -> tuple[str, ...]:
    """Checks the whole text, and of templates the instances that these entry points name."""
    unit = _unit_of(prepared, entries)
    result = clang.check_syntax(unit.text, target, fast_math=prepared.source.fast_math)
    if not result.ok:
        unit.raise_errors(result.messages)
    return unit.warnings(result.messages)


def _unit_of(prepared: Prepared, entries: Iterable[EntryPoint]) -> Unit:
    entries = list(entries)
    # Taking the address of a kernel makes clang instantiate it.
    uses = "".join(f"{entry_kernel(entry, number)[0]}\n" for number, entry in enumerate(entries))
    return make_unit(prepared, {}, entries, uses)
