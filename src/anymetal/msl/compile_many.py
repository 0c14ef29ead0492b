"""Prepared + names of kernels -> their Programs, in one run of clang for this machine's processors.

The headers and the author's text are read once for all of them. The kernels stand behind it under
numbered names; each leaves with what it uses of the module, under the names that engines know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from anymetal.ir import Extract, parse
from anymetal.msl import clang
from anymetal.msl.arguments import Description, make_arguments, read_descriptions
from anymetal.msl.compile import by_index, check_types, refuse_unset_constants, undefined
from anymetal.msl.contract import contract, refuses_contraction
from anymetal.msl.entry import entry_text
from anymetal.msl.unit import Unit, make_unit
from anymetal.nouns import ConstantValue, EntryPoint, Prepared, Program, Target

_MAIN = ("am_thread_main", "am_group_main")
_NAMES = (*_MAIN, "am_kernel_signature")
# What is done for the module as a whole, and so for one kernel at a time only.
_OF_ONE_KERNEL = ("@llvm.global_ctors", "@am_place_initial_values", "@am_initial_value")


class OneByOne(Exception):
    """Kernels that have to be compiled one by one: there is an error, or something rare."""


def compile_programs(
    prepared: Prepared,
    names: Sequence[str],
    constants: Mapping[int | str, ConstantValue],
    target: Target,
    simplify: Callable[[str], str] | None = None,
) -> list[Program]:
    """Optimised programs of kernels that have the same function constants.

    `simplify` takes the place of clang's optimiser; it must inline what asks for it and keep
    variables in registers. Raises OneByOne where compile_program must be asked, which says the
    right thing about errors.
    """
    entries = [prepared.entry_points[name] for name in names]
    texts = [_numbered(entry, target, number) for number, entry in enumerate(entries)]
    unit = make_unit(prepared, by_index(prepared, constants), entries, "".join(texts))
    compiled = clang.compile_unoptimised if simplify else clang.compile_to_ir
    result = compiled(unit.text, target, dialect=prepared.source.dialect)
    if not result.ok:
        raise OneByOne(result.messages[:1000])
    if simplify:
        result = replace(result, output=simplify(result.output))
    if found := [name for name in _OF_ONE_KERNEL if name in result.output]:
        raise OneByOne(f"the module has {found[0]}")
    unit.refuse_conversions(result.messages)
    module = parse(result.output)
    contract(module, fuse=not refuses_contraction(unit.text))
    descriptions = read_descriptions(module, entries)
    extract = Extract(module)
    return [
        _program(unit, entry, extract, number, descriptions[number], target)
        for number, entry in enumerate(entries)
    ]


def _numbered(entry: EntryPoint, target: Target, number: int) -> str:
    """A kernel's entry text whose names have its number."""
    names = "".join(f"#define {name} {name}_{number}\n" for name in _NAMES)
    forgotten = "".join(f"#undef {name}\n" for name in _NAMES)
    return names + entry_text(entry, target, number) + forgotten


def _program(
    unit: Unit,
    entry: EntryPoint,
    extract: Extract,
    number: int,
    descriptions: dict[int, Description],
    target: Target,
) -> Program:
    text = extract.taken(f"{name}_{number}" for name in _MAIN)
    for name in _MAIN:
        text = text.replace(f"@{name}_{number}(", f"@{name}(")
    module = parse(text)
    unit.refuse_undefined(undefined(module, target))
    check_types(unit.prepared, entry, descriptions)
    program = Program(
        entry=entry,
        ir=text,
        arguments=make_arguments(entry, descriptions),
        source_map=unit.prepared.source_map,
        constants=tuple(unit.prepared.function_constants.values()),
        threadgroup_variables=unit.prepared.threadgroup_variables,
        first_line=unit.first_line,
    )
    refuse_unset_constants(program, module)
    return program
