"""Prepared -> nothing, or every error in it: one run of clang that looks at all kernels."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anymetal.msl import clang
from anymetal.msl.entry import entry_kernel
from anymetal.msl.unit import Unit, make_unit
from anymetal.nouns import EntryPoint, Prepared, Target

# A string, which stays as it is, or a float whose suffix is its last letter.
_FLOAT = re.compile(
    r'"(?:\\.|[^"\\])*"'
    r"|(?<![\w.])(?:0[xX][\da-fA-F'.]+[pP][+-]?\d+|[\d'.]+(?:[eE][+-]?\d+)?)[fF]\b"
)


def check_all(prepared: Prepared, target: Target, *, instantiate: bool = True) -> None:
    """Raises KernelSyntaxError where a kernel does not compile; makes no code.

    Without `instantiate`, templates are only parsed: the instances of a large library take long.
    """
    check_entries(prepared, prepared.entry_points.values() if instantiate else (), target)


def mistakes(prepared: Prepared, target: Target) -> tuple[str, ...]:
    """What clang warns about in a text that compiles, templates' instances included."""
    unit = unit_of(prepared, prepared.entry_points.values())
    dialect = prepared.source.dialect
    result = clang.check_syntax(unit.text, target, dialect=dialect, warnings=clang.MISTAKES)
    return unit.mistakes(result.messages)


def check_entries(prepared: Prepared, entries: Iterable[EntryPoint], target: Target) -> None:
    """Checks the whole text, and of templates the instances that these entry points name."""
    unit = unit_of(prepared, entries)
    result = clang.check_syntax(
        _with_unknown_floats(unit.text), target, dialect=prepared.source.dialect
    )
    if not result.ok:
        unit.raise_errors(result.messages)
    unit.refuse_conversions(result.messages)


def unit_of(prepared: Prepared, entries: Iterable[EntryPoint]) -> Unit:
    """The text, with the instances of templates that these entry points name."""
    entries = list(entries)
    # Taking the address of a kernel makes clang instantiate it.
    uses = "".join(f"{entry_kernel(entry, number)[0]}\n" for number, entry in enumerate(entries))
    return make_unit(prepared, {}, entries, uses)


def _with_unknown_floats(text: str) -> str:
    """Every float literal as one whose value clang does not know (anymetal/scalar.h).

    clang is silent about a float that becomes a bfloat where it knows that the value fits. The
    spellings are as long as those they replace: every place stays where it is.
    """
    text = text.replace("__builtin_inff()", "am_unknown_inf()")
    text = text.replace('__builtin_nanf("")', 'am_unknown_nan("")')
    return _FLOAT.sub(lambda found: _unknown(found[0]), text)


def _unknown(text: str) -> str:
    return text if text.startswith('"') else f"{text[:-1]}_"
