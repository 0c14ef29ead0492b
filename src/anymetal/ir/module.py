"""Modules, functions and blocks that a pass can question and change."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from anymetal.ir.instruction import Instruction
from anymetal.ir.operand import Operand
from anymetal.ir.signature import Parameter, Signature, quoted, read_signature
from anymetal.ir.tokens import Reader
from anymetal.ir.types import Layout, Type, type_of

# Metadata of our own begins so. No module reaches the number: there may be gaps.
OWN_METADATA = "!400000"
_NAME = r'(?:[-\w.$]+|"[^"]*")'
_TYPE = re.compile(rf"^(%{_NAME}) = type (.*)$")
_GLOBAL = re.compile(rf"^(@{_NAME}) = ")
_DECLARED = re.compile(rf"^declare .*?@({_NAME})\(")


@dataclass
class Block:
    """A basic block; `label` is written without the percent sign."""

    label: str
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def terminator(self) -> Instruction:
        return self.instructions[-1]

    @property
    def successors(self) -> list[str]:
        if self.terminator.opcode not in ("br", "switch"):
            return []
        return list(self.terminator.labels)

    @property
    def phis(self) -> list[Instruction]:
        return [i for i in self.instructions if i.opcode == "phi"]

    def insert_before(self, place: Instruction, new: Iterable[Instruction]) -> None:
        index = self._index(place)
        self.instructions[index:index] = new

    def _index(self, place: Instruction) -> int:
        return next(n for n, other in enumerate(self.instructions) if other is place)


@dataclass(frozen=True)
class UnreadBody:
    """The text between a function's braces, and what makes blocks of it."""

    text: str
    read: Callable[[Function, str], list[Block]]


class Function:
    """A function definition. A body that nobody looks at is written back as it was."""

    def __init__(
        self, header: str | Signature, body: list[Block] | UnreadBody | None = None
    ) -> None:
        self._header = header if isinstance(header, str) else ""
        self._signature = None if isinstance(header, str) else header
        self._body: list[Block] | UnreadBody = [] if body is None else body
        self._names: set[str] | None = None

    @property
    def blocks(self) -> list[Block]:
        if isinstance(self._body, UnreadBody):
            self._body = self._body.read(self, self._body.text)
        return self._body

    @blocks.setter
    def blocks(self, blocks: list[Block]) -> None:
        self._body = blocks

    # ---- the head ----------------------------------------------------------------------------

    @property
    def signature(self) -> Signature:
        if self._signature is None:
            self._signature = read_signature(self._header)
        return self._signature

    @signature.setter
    def signature(self, signature: Signature) -> None:
        self._signature = signature

    @property
    def name(self) -> str:
        if self._signature is None:
            match = re.search(rf"@({_NAME})\(", self._header)
            assert match is not None, self._header
            return match.group(1).strip('"')
        return self._signature.name

    @property
    def parameters(self) -> list[Parameter]:
        return self.signature.parameters

    @property
    def header(self) -> str:
        """The `define` line with its brace."""
        return f"{self._signature.written('define')} {{" if self._signature else self._header

    # ---- questions ---------------------------------------------------------------------------

    def instructions(self) -> Iterator[Instruction]:
        for block in self.blocks:
            yield from block.instructions

    def calls(self, callee: str) -> Iterator[Instruction]:
        return (i for i in self.instructions() if i.callee == callee)

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    def block(self, label: str) -> Block:
        return next(block for block in self.blocks if block.label == label)

    def definitions(self) -> dict[str, Instruction]:
        """The instruction that makes each value."""
        return {i.result: i for i in self.instructions() if i.result is not None}

    def users(self) -> dict[str, list[Instruction]]:
        """The instructions that use each value, one that uses it twice once."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions():
            for name in dict.fromkeys(instruction.names):
                found.setdefault(name, []).append(instruction)
        return found

    # ---- changes -----------------------------------------------------------------------------

    def fresh(self, stem: str) -> str:
        """A name that no value and no block of this function has: %stem.0, without the percent
        sign a label."""
        if self._names is None:
            values = [i.result for i in self.instructions() if i.result]
            labels = [f"%{block.label}" for block in self.blocks]
            self._names = {*values, *labels, *(p.name for p in self.parameters)}
        number = len(self._names)
        while (name := f"%{stem}.{number}") in self._names:
            number += 1
        self._names.add(name)
        return name

    def rename_predecessor(self, of: Iterable[str], old: str, new: str) -> None:
        """In the phis of the blocks `of`, values that came from `old` now come from `new`."""
        for label in of:
            for phi in self.block(label).phis:
                phi.redirect(old, new)

    def split(self, block: Block, at: int, label: str) -> Block:
        """Moves the instructions from number `at` on to a new block behind this one.

        This block then has no terminator: the caller adds one.
        """
        rest = Block(label, block.instructions[at:])
        del block.instructions[at:]
        self.blocks.insert(self.blocks.index(block) + 1, rest)
        self.rename_predecessor(dict.fromkeys(rest.successors), block.label, label)
        return rest

    def at_entry(self, new: Iterable[Instruction]) -> None:
        """Inserts behind the variables of the first block."""
        entry = self.entry.instructions
        first = next(n for n, i in enumerate(entry) if i.opcode != "alloca")
        entry[first:first] = new

    def __str__(self) -> str:
        if isinstance(self._body, UnreadBody):
            return f"{self.header}\n{self._body.text}\n}}"
        lines = [self.header]
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines += [f"  {instruction.text}" for instruction in block.instructions]
        lines.append("}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Global:
    """A global variable or constant. `initialiser` is the rest of its line."""

    name: str  # with its mark: @table
    is_constant: bool
    type: Type
    initialiser: str
    is_external: bool = False  # declared here, defined elsewhere

    @property
    def value(self) -> Operand:
        return Operand(self.type, Reader(self.initialiser).value())

    @property
    def members(self) -> list[Operand]:
        """The parts of a structure's value."""
        reader, found = Reader(self.initialiser), []
        reader.expect("{")
        while not reader.accept("}"):
            found.append(reader.operand())
            reader.accept(",")
        return found


def _read_global(line: str) -> Global | None:
    """None for aliases and the like."""
    reader = Reader(line)
    name = reader.next()
    reader.expect("=")
    is_external = False
    while reader.peek not in ("constant", "global"):
        if reader.at_type or not reader.peek:
            return None
        is_external |= reader.attribute() in ("external", "extern_weak")
    is_constant = reader.next() == "constant"
    return Global(name, is_constant, reader.type(), reader.rest(), is_external)


@dataclass
class Module:
    """A module: functions, and every other line as it was printed, in order."""

    parts: list[str | Function]

    # ---- questions ---------------------------------------------------------------------------

    @property
    def functions(self) -> list[Function]:
        return [part for part in self.parts if isinstance(part, Function)]

    @property
    def lines(self) -> list[str]:
        """Everything outside functions."""
        return [part for part in self.parts if isinstance(part, str)]

    def function(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(f"the module defines no function {name!r}")

    def instructions(self) -> Iterator[Instruction]:
        for function in self.functions:
            yield from function.instructions()

    def calls(self, callee: str) -> Iterator[Instruction]:
        return (call for function in self.functions for call in function.calls(callee))

    @property
    def types(self) -> dict[str, Type]:
        """What the named types stand for; those that are opaque are left out."""
        matches = (_TYPE.match(line) for line in self.lines if line[:1] == "%")
        return {m.group(1): type_of(m.group(2)) for m in matches if m and m.group(2) != "opaque"}

    def layout(self) -> Layout:
        """Sizes of this module's types."""
        return Layout(self.types)

    @property
    def globals(self) -> dict[str, Global]:
        read = (_read_global(line) for line in self.lines if _GLOBAL.match(line))
        return {one.name: one for one in read if one is not None}

    def declarations(self) -> dict[str, Signature]:
        """Functions that are only declared."""
        return {
            match.group(1).strip('"'): read_signature(line)
            for line in self.lines
            if (match := _DECLARED.match(line))
        }

    def nodes(self) -> dict[str, str]:
        """Metadata by its name: {"!7": "!{...}"}."""
        pairs = (
            (line.split(" = ", 1)[0], line.split(" = ", 1)[1])
            for line in self.lines
            if line[:1] == "!"
        )
        return dict(pairs)

    def attribute_group(self, reference: str) -> tuple[str, ...]:
        """The attributes of `#3`; none where the module has no such group."""
        for line in self.lines:
            if line.startswith(f"attributes {reference} = "):
                return read_attributes(line[line.index("{") + 1 : line.rindex("}")])
        return ()

    # ---- changes -----------------------------------------------------------------------------

    def remove(self, function: Function) -> None:
        self.parts.remove(function)

    def remove_globals(self, prefix: str) -> None:
        """Takes out the globals whose names begin so."""
        self.parts = [p for p in self.parts if not (isinstance(p, str) and p.startswith(prefix))]

    def remove_declarations(self, names: Container[str]) -> None:
        """Takes out the declarations of these functions."""
        self.parts = [part for part in self.parts if not _declares(part, names)]

    def replace(self, old: Function, new: Function) -> None:
        self.parts[self.parts.index(old)] = new

    def add(self, function: Function) -> None:
        self.parts.append(function)

    def declare(
        self,
        name: str,
        kind: Type,
        parameters: Sequence[Type] = (),
        attributes: tuple[str, ...] = (),
    ) -> None:
        """Declares a function unless the module knows one of that name."""
        listed = [Parameter(parameter) for parameter in parameters]
        self.add_declaration(Signature(name, kind, listed, attributes=attributes))

    def add_declaration(self, signature: Signature) -> None:
        """Likewise for a signature, which can be variadic and have words in front."""
        mark = f"@{quoted(signature.name)}("
        declared = any(line.startswith("declare ") and mark in line for line in self.lines)
        if not declared and all(signature.name != function.name for function in self.functions):
            self.parts.append(signature.written("declare"))

    def define_zeros(self, name: str, kind: Type, align: int) -> None:
        """A global variable that others find by its name, and that begins with zeros."""
        self.parts.append(f"@{quoted(name)} = global {kind} zeroinitializer, align {align}")

    def metadata(self, number: int, contents: str) -> str:
        """A metadata node of our own, by its name; equal calls give the same one."""
        return self.node(number, f"{{{contents}}}")

    def node(self, number: int, contents: str) -> str:
        """The same for a node of any kind, `DILocation(...)` say."""
        name = f"{OWN_METADATA}{number}"
        line = f"{name} = !{contents}"
        if line not in self.parts:
            self.parts.append(line)
        return name

    def loop(self, number: int, *properties: str) -> str:
        """A metadata node that stands for one loop, with properties that are nodes."""
        name = f"{OWN_METADATA}{number}"
        self.parts.append(f"{name} = distinct !{{{', '.join((name, *properties))}}}")
        return name

    def new_attribute_group(self, attributes: Iterable[str]) -> str:
        """Adds a group and gives its reference."""
        numbers = [
            int(line[len("attributes #") :].split(" ", 1)[0])
            for line in self.lines
            if line.startswith("attributes #")
        ]
        reference = f"#{max(numbers, default=-1) + 1}"
        self.parts.append(f"attributes {reference} = {{ {' '.join(attributes)} }}")
        return reference

    def set_attribute_group(self, reference: str, attributes: Iterable[str]) -> None:
        """Replaces a group's attributes wherever it is referred to."""
        head = f"attributes {reference} = "
        place = next(
            n for n, p in enumerate(self.parts) if isinstance(p, str) and p.startswith(head)
        )
        self.parts[place] = f"{head}{{ {' '.join(attributes)} }}"

    def attribute_groups(self) -> dict[str, tuple[str, ...]]:
        references = (line.split(" ")[1] for line in self.lines if line.startswith("attributes #"))
        return {reference: self.attribute_group(reference) for reference in references}

    def __str__(self) -> str:
        return "\n".join([str(part) for part in self.parts]) + "\n"


def _declares(part: str | Function, names: Container[str]) -> bool:
    match = _DECLARED.match(part) if isinstance(part, str) else None
    return match is not None and match.group(1).strip('"') in names


def read_attributes(text: str) -> tuple[str, ...]:
    """Attributes between the braces of a group, or behind a signature."""
    reader, found = Reader(text), []
    while reader.peek:
        found.append(reader.attribute())
    return tuple(found)
