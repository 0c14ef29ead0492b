"""PTX line by line, as LLVM writes it: what an instruction does, what it names, where it accesses
threadgroup memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_INSTRUCTION = re.compile(
    r"^\s*(?:(?P<guard>@!?%p\d+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<rest>.*);"
)
_REGISTER = re.compile(r"%[a-z]+\d+")
_OPERAND = re.compile(r"\s*((?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+)")
_ADDRESS = re.compile(r"\[(?P<base>[%\w$.]+)(?:\+(?P<offset>-?\d+))?\]")
THREADGROUP_VARIABLE = re.compile(r"\.shared \.align (?P<align>\d+) (?P<name>.*)\[(?P<size>\d+)\];")
_STORES = ("st.", "red.", "cp.async.")
_ENDS = ("bra", "ret", "exit", "brx", "trap")


@dataclass(frozen=True)
class Address:
    """A register or a variable, and how many bytes behind it."""

    base: str
    offset: int

    def __str__(self) -> str:
        return f"[{self.base}+{self.offset}]" if self.offset else f"[{self.base}]"


@dataclass
class Line:
    """One line of PTX. What is no instruction (labels, directives, comments) has no opcode."""

    text: str
    opcode: str = field(init=False)
    is_guarded: bool = field(init=False)
    _rest: str = field(init=False)

    def __post_init__(self) -> None:
        match = _INSTRUCTION.match(self.text)
        self.opcode = match["opcode"] if match else ""
        self._rest = match["rest"] if match else ""
        self.is_guarded = bool(match and match["guard"])

    @property
    def registers(self) -> list[str]:
        return _REGISTER.findall(self._rest)

    @property
    def all_registers(self) -> list[str]:
        """Those of a line with several instructions too."""
        return _REGISTER.findall(self.text)

    @property
    def operands(self) -> list[str]:
        """As they are written; what stands in braces or brackets is one."""
        return [operand.strip() for operand in _OPERAND.findall(self._rest)]

    @property
    def results(self) -> list[str]:
        """The registers that the instruction writes: its first operand's."""
        if not self.opcode or self.opcode.startswith((*_STORES, *_ENDS)):
            return []
        first = self._rest
        first = first[: first.index("}")] if first.startswith("{") else first.split(",")[0]
        return _REGISTER.findall(first)

    @property
    def address(self) -> Address | None:
        """The first address among the operands."""
        return next(iter(self.addresses), None)

    @property
    def addresses(self) -> list[Address]:
        found = _ADDRESS.findall(self._rest)
        return [Address(base, int(offset or 0)) for base, offset in found]

    @property
    def is_shared(self) -> bool:
        """Whether the first address is one in threadgroup memory."""
        return ".shared" in self.opcode and self.address is not None

    @property
    def is_barrier(self) -> bool:
        return self.opcode.startswith(("barrier.", "bar."))

    @property
    def ends_segment(self) -> bool:
        return self.text.rstrip().endswith(":") or self.opcode.startswith(_ENDS)

    def with_address(self, address: Address) -> Line:
        """The same instruction with its first address replaced."""
        return Line(_ADDRESS.sub(str(address), self.text, count=1))


def entry_lines(lines: Iterable[Line]) -> Iterator[tuple[Line, bool, bool]]:
    """Each line, whether it is of the kernel itself, and whether it is its first instruction."""
    inside = begun = False
    for line in lines:
        if line.text.startswith(".visible .entry "):
            inside = True
        elif line.text == "}":
            inside = False
        is_first = inside and not begun and bool(line.opcode)
        begun |= is_first
        yield line, inside, is_first


def lines_of(text: str) -> list[Line]:
    return [Line(line) for line in text.split("\n")]


def text_of(lines: Iterable[Line]) -> str:
    return "\n".join(line.text for line in lines)


def segments(lines: list[Line]) -> Iterator[range]:
    """Places of instructions that run one after the other, whatever happens."""
    first = 0
    for place, line in enumerate(lines):
        if line.ends_segment:
            yield range(first, place)
            first = place + 1
    yield range(first, len(lines))


def definitions(lines: Iterable[Line]) -> Counter[str]:
    """How many instructions write each register. Those in braces of their own are not told apart:
    what they name counts as written more than once."""
    found: Counter[str] = Counter()
    for line in lines:
        in_braces = line.all_registers if line.text.lstrip().startswith("{") else []
        found.update([*line.results, *in_braces, *in_braces])
    return found
