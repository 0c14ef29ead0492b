"""PTX goes in as LLVM and our headers write it, its variables and the kernel's instructions come
out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from anymetal.errors import EngineError

_COMMENT = re.compile(r"//[^\n]*")
_VARIABLE = re.compile(
    r"^(?:\.(?:weak|visible|extern|common)\s+)*\.(?P<space>shared|global|const)\s+"
    r"(?:\.align (?P<align>\d+)\s+)?\.(?P<type>[busf])(?P<bits>\d+)\s+(?P<name>[\w$.]+)"
    r"(?P<dimension>\[(?P<count>\d*)\])?(?:\s*=\s*(?P<values>[^;]+))?;",
    re.MULTILINE,
)
_ENTRY = re.compile(
    r"\.visible \.entry (\w+)\(\s*\.param \.align \d+ \.b8 (\w+)\[(\d+)\]\s*\)(?P<bounds>[^{]*)\{"
)
_LABEL = re.compile(r"([$\w]+):(?!:)")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([%\w]+(?:<\d+>)?(?:\s*,\s*[%\w]+)*)$")
_ARRAY = re.compile(
    r"\.(local|param|shared)\s+(?:\.align (\d+)\s+)?\.b(\d+)\s+(\w+)(?:\[(\d+)\])?$"
)
_BLANKS = re.compile(r"\s*")
_TARGETS = re.compile(r"\.branchtargets\s+([^;]*);")
_STATEMENT = re.compile(r"(?:@(!?%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
_OPERAND = re.compile(r"\{([^}]*)\}|\[([^\]]*)\]|\(([^)]*)\)|([^,\s]+)")
_ADDRESS = re.compile(r"^([%\w$.]+?)\s*(?:\+\s*(-?\d+))?$")

PREDICATE = "pred"


class Unknown(EngineError):
    """Something that the simulator has no code for."""


@dataclass(frozen=True)
class Variable:
    """A variable of the module; of an array whose size the launch says, `size` is 0."""

    name: str
    space: str
    align: int
    element: int  # bytes
    size: int
    values: tuple[str, ...]


@dataclass(frozen=True)
class Address:
    base: str
    offset: int


@dataclass(frozen=True)
class Vector:
    parts: tuple[str, ...]


Operand = str | Address | Vector


@dataclass(frozen=True)
class Instruction:
    """`place` is the line's number in the text; `guard` the predicate that it runs under."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: str
    place: int

    @property
    def parts(self) -> list[str]:
        return self.opcode.replace("::", "_").split(".")


@dataclass(frozen=True)
class Label:
    name: str


@dataclass
class Kernel:
    """The kernel of a module. Registers are known by the name that they have in C++."""

    variables: list[Variable]
    parameter: str
    parameter_size: int
    registers: dict[str, str] = field(default_factory=dict)  # their types
    arrays: dict[str, int] = field(default_factory=dict)  # of a thread; their sizes
    tables: dict[str, list[str]] = field(default_factory=dict)  # of labels
    code: list[Instruction | Label] = field(default_factory=list)


def parse(text: str) -> Kernel:
    text = _COMMENT.sub("", text)
    entry = _ENTRY.search(text)
    if entry is None:
        raise Unknown("a module without a kernel of one argument")
    if ".func" in text[: entry.start()].replace(".extern .func", ""):
        raise Unknown("functions beside the kernel")
    variables = [_variable(match) for match in _VARIABLE.finditer(text, 0, entry.start())]
    kernel = Kernel(variables, entry[2], int(entry[3]))
    _Body(kernel, text, entry.end()).read()
    return kernel


def _variable(match: re.Match[str]) -> Variable:
    element = int(match["bits"]) // 8
    count = int(match["count"] or 0) if match["dimension"] else 1
    values = re.findall(r"[^\s{},]+", match["values"] or "")
    align = int(match["align"] or element)
    return Variable(match["name"], match["space"], align, element, element * count, tuple(values))


class _Body:
    """Reads the statements of a kernel. Names that braces enclose are theirs alone."""

    def __init__(self, kernel: Kernel, text: str, start: int) -> None:
        self._kernel = kernel
        self._text = text
        self._at = start
        self._line, self._counted = text.count("\n", 0, start) + 1, start
        self._scopes: list[dict[str, str]] = [{}]
        self._number = 0

    def read(self) -> None:
        for statement in self._statements():
            self._take(statement)

    def _statements(self) -> Iterator[str]:
        """Declarations and instructions; labels and braces are dealt with on the way."""
        while True:
            self._skip_blanks()
            label = _LABEL.match(self._text, self._at)
            if self._text.startswith("{", self._at):
                self._number += 1
                self._scopes.append({})
                self._at += 1
            elif self._text.startswith("}", self._at):
                self._scopes.pop()
                self._at += 1
                if not self._scopes:
                    return
            elif label:
                self._at = label.end()
                self._skip_blanks()
                targets = _TARGETS.match(self._text, self._at)
                if targets:
                    self._at = targets.end()
                    self._kernel.tables[label[1]] = re.findall(r"[$\w]+", targets[1])
                else:
                    self._kernel.code.append(Label(label[1]))
            else:
                end = self._text.index(";", self._at)
                statement = self._text[self._at : end].strip()
                yield statement
                self._at = end + 1

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._text, self._at)
        self._at = blanks.end() if blanks else self._at

    def _take(self, statement: str) -> None:
        if not statement or statement.startswith(".pragma"):
            return
        registers, array = _REGISTERS.match(statement), _ARRAY.match(statement)
        if registers:
            self._declare(registers)
        elif array:
            self._declare_array(array)
        elif statement.startswith("."):
            raise Unknown(statement)
        else:
            made = self._instruction(statement)
            self._kernel.code.append(made)
            if made.guard and made.opcode.startswith("br"):  # a block ends here
                self._kernel.code.append(Label(f"$next_{len(self._kernel.code)}"))

    def _declare(self, match: re.Match[str]) -> None:
        kind, listed = match.groups()
        for name in re.findall(r"[^\s,]+", listed):
            stem, _, count = name.rstrip(">").partition("<")
            names = [f"{stem}{number}" for number in range(int(count))] if count else [stem]
            for one in names:
                self._kernel.registers[self._declared(one)] = kind

    def _declare_array(self, match: re.Match[str]) -> None:
        space, element, name = match[1], int(match[3]) // 8, match[4]
        size, align = element * int(match[5] or 1), int(match[2] or element)
        if space == "shared":
            self._kernel.variables.append(Variable(name, space, align, element, size, ()))
        else:
            self._kernel.arrays[self._declared(name)] = size

    def _declared(self, name: str) -> str:
        made = name.lstrip("%")
        if len(self._scopes) > 1:
            made = f"{made}_in_{self._number}"
        self._scopes[-1][name] = made
        return made

    def _known(self, name: str) -> str:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return name

    def _instruction(self, statement: str) -> Instruction:
        match = _STATEMENT.match(statement)
        if match is None:
            raise Unknown(statement)
        guard, opcode, rest = match.groups()
        if guard:
            guard = f"!{self._known(guard[1:])}" if guard[0] == "!" else self._known(guard)
        operands: list[Operand] = []
        for parts, address, arguments, plain in _OPERAND.findall(rest):
            if parts or arguments:
                names = re.findall(r"[^\s,]+", parts or arguments)
                operands.append(Vector(tuple(map(self._known, names))))
            elif address:
                operands.append(self._address(address.strip()))
            else:
                operands += [self._known(one) for one in plain.split("|")]
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return Instruction(opcode, tuple(operands), guard or "", self._line)

    def _address(self, text: str) -> Address:
        match = _ADDRESS.match(text)
        if match is None:
            raise Unknown(f"address {text}")
        return Address(self._known(match[1]), int(match[2] or 0))
