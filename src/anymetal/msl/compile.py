"""Prepared + the name of a kernel -> Program: LLVM IR and the types of its arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from anymetal.errors import KernelSyntaxError, UnsetConstantError
from anymetal.msl import clang
from anymetal.msl.diagnostics import raise_compiler_errors
from anymetal.msl.entry import Description, entry_kernel, entry_text, read_descriptions
from anymetal.nouns import Argument, EntryPoint, Prepared, Program, Scalar

_PUSH = "#pragma clang attribute push(__attribute__((always_inline)), apply_to=function)\n"
_POP = "#pragma clang attribute pop\n"
_SEPARATE_HEADERS = ("metal_logging", "simd/simd.h")


def compile_program(
    prepared: Prepared,
    entry_name: str,
    constants: Mapping[int | str, Scalar] | None = None,
    *,
    optimise: bool = True,
) -> Program:
    """Compiles one kernel for one set of function constants, given by index or by name.

    The checker asks for IR that is not optimised: it has every access, with its place in the text.
    """
    entry = prepared.entry_points[entry_name]
    values = _by_index(prepared, constants or {})
    prologue = _headers_text(prepared) + _constants_text(prepared, values) + _PUSH
    text = prologue + prepared.text + _POP + entry_text(entry)
    result = clang.compile_to_ir(text, fast_math=prepared.source.fast_math, optimise=optimise)
    if not result.ok:
        raise_compiler_errors(
            result.messages, prepared.source_map, prologue.count("\n") + 1, entry.position
        )
    ir, descriptions = read_descriptions(result.output)
    if optimise:
        _refuse_unset_constants(prepared, entry, ir)
    return Program(
        name=entry.name,
        ir=ir,
        arguments=_arguments(entry, descriptions),
        key=_key(prepared, text),
        first_line=prologue.count("\n") + 1,
        max_total_threads=entry.max_total_threads,
        threadgroup_variables=prepared.threadgroup_variables,
    )


def check_all(prepared: Prepared, *, instantiate: bool = True) -> None:
    """Raises KernelSyntaxError unless everything compiles, kernels that nobody asked for included.

    Instances of templates are compiled too, unless `instantiate` is false: those of a large library
    take a minute.
    """
    prologue = _headers_text(prepared) + _constants_text(prepared, {}) + _PUSH
    uses = "".join(
        f"{entry_kernel(entry, number)[0]}\n"
        for number, entry in enumerate(prepared.entry_points.values() if instantiate else ())
    )
    text = prologue + prepared.text + _POP + uses
    result = clang.check_syntax(text, fast_math=prepared.source.fast_math)
    if not result.ok:
        raise_compiler_errors(result.messages, prepared.source_map, prologue.count("\n") + 1)


def _by_index(prepared: Prepared, constants: Mapping[int | str, Scalar]) -> dict[int, Scalar]:
    values = {}
    for key, value in constants.items():
        if isinstance(key, str):
            if key not in prepared.function_constants:
                raise KernelSyntaxError(f"no function constant is called '{key}'")
            values[prepared.function_constants[key].index] = value
        else:
            values[key] = value
    return values


def _headers_text(prepared: Prepared) -> str:
    """What the author includes and metal_stdlib, which is precompiled, does not hold."""
    return "".join(f"#include <{name}>\n" for name in prepared.headers if name in _SEPARATE_HEADERS)


def _constants_text(prepared: Prepared, values: Mapping[int, Scalar]) -> str:
    """A macro for each function constant: its value, or a symbol that must not survive."""
    lines = []
    for constant in prepared.function_constants.values():
        index = constant.index
        if index in values:
            value = _literal(values[index])
            definition = f"static const __VA_ARGS__ name = static_cast<__VA_ARGS__>({value})"
        else:
            definition = f'extern const __VA_ARGS__ name __asm__("am_unset_constant_{index}")'
        lines.append(f"#define AM_FUNCTION_CONSTANT_{index}(name, ...) {definition}\n")
        lines.append(f"#define AM_IS_DEFINED_{index} {'true' if index in values else 'false'}\n")
    return "".join(lines)


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}l" if value < 2**63 else f"{value}ul"
    return float(value).hex() + "f"


def _refuse_unset_constants(prepared: Prepared, entry: EntryPoint, ir: str) -> None:
    used = sorted({int(number) for number in re.findall(r"@am_unset_constant_(\d+)\b", ir)})
    if not used:
        return
    names = {constant.index: constant.name for constant in prepared.function_constants.values()}
    listed = ", ".join(f"'{names[index]}' (index {index})" for index in used)
    raise UnsetConstantError(
        f"Failed to create function state object for: {entry.name}. "
        f"It uses function constants without a value: {listed}"
    )


def _arguments(entry: EntryPoint, descriptions: dict[int, Description]) -> tuple[Argument, ...]:
    arguments = []
    for number, parameter in enumerate(entry.parameters):
        description = descriptions[number]
        if not description.is_present:
            continue
        arguments.append(
            Argument(
                name=parameter.name,
                role=parameter.role,
                index=parameter.index,
                builtin=parameter.builtin,
                space=parameter.space,
                type=description.type,
                element_size=description.size,
                element_align=description.align,
                is_pointer=description.is_pointer,
                is_const=description.is_const,
            )
        )
    return tuple(arguments)


def _key(prepared: Prepared, text: str) -> str:
    digest = hashlib.sha256(f"{clang.toolchain_key()} {prepared.source.fast_math}\n".encode())
    digest.update(text.encode())
    return digest.hexdigest()
