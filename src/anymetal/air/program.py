"""One kernel of a metallib -> Program: the same that our own front end makes of Metal source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from anymetal.air.constants import settle
from anymetal.air.container import LibraryFunction
from anymetal.air.llvm import disassembled, linked
from anymetal.air.metadata import Noted, Notes, read_notes
from anymetal.air.needed import Needed
from anymetal.air.places import AirMap
from anymetal.air.rewrite import Rewritten, RewrittenFunction, SharedVariable, rewrite
from anymetal.air.thunk import write_thunk
from anymetal.errors import MetallibError
from anymetal.ir import parse
from anymetal.msl.clang import INPUT_NAME
from anymetal.nouns import (
    Argument,
    ConstantValue,
    EntryPoint,
    FunctionConstant,
    Parameter,
    Position,
    Program,
    Target,
    ThreadgroupVariable,
)

VERSIONS = ((2, 3), (2, 8))
# Numbers of nodes that no module of Apple's reaches.
_FIRST_NODE = 2_000_000
_LEFT = re.compile(r"@(air\.[\w.]+)\(")


def make_program(
    function: LibraryFunction,
    values: Mapping[str, ConstantValue],
    target: Target,
    *,
    optimise: bool,
    lines: bool,
    quickly: bool = False,
) -> Program:
    """Compiles one kernel for one set of function constants, given by name.

    `quickly`: its code is optimised as far as engines need it, and no further.
    """
    _refuse_version(function)
    kernel = function.name
    text = disassembled(function.bitcode, kernel)
    module = parse(text)
    notes = read_notes(module, kernel)
    rewritten = rewrite(text)
    with_places = lines or not optimise
    needed = Needed(kernel, target, lines=with_places)
    needed.add(rewritten.declared)
    computed = settle(rewritten, notes.constants, values, needed, kernel)
    present = [one.argument if _is_present(one, computed) else None for one in notes.parameters]
    entry = next(f for f in rewritten.functions if f"@{f.signature.name}" == _bare(notes.function))
    thunk, names = write_thunk(entry.signature, present, needed.attributes)
    needed.take(names)
    ir = linked(
        _module_text(rewritten, needed, thunk, with_places=with_places),
        needed.modules(),
        optimise=optimise,
        quickly=quickly,
    )
    if left := _LEFT.search(ir) if optimise else None:
        raise MetallibError(f"kernel '{kernel}' calls {left[1]} from a function that calls itself")
    places = AirMap(kernel, text, module)
    return Program(
        entry=_entry(kernel, notes, entry, places),
        ir=ir,
        arguments=tuple(argument for argument in present if argument is not None),
        source_map=places,
        constants=constants_of(function, notes),
        threadgroup_variables=tuple(_variable(one, text, places) for one in rewritten.shared),
    )


def _refuse_version(function: LibraryFunction) -> None:
    lowest, highest = VERSIONS
    if not lowest <= function.air <= highest:
        major, minor = function.air
        raise MetallibError(
            f"kernel '{function.name}' is AIR {major}.{minor}; versions"
            f" {lowest[0]}.{lowest[1]} to {highest[0]}.{highest[1]} are known"
        )


def _bare(name: str) -> str:
    return name.replace('"', "")


def _is_present(noted: Noted, computed: Mapping[str, str]) -> bool:
    if not noted.predicate:
        return True
    return not computed.get(noted.predicate, "i8 0").endswith(" 0")


def _module_text(rewritten: Rewritten, needed: Needed, thunk: str, *, with_places: bool) -> str:
    """All that is not in our headers, as one module."""
    nodes = _Nodes() if with_places else None
    attributes = f"alwaysinline convergent nounwind {needed.attributes}"
    parts = [needed.header, *(line.text for line in rewritten.lines), *needed.definitions, thunk]
    parts += [_function_text(one, attributes, nodes) for one in rewritten.functions]
    parts += rewritten.loops
    if nodes is not None:
        parts += nodes.lines
    return "\n".join(parts) + "\n"


class _Nodes:
    """Debug metadata: every line of AIR is a line of one file."""

    def __init__(self) -> None:
        file, unit, type_, types, version = (f"!{_FIRST_NODE + n}" for n in range(5))
        self._file, self._unit, self._type = file, unit, type_
        self.lines = [
            f"!llvm.dbg.cu = !{{{unit}}}",
            f"!llvm.module.flags = !{{{version}}}",
            f'{version} = !{{i32 2, !"Debug Info Version", i32 3}}',
            f'{file} = !DIFile(filename: "{INPUT_NAME}", directory: "")',
            f"{unit} = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: {file},"
            " emissionKind: LineTablesOnly)",
            f"{type_} = !DISubroutineType(types: {types})",
            f"{types} = !{{}}",
        ]
        self._next = _FIRST_NODE + 5

    def _add(self, text: str) -> str:
        name = f"!{self._next}"
        self._next += 1
        self.lines.append(f"{name} = {text}")
        return name

    def scope(self, function: RewrittenFunction) -> str:
        return self._add(
            f'distinct !DISubprogram(name: "line{function.number}", scope: {self._file},'
            f" file: {self._file}, line: {function.number}, type: {self._type},"
            f" unit: {self._unit}, spFlags: DISPFlagDefinition)"
        )

    def location(self, line: int, scope: str) -> str:
        return self._add(f"!DILocation(line: {line}, column: 3, scope: {scope})")


def _function_text(function: RewrittenFunction, attributes: str, nodes: _Nodes | None) -> str:
    head = function.signature
    given = ", ".join(
        " ".join([str(p.type), *_kept(p.attributes), p.name]) for p in head.parameters
    )
    words = "fastcc " if "fastcc" in head.words else ""
    define = f'define internal {words}{head.type} @"{head.name}"({given}) {attributes}'
    if nodes is None:
        return "\n".join([f"{define} {{", *(line.text for line in function.body), "}"])
    scope = nodes.scope(function)
    lines = [f"{define} !dbg {scope} {{"]
    switch = 0
    for line in function.body:
        text = line.text
        if text.startswith("  switch ") and not text.endswith("]"):
            switch = line.number
        elif text.startswith("  ") and not text.startswith("    "):
            place = switch if text == "  ]" else line.number
            text += f", !dbg {nodes.location(place, scope)}"
        lines.append(text)
    return "\n".join([*lines, "}"])


def _kept(attributes: Sequence[str]) -> list[str]:
    """Attributes that change what a call does."""
    return [word for word in attributes if word.startswith(("byval", "sret"))]


def _entry(kernel: str, notes: Notes, function: RewrittenFunction, places: AirMap) -> EntryPoint:
    position = places.position(function.number, 1) or Position(kernel, 1, 1)
    parameters = tuple(_parameter(one, position) for one in notes.parameters)
    return EntryPoint(kernel, kernel, parameters, position, notes.max_threads)


def _parameter(noted: Noted, position: Position) -> Parameter:
    argument: Argument = noted.argument
    return Parameter(
        argument.name,
        argument.type,
        argument.role,
        argument.index,
        argument.builtin,
        argument.space,
        noted.condition or None,
        position,
    )


def constants_of(function: LibraryFunction, notes: Notes) -> tuple[FunctionConstant, ...]:
    """The function constants that a kernel uses."""
    place = Position(f"{function.name}.air", 1, 1)
    found = (one.constant for one in notes.constants)
    return tuple(FunctionConstant(one.name, one.index, one.type, place) for one in found)


def _variable(shared: SharedVariable, text: str, places: AirMap) -> ThreadgroupVariable:
    row = text[: text.index(f"\n{shared.name} = ") + 1].count("\n") + 1
    position = places.position(row, 1) or Position(shared.name, 1, 1)
    return ThreadgroupVariable(shared.slot, _author_name(shared.name), position)


def _author_name(symbol: str) -> str:
    """`local_sums` for `@_ZZ14rms_single_row...E10local_sums.0`: the last name of a mangled one."""
    found = symbol.strip('@"')
    for match in re.finditer(r"E(\d+)", symbol):
        name = symbol[match.end() : match.end() + int(match[1])]
        if name.isidentifier() and len(name) == int(match[1]):
            found = name
    return found
