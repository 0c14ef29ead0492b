"""EntryPoint -> C++ constants that describe its parameters, and back: the types clang resolved.

The tokens give the names of parameters and of the fields of their structs. Types, sizes and offsets
come out of clang as constants in the IR, so that templates, aliases and alignment are its business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from anymetal.ir import Global, Module, parse
from anymetal.machine.layout import Described
from anymetal.msl import clang
from anymetal.msl.spelling import metal_spelling
from anymetal.msl.unit import make_unit
from anymetal.nouns import Argument, DeclaredField, EntryPoint, Field, Prepared, Target

# @am_argument_<entry>_<parameter>, with _<number> behind it for a field of a struct.
_ARGUMENT, _PRESENT = "@am_argument_", "@am_argument_present_"
_ELEMENT = re.compile(r"\[Element = (.*)\]$")
_ARRAY = re.compile(r"^(.*?)((?:\[\d+\])+)$")


@dataclass(frozen=True)
class Description:
    """What clang says about a parameter, or a field: there the flags are its offset."""

    type: str
    size: int
    align: int
    flags: int
    fields: tuple[Field, ...] = ()
    is_present: bool = True

    @property
    def is_pointer(self) -> bool:
        return bool(self.flags & Described.IS_POINTER)

    @property
    def is_reference(self) -> bool:
        return bool(self.flags & Described.IS_REFERENCE)

    @property
    def is_const(self) -> bool:
        return bool(self.flags & Described.IS_CONST)


def signature_text(entry: EntryPoint, number: int = 0) -> str:
    """One line: the types of a kernel's parameters and the constants that describe them."""
    name = f"am_signature_{number}"
    opened = "".join(f"namespace {space} {{ " for space in _spaces(entry))
    closed = " }" * len(_spaces(entry))
    qualified = "::".join(["", *(space for space in _spaces(entry) if space), name])
    definition = f"using {name} = decltype(am_signature_of({entry.expression}));"
    return f"{opened}{definition}{closed} {_constants(entry, qualified, number)}\n"


def _spaces(entry: EntryPoint) -> list[str]:
    return entry.scope.split("::") if entry.scope else []


def _constants(entry: EntryPoint, signature: str, number: int) -> str:
    lines = []
    for place, parameter in enumerate(entry.parameters):
        type_ = f"{signature}::parameter<{place}>"
        name = f"am_argument_{number}_{place}"
        lines.append(f'extern "C" constexpr auto {name} = am_describe<{type_}>();')
        for order, path in enumerate(_paths(parameter.fields)):
            lines.append(f'extern "C" constexpr auto {name}_{order} = AM_FIELD({type_}, {path});')
    return " ".join(lines)


def _paths(fields: Sequence[DeclaredField], prefix: str = "") -> Iterator[str]:
    """`inner`, `inner[0].x`, ...: each field before those inside it."""
    for field in fields:
        yield prefix + field.name
        yield from _paths(field.fields, f"{prefix}{field.name}{'[0]' * field.extents}.")


def presence_text(entry: EntryPoint, number: int = 0) -> str:
    """Constants that say which parameters the function constants leave in place."""
    return "".join(
        f'extern "C" const bool am_argument_present_{number}_{place} ='
        f" ({parameter.function_constant});\n"
        for place, parameter in enumerate(entry.parameters)
        if parameter.function_constant is not None
    )


def read_descriptions(
    module: Module, entries: Sequence[EntryPoint]
) -> list[dict[int, Description]]:
    """Takes the constants of kernels, numbered in this order, out of the module."""
    variables = module.globals
    found = _found(variables)
    present = {
        name.removeprefix(_PRESENT): bool(variable.value.integer)
        for name, variable in variables.items()
        if name.startswith(_PRESENT)
    }
    module.remove_globals(_ARGUMENT)
    return [_descriptions(found, entry, number, present) for number, entry in enumerate(entries)]


def _found(variables: Mapping[str, Global]) -> dict[str, Description]:
    return {
        name.removeprefix(_ARGUMENT): _description(variable)
        for name, variable in variables.items()
        if name.startswith(_ARGUMENT) and not name.startswith(_PRESENT)
    }


def _description(variable: Global) -> Description:
    """Reads an am_description (anymetal/entry.h)."""
    *numbers, text = variable.members
    size, align, flags = (number.integer or 0 for number in numbers)
    return Description(_metal_type(text.string or ""), size, align, flags)


def _descriptions(
    found: Mapping[str, Description], entry: EntryPoint, number: int, present: Mapping[str, bool]
) -> dict[int, Description]:
    return {
        place: replace(
            found[f"{number}_{place}"],
            fields=_read_fields(found, f"{number}_{place}", parameter.fields),
            is_present=present.get(f"{number}_{place}", True),
        )
        for place, parameter in enumerate(entry.parameters)
    }


def _read_fields(
    found: Mapping[str, Description], key: str, declared: Sequence[DeclaredField]
) -> tuple[Field, ...]:
    rows = [found.get(f"{key}_{order}") for order, _ in enumerate(_paths(declared))]
    known = [row for row in rows if row is not None]
    # A field that clang does not know: the tokens named another struct, and nothing is told.
    return tuple(_fields(declared, iter(known), 0)) if len(known) == len(rows) else ()


def _fields(
    declared: Sequence[DeclaredField], rows: Iterator[Description], start: int
) -> Iterator[Field]:
    for field in declared:
        row = next(rows)
        type_, shape = _element(row.type)
        inner = tuple(_fields(field.fields, rows, row.flags))
        size = row.size // max(prod(shape), 1)
        yield Field(field.name, type_, row.flags - start, size, shape, inner, field.enumerators)


def _element(type_: str) -> tuple[str, tuple[int, ...]]:
    """`uint[4][2]` -> `uint`, (4, 2)."""
    match = _ARRAY.match(type_)
    if match is None:
        return type_, ()
    return match[1].strip(), tuple(int(extent) for extent in re.findall(r"\d+", match[2]))


def make_arguments(
    entry: EntryPoint, descriptions: Mapping[int, Description]
) -> tuple[Argument, ...]:
    """The parameters that are there, with their types."""
    return tuple(
        Argument(
            name=parameter.name,
            role=parameter.role,
            index=parameter.index,
            builtin=parameter.builtin,
            space=parameter.space,
            type=descriptions[place].type,
            element_size=descriptions[place].size,
            element_align=descriptions[place].align,
            is_pointer=descriptions[place].is_pointer,
            is_const=descriptions[place].is_const,
            fields=descriptions[place].fields,
        )
        for place, parameter in enumerate(entry.parameters)
        if descriptions[place].is_present
    )


def describe_kernels(prepared: Prepared, target: Target) -> dict[str, tuple[Argument, ...]]:
    """The arguments of all kernels in one run of clang, which compiles none of them."""
    described = describe_parameters(prepared, target)
    return {
        name: make_arguments(prepared.entry_points[name], descriptions)
        for name, descriptions in described.items()
    }


def describe_parameters(prepared: Prepared, target: Target) -> dict[str, dict[int, Description]]:
    """What clang says about the parameters of each kernel."""
    entries = list(prepared.entry_points.values())
    text = "".join(signature_text(entry, number) for number, entry in enumerate(entries))
    unit = make_unit(prepared, {}, entries, text)
    result = clang.compile_to_ir(unit.text, target, dialect=prepared.source.dialect)
    if not result.ok:
        unit.raise_errors(result.messages)
    found = _found(parse(result.output).globals)
    return {
        entry.name: _descriptions(found, entry, number, {}) for number, entry in enumerate(entries)
    }


def _metal_type(text: str) -> str:
    """`auto am_describe_element(unsigned int) [Element = metal::vec<float, 4>]` -> `float4`."""
    match = _ELEMENT.search(text)
    return metal_spelling(match[1] if match else text)
