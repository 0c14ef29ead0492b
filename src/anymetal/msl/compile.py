"""Prepared + the name of a kernel -> Program: LLVM IR and the types of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anymetal.errors import KernelSyntaxError, UnsetConstantError
from anymetal.ir import Module, parse
from anymetal.msl import clang
from anymetal.msl.arguments import (
    Description,
    describe_parameters,
    make_arguments,
    read_descriptions,
)
from anymetal.msl.contract import OPEN, contract, refuses_contraction
from anymetal.msl.diagnostics import Problem, raise_problems
from anymetal.msl.entry import entry_kernel, entry_text
from anymetal.msl.holes import added_bytes
from anymetal.msl.initial_values import place_initial_values
from anymetal.msl.initialisers import UnknownValue, evaluate_initialisers
from anymetal.msl.spelling import author_name
from anymetal.msl.strict_kernels import builtin_takes, invalid_type_text
from anymetal.msl.unit import make_unit
from anymetal.nouns import ConstantValue, EntryPoint, Prepared, Program, Target

_BY_REFERENCE = (
    "pass a value as `constant T& name`; give each pointer of an array a parameter of its own, or"
    " put the array into a structure that is passed as `constant S& name`"
)
# A text of so many kernels is parsed once and kept: from the third kernel on that is quicker.
_MANY_KERNELS = 8
_UNSET = "@am_unset_constant_"  # msl/unit.py: what stands for a constant without a value


def compile_program(
    prepared: Prepared,
    entry_name: str,
    constants: Mapping[int | str, ConstantValue],
    target: Target,
    *,
    optimise: bool = True,
    lines: bool = False,
) -> Program:
    """Compiles one kernel for one set of function constants, given by index or by name.

    The checker asks for IR that is not optimised: it has every access, with its place in the text.
    """
    entry = prepared.entry_points[entry_name]
    values = by_index(prepared, constants)
    unit = make_unit(prepared, values, [entry], entry_text(entry, target))
    dialect = prepared.source.dialect
    result = None
    if optimise and not lines and not values and len(prepared.entry_points) >= _MANY_KERNELS:
        result = clang.compile_ending(unit.beginning, unit.ending, target, dialect=dialect)
    if result is None:
        result = clang.compile_to_ir(
            unit.text, target, dialect=dialect, optimise=optimise, lines=lines
        )
    if not result.ok:
        unit.raise_errors(result.messages)
    unit.refuse_conversions(result.messages)  # instances of a large library are seen here first
    module = parse(result.output)
    fuses = not refuses_contraction(unit.text)
    if optimise or not fuses:
        contract(module, fuse=fuses)
    try:
        module = evaluate_initialisers(module)
    except UnknownValue as error:
        unit.refuse_values(error.names, str(error))
    place_initial_values(module)
    unit.refuse_undefined(undefined(module, target))
    (descriptions,) = read_descriptions(module, [entry])
    check_types(prepared, entry, descriptions)
    program = Program(
        entry=entry,
        ir=str(module),
        arguments=make_arguments(entry, descriptions),
        source_map=prepared.source_map,
        constants=tuple(prepared.function_constants.values()),
        threadgroup_variables=prepared.threadgroup_variables,
        first_line=unit.first_line,
        padding=frozenset() if optimise else added_bytes(result.messages),
    )
    if optimise:
        refuse_unset_constants(program, module)
    return program


def refuse_undefined(prepared: Prepared, entries: Sequence[EntryPoint], target: Target) -> None:
    """Raises where kernels use what nobody defines: one run of clang, and no machine code."""
    names = [entry_kernel(entry, number) for number, entry in enumerate(entries)]
    uses = "".join(f"{text}\n" for text, _ in names)
    table = ", ".join(f"(void*){qualified}" for _, qualified in names)
    kept = f'extern "C" {{ void* am_kernels[] = {{ {table} }}; }}\n' if names else ""
    unit = make_unit(prepared, {}, entries, uses + kept)
    result = clang.compile_to_ir(unit.text, target, dialect=prepared.source.dialect)
    if not result.ok:
        unit.raise_errors(result.messages)
    unit.refuse_undefined(undefined(parse(result.output), target))


def undefined(module: Module, target: Target) -> list[str]:
    """The author's functions and variables that the kernel uses and nobody defines."""
    functions = [
        name for name in module.declarations() if not name.startswith("llvm.") and name not in OPEN
    ]
    variables = [
        one.name[1:]
        for one in module.globals.values()
        if one.is_external and not one.name.startswith(_UNSET)
    ]
    names = dict.fromkeys(author_name(symbol) for symbol in (*functions, *variables))
    return [name for name in names if name not in target.provided]


def by_index(
    prepared: Prepared, constants: Mapping[int | str, ConstantValue]
) -> dict[int, ConstantValue]:
    values = {}
    for key, value in constants.items():
        if isinstance(key, str):
            if key not in prepared.function_constants:
                raise KernelSyntaxError(f"no function constant is called '{key}'")
            values[prepared.function_constants[key].index] = value
        else:
            values[key] = value
    return values


def refuse_unset_constants(program: Program, module: Module) -> None:
    """Raises where optimised code of a program still needs a constant that nobody set."""
    used = sorted(
        int(name.removeprefix(_UNSET)) for name in module.globals if name.startswith(_UNSET)
    )
    if not used:
        return
    names = {constant.index: constant.name for constant in program.constants}
    listed = ", ".join(f"'{names[index]}' (index {index})" for index in used)
    raise UnsetConstantError(
        f"Failed to create function state object for: {program.name}. "
        f"It uses function constants without a value: {listed}"
    )


def wrong_types(prepared: Prepared, target: Target) -> dict[str, list[Problem]]:
    """By kernel, the parameters whose types a call would refuse: one run of clang for all."""
    described = describe_parameters(prepared, target)
    found = {
        name: _wrong_types(prepared.entry_points[name], descriptions)
        for name, descriptions in described.items()
    }
    return {name: problems for name, problems in found.items() if problems}


def check_types(
    prepared: Prepared, entry: EntryPoint, descriptions: dict[int, Description]
) -> None:
    """What the tokens could not tell: types behind aliases and template parameters."""
    problems = _wrong_types(entry, descriptions)
    if problems:
        raise_problems(problems, prepared.source_map.excerpt)


def _wrong_types(entry: EntryPoint, descriptions: dict[int, Description]) -> list[Problem]:
    problems = []
    for number, parameter in enumerate(entry.parameters):
        found = descriptions[number]
        is_indirect = found.is_pointer or found.is_reference
        text, remedy = None, None
        if parameter.builtin is not None:
            if is_indirect or not builtin_takes(parameter.builtin, found.type):
                text = invalid_type_text(found.type, parameter.builtin)
        elif not is_indirect:
            text = f"invalid type '{found.type}' for input declaration in a kernel function"
            remedy = _BY_REFERENCE
        if text is not None:
            problems.append(Problem(parameter.position, "error", text))
        if remedy is not None:
            problems.append(Problem(parameter.position, "note", remedy, brief=True))
    return problems
