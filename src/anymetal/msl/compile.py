"""Prepared + the name of a kernel -> Program: LLVM IR and the types of its arguments."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from anymetal.errors import KernelSyntaxError, UnsetConstantError
from anymetal.msl import clang
from anymetal.msl.arguments import Description, make_arguments, read_descriptions
from anymetal.msl.diagnostics import Problem, raise_problems
from anymetal.msl.entry import entry_text
from anymetal.msl.strict_kernels import builtin_takes, invalid_type_text
from anymetal.msl.unit import make_unit
from anymetal.nouns import EntryPoint, Prepared, Program, Scalar


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
    unit = make_unit(prepared, values, [entry], entry_text(entry))
    result = clang.compile_to_ir(unit.text, fast_math=prepared.source.fast_math, optimise=optimise)
    if not result.ok:
        unit.raise_errors(result.messages)
    ir, descriptions = read_descriptions(result.output, entry)
    _check_types(prepared, entry, descriptions)
    if optimise:
        _refuse_unset_constants(prepared, entry, ir)
    return Program(
        name=entry.name,
        ir=ir,
        arguments=make_arguments(entry, descriptions),
        key=_key(prepared, unit.text),
        first_line=unit.first_line,
        max_total_threads=entry.max_total_threads,
        threadgroup_variables=prepared.threadgroup_variables,
    )


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


def _check_types(
    prepared: Prepared, entry: EntryPoint, descriptions: dict[int, Description]
) -> None:
    """What the tokens could not tell: types behind aliases and template parameters."""
    problems = []
    for number, parameter in enumerate(entry.parameters):
        found = descriptions[number]
        is_indirect = found.is_pointer or found.is_reference
        text = None
        if parameter.builtin is not None:
            if is_indirect or not builtin_takes(parameter.builtin, found.type):
                text = invalid_type_text(found.type, parameter.builtin)
        elif not is_indirect:
            text = f"invalid type '{found.type}' for input declaration in a kernel function"
        if text is not None:
            problems.append(Problem(parameter.position, "error", text))
    if problems:
        raise_problems(problems, prepared.source_map.excerpt)


def _key(prepared: Prepared, text: str) -> str:
    digest = hashlib.sha256(f"{clang.toolchain_key()} {prepared.source.fast_math}\n".encode())
    digest.update(text.encode())
    return digest.hexdigest()
