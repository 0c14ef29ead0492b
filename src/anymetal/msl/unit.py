"""What clang is given: a prologue, the rewritten text, and what names the kernels of it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from anymetal.msl.diagnostics import (
    Problem,
    compiler_warnings,
    raise_compiler_errors,
    raise_problems,
    refused_conversions,
)
from anymetal.nouns import ConstantValue, EntryPoint, Position, Prepared, Scalar

# All is inlined into the kernel: every point where a thread may wait is in one function.
_PUSH = "#pragma clang attribute push(__attribute__((always_inline)), apply_to=function)\n"
_POP = "#pragma clang attribute pop\n"
_LOGGING = "metal_logging"  # came with Metal 3.2
_SEPARATE_HEADERS = (
    _LOGGING,
    "simd/simd.h",
    "metal_tensor",
    "metal_cooperative_tensor",
    "MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h",
)


@dataclass(frozen=True)
class Unit:
    """A whole translation unit; the author's text starts at `first_line`.

    `beginning` is what all units of one text and one set of function constants begin with.
    """

    prepared: Prepared
    beginning: str
    ending: str
    first_line: int

    entries: Sequence[EntryPoint]  # behind the author's text each line belongs to one of them

    @property
    def text(self) -> str:
        return self.beginning + self.ending

    def place(self, line: int, column: int) -> Position | None:
        """The author's place for a place in the unit."""
        first_entry_line = self.first_line + self.prepared.text.count("\n") + 1
        if line >= first_entry_line and self.entries:
            return self.entries[min(line - first_entry_line, len(self.entries) - 1)].position
        return self.prepared.source_map.position(line - self.first_line + 1, column)

    def raise_errors(self, messages: str) -> NoReturn:
        """Raises clang's errors in terms of the author's text."""
        raise_compiler_errors(messages, self.place, self.prepared.source_map.excerpt)

    def refuse_values(self, names: Sequence[str], reason: str) -> NoReturn:
        """Raises an error at each of these variables: their initial value is not to be had."""
        problems = [
            Problem(self._named(name), "error", f"no initial value for '{name}': {reason}")
            for name in names
        ]
        # Where no value is ever stored, the compiler has removed the variable itself.
        problems = problems or [Problem(None, "error", f"no initial value: {reason}")]
        raise_problems(problems, self.prepared.source_map.excerpt)

    def refuse_undefined(self, names: Sequence[str]) -> None:
        """Raises an error at each name; none is fine."""
        problems = [
            Problem(self._named(name), "error", f"'{name}' is used but not defined")
            for name in names
        ]
        if problems:
            raise_problems(problems, self.prepared.source_map.excerpt)

    def _named(self, name: str) -> Position | None:
        """Where a name of program scope first stands."""
        for number, line in enumerate(self.prepared.text.split("\n"), start=1):
            if match := re.search(rf"\b{re.escape(name)}\b", line):
                return self.prepared.source_map.position(number, match.start() + 1)
        return None

    def mistakes(self, messages: str) -> tuple[str, ...]:
        return compiler_warnings(messages, self.place, self.prepared.source_map.excerpt)

    def refuse_conversions(self, messages: str) -> None:
        """Raises where clang has seen a float become a bfloat without a cast."""
        problems = refused_conversions(messages, self.place)
        if problems:
            raise_problems(problems, self.prepared.source_map.excerpt)


def make_unit(
    prepared: Prepared,
    values: Mapping[int, ConstantValue],
    entries: Sequence[EntryPoint],
    ending: str,
) -> Unit:
    """The author's text with function constants set by index, and something behind it."""
    prologue = _headers_text(prepared) + _constants_text(prepared, values) + _PUSH
    beginning = prologue + prepared.text + _POP
    return Unit(prepared, beginning, ending, prologue.count("\n") + 1, entries)


def _headers_text(prepared: Prepared) -> str:
    """What the author includes and metal_stdlib, which is precompiled, does not hold."""
    found = [name for name in prepared.headers if name in _SEPARATE_HEADERS]
    if prepared.source.language == "3.1":
        found = [name for name in found if name != _LOGGING]
    return "".join(f"#include <{name}>\n" for name in found)


def _constants_text(prepared: Prepared, values: Mapping[int, ConstantValue]) -> str:
    """A macro for each function constant: its value, or a symbol that must not survive."""
    lines = []
    for constant in prepared.function_constants.values():
        index = constant.index
        if index in values:
            definition = f"static const __VA_ARGS__ name = {_value(values[index])}"
        else:
            definition = f'extern const __VA_ARGS__ name __asm__("am_unset_constant_{index}")'
        lines.append(f"#define AM_FUNCTION_CONSTANT_{index}(name, ...) {definition}\n")
        lines.append(f"#define AM_IS_DEFINED_{index} {'true' if index in values else 'false'}\n")
    return "".join(lines)


def _value(value: ConstantValue) -> str:
    """An expression of the type that is the macro's last argument."""
    if isinstance(value, tuple):
        return f"__VA_ARGS__({', '.join(map(_literal, value))})"
    return f"static_cast<__VA_ARGS__>({_literal(value)})"


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}l" if value < 2**63 else f"{value}ul"
    if math.isnan(value):
        return '__builtin_nanf("")'
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return value.hex() + "f"
