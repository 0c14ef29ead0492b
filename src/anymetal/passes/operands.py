"""One instruction taken apart: opcode, flags, types and operands, by a small grammar of LLVM's IR.

`ir.py` knows where instructions begin and end; passes that must understand every operand read them
with `read_instruction`. What the grammar does not know raises `UnknownInstruction`, so that a pass
can step back instead of guessing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_WORD = re.compile(r"[A-Za-z_][\w.]*")
_NAME = re.compile(r'[%@](?:"[^"]*"|[-\w.$]+)')
_NUMBER = re.compile(r"-?(?:0x[HRKLM]?[0-9A-Fa-f]+|\d+(?:\.\d+(?:e[-+]?\d+)?)?)|-?inf|-?nan")
_SIMPLE_TYPE = re.compile(
    r"(?:i\d+|half|bfloat|float|double|fp128|x86_fp80|ptr|void|label|token|metadata)\b"
)
_CONSTANT_WORDS = frozenset(
    [
        "true",
        "false",
        "null",
        "undef",
        "poison",
        "zeroinitializer",
        "none",
        "splat",
        "getelementptr",
        "inttoptr",
        "ptrtoint",
        "bitcast",
        "trunc",
        "add",
        "sub",
        "xor",
        "shl",
        "addrspacecast",
    ]
)
_OPEN, _CLOSE = "<[{(", ">]})"
_CASTS = frozenset(
    [
        "zext",
        "sext",
        "trunc",
        "fpext",
        "fptrunc",
        "bitcast",
        "ptrtoint",
        "inttoptr",
        "uitofp",
        "sitofp",
        "fptoui",
        "fptosi",
        "addrspacecast",
    ]
)
# What decides where a function finds an argument. The rest are hints.
_PASSING = re.compile(r"\b(?:zeroext|signext|inreg|align \d+|(?:byval|sret)\([^()]*\))")
_FAST_FLAGS = frozenset(["fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"])
_BINARY = frozenset(
    [
        "add",
        "sub",
        "mul",
        "udiv",
        "sdiv",
        "urem",
        "srem",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "frem",
    ]
)


class UnknownInstruction(ValueError):
    """The text is no instruction this reader knows."""


@dataclass(frozen=True)
class Operand:
    """A value and its type, both as written."""

    kind: str
    text: str

    @property
    def is_name(self) -> bool:
        return self.text.startswith("%")


@dataclass
class Parsed:
    """An instruction's parts; which of them are there depends on the opcode."""

    opcode: str
    result: str | None
    kind: str = "void"  # the result's type
    flags: str = ""
    operands: list[Operand] = field(default_factory=list)
    predicate: str = ""  # of comparisons; the operation of an atomicrmw
    element: str = ""  # the type a getelementptr steps over, or an alloca makes
    callee: str = ""
    convention: str = ""  # of a call: fastcc, say
    attributes: list[str] = field(default_factory=list)  # how each argument of a call is passed
    labels: list[str] = field(
        default_factory=list
    )  # targets of br; where a phi's operands come from
    numbers: list[int] = field(default_factory=list)  # indices of extractvalue; a shuffle's mask
    align: int = 1
    ordering: str = ""  # what follows the operands of an atomic instruction
    is_volatile: bool = False
    is_invariant: bool = False

    @property
    def is_atomic(self) -> bool:
        return bool(self.ordering)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip_space(self) -> None:
        while self.position < len(self.text) and self.text[self.position] == " ":
            self.position += 1

    def peek(self, token: str) -> bool:
        self.skip_space()
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise UnknownInstruction(f"expected {token!r} at {self.position} in: {self.text}")

    def match(self, pattern: re.Pattern[str]) -> str | None:
        self.skip_space()
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found.group(0)

    def word(self) -> str | None:
        return self.match(_WORD)

    def balanced(self) -> str:
        """The bracketed text that begins here, strings inside it respected."""
        self.skip_space()
        start, depth = self.position, 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == '"':
                self.position = self.text.index('"', self.position + 1)
            depth += (character in _OPEN) - (character in _CLOSE)
            self.position += 1
            if depth == 0:
                return self.text[start : self.position]
        raise UnknownInstruction(f"unbalanced brackets in: {self.text}")

    def at_type(self) -> bool:
        self.skip_space()
        rest = self.text[self.position : self.position + 1]
        return rest in ("<", "[", "{", "%") or bool(_SIMPLE_TYPE.match(self.text, self.position))

    def type(self) -> str:
        self.skip_space()
        if self.text[self.position : self.position + 1] in ("<", "[", "{"):
            return self.balanced()
        if self.peek("%"):
            return self.match(_NAME) or ""
        simple = self.match(_SIMPLE_TYPE)
        if simple is None:
            raise UnknownInstruction(f"expected a type at {self.position} in: {self.text}")
        if simple == "ptr" and self.peek("addrspace"):
            raise UnknownInstruction(f"address spaces are erased: {self.text}")
        return simple

    def value(self) -> str:
        self.skip_space()
        start = self.position
        if self.match(_NAME) or self.match(_NUMBER):
            return self.text[start : self.position]
        if self.text[start : start + 1] in ("<", "[", "{"):
            return self.balanced()
        if self.text.startswith('c"', start):
            self.position = self.text.index('"', start + 2) + 1
            return self.text[start : self.position]
        word = self.word()
        if word not in _CONSTANT_WORDS:
            raise UnknownInstruction(f"expected a value at {start} in: {self.text}")
        while self.position < len(self.text) and not self.peek(",") and not self.peek(")"):
            if self.peek("("):
                self.balanced()
                break
            if self.word() is None:
                break
        return self.text[start : self.position].strip()

    def operand(self) -> Operand:
        kind = self.type()
        self.skip_attributes()
        return Operand(kind, self.value())

    def skip_attributes(self) -> None:
        """Words such as `noundef` or `align 4` between a parameter's type and its value."""
        while True:
            self.skip_space()
            found = _WORD.match(self.text, self.position)
            if found is None or found.group(0) in _CONSTANT_WORDS:
                return
            self.skip_attribute(found)

    def skip_to_type(self) -> None:
        while not self.at_type():
            self.skip_space()
            found = _WORD.match(self.text, self.position)
            if found is None:
                raise UnknownInstruction(f"expected a type at {self.position} in: {self.text}")
            self.skip_attribute(found)

    def skip_attribute(self, found: re.Match[str]) -> None:
        self.position = found.end()
        if self.text.startswith("(", self.position):
            self.balanced()
        elif found.group(0) == "align":
            self.match(_NUMBER)

    def flags(self) -> str:
        """The words before the first type."""
        words = []
        while not self.at_type():
            word = self.word()
            if word is None:
                raise UnknownInstruction(f"expected a type at {self.position} in: {self.text}")
            words.append(word)
        return " ".join(words)


def split_metadata(text: str) -> tuple[str, str]:
    """An instruction, and what is attached to it: `, !dbg !7`."""
    place = text.find(", !")
    return (text, "") if place < 0 else (text[:place], text[place:])


def read_instruction(text: str) -> Parsed:
    """Takes one instruction apart."""
    reader = _Reader(text)
    result = None
    if reader.peek("%"):
        result = reader.match(_NAME)
        reader.expect("=")
    opcode = reader.word() or ""
    if opcode in ("tail", "musttail", "notail"):
        opcode = reader.word() or ""
    parsed = Parsed(opcode, result)
    read = _READERS.get(opcode)
    if read is None:
        raise UnknownInstruction(f"no reader for: {text}")
    read(reader, parsed)
    return parsed


def _read_binary(reader: _Reader, parsed: Parsed) -> None:
    parsed.flags = reader.flags()
    parsed.kind = reader.type()
    left = reader.value()
    reader.expect(",")
    parsed.operands = [Operand(parsed.kind, left), Operand(parsed.kind, reader.value())]


def _read_unary(reader: _Reader, parsed: Parsed) -> None:
    parsed.flags = reader.flags()
    parsed.operands = [reader.operand()]
    parsed.kind = parsed.operands[0].kind


def _read_cast(reader: _Reader, parsed: Parsed) -> None:
    parsed.flags = reader.flags()
    parsed.operands = [reader.operand()]
    reader.expect("to")
    parsed.kind = reader.type()


def _read_compare(reader: _Reader, parsed: Parsed) -> None:
    *flags, parsed.predicate = reader.flags().split()
    parsed.flags = " ".join(flags)
    first = reader.operand()
    reader.expect(",")
    parsed.operands = [first, Operand(first.kind, reader.value())]
    parsed.kind = boolean_like(first.kind)


def boolean_like(kind: str) -> str:
    """The type of a comparison's result."""
    if kind.startswith("<"):
        return f"<{kind[1:].split(' ', 1)[0]} x i1>"
    return "i1"


def _read_operands(reader: _Reader, parsed: Parsed) -> None:
    parsed.operands = [reader.operand()]
    while reader.accept(","):
        if reader.peek("!"):
            return
        parsed.operands.append(reader.operand())


def _read_select(reader: _Reader, parsed: Parsed) -> None:
    parsed.flags = reader.flags()
    _read_operands(reader, parsed)
    parsed.kind = parsed.operands[1].kind


def _read_phi(reader: _Reader, parsed: Parsed) -> None:
    parsed.flags = reader.flags()
    parsed.kind = reader.type()
    while True:
        reader.expect("[")
        parsed.operands.append(Operand(parsed.kind, reader.value()))
        reader.expect(",")
        parsed.labels.append(_label(reader))
        reader.expect("]")
        if not reader.accept(","):
            return


def _label(reader: _Reader) -> str:
    name = reader.match(_NAME)
    if name is None:
        raise UnknownInstruction(f"expected a label in: {reader.text}")
    return name.removeprefix("%")


def _read_load(reader: _Reader, parsed: Parsed) -> None:
    flags = reader.flags().split()
    parsed.is_volatile = "volatile" in flags
    parsed.kind = reader.type()
    reader.expect(",")
    parsed.operands = [reader.operand()]
    _read_tail(reader, parsed, atomic="atomic" in flags)


def _read_store(reader: _Reader, parsed: Parsed) -> None:
    flags = reader.flags().split()
    parsed.is_volatile = "volatile" in flags
    value = reader.operand()
    reader.expect(",")
    parsed.operands = [value, reader.operand()]
    _read_tail(reader, parsed, atomic="atomic" in flags)


def _read_tail(reader: _Reader, parsed: Parsed, *, atomic: bool) -> None:
    rest = reader.text[reader.position :]
    if atomic:
        parsed.ordering = rest.split(", align", 1)[0].strip(" ,")
    found = re.search(r"align (\d+)", rest)
    parsed.align = int(found.group(1)) if found else 1
    parsed.is_invariant = "!invariant.load" in rest


def _read_gep(reader: _Reader, parsed: Parsed) -> None:
    words = []
    while not reader.at_type():
        word = reader.word()
        if word is None:
            raise UnknownInstruction(f"unknown flags in: {reader.text}")
        if reader.peek("("):
            reader.balanced()
            continue
        words.append(word)
    parsed.flags = " ".join(words)
    parsed.element = reader.type()
    reader.expect(",")
    _read_operands(reader, parsed)
    vector = next((o.kind for o in parsed.operands if o.kind.startswith("<")), None)
    parsed.kind = f"<{vector[1:].split(' ', 1)[0]} x ptr>" if vector else "ptr"


def _read_alloca(reader: _Reader, parsed: Parsed) -> None:
    parsed.element = reader.type()
    parsed.kind = "ptr"
    while reader.accept(","):
        if reader.accept("align"):
            parsed.align = int(reader.match(_NUMBER) or 1)
        elif reader.at_type():
            parsed.operands.append(reader.operand())
        else:
            return


def _read_call(reader: _Reader, parsed: Parsed) -> None:
    words = []
    while not reader.at_type():
        reader.skip_space()
        found = _WORD.match(reader.text, reader.position)
        if found is None:
            raise UnknownInstruction(f"unknown call: {reader.text}")
        reader.skip_attribute(found)
        words.append(found.group(0))
    parsed.flags = " ".join(word for word in words if word in _FAST_FLAGS)
    parsed.convention = " ".join(word for word in words if word.endswith("cc"))
    parsed.kind = reader.type()
    if reader.peek("("):  # the whole type of a variadic function
        raise UnknownInstruction(f"call through a function type: {reader.text}")
    name = reader.match(_NAME)
    if name is None or not name.startswith("@"):
        raise UnknownInstruction(f"indirect call: {reader.text}")
    parsed.callee = name.removeprefix("@").strip('"')
    reader.expect("(")
    if reader.accept(")"):
        return
    while True:
        if reader.peek("metadata"):
            raise UnknownInstruction(f"metadata argument: {reader.text}")
        _read_argument(reader, parsed)
        if not reader.accept(","):
            break
    reader.expect(")")


def _read_argument(reader: _Reader, parsed: Parsed) -> None:
    kind = reader.type()
    start = reader.position
    reader.skip_attributes()
    passing = _PASSING.findall(reader.text[start : reader.position])
    parsed.attributes.append(" ".join(passing))
    parsed.operands.append(Operand(kind, reader.value()))


def _read_branch(reader: _Reader, parsed: Parsed) -> None:
    if not reader.peek("label"):
        parsed.operands = [reader.operand()]
        reader.expect(",")
    while reader.accept("label"):
        parsed.labels.append(_label(reader))
        reader.accept(",")


def _read_return(reader: _Reader, parsed: Parsed) -> None:
    if not reader.accept("void"):
        parsed.operands = [reader.operand()]


def _read_nothing(reader: _Reader, parsed: Parsed) -> None:
    parsed.ordering = reader.text[reader.position :].strip() if parsed.opcode == "fence" else ""


def _read_extractelement(reader: _Reader, parsed: Parsed) -> None:
    _read_operands(reader, parsed)
    parsed.kind = parsed.operands[0].kind[1:-1].split(" x ", 1)[1]


def _read_insertelement(reader: _Reader, parsed: Parsed) -> None:
    _read_operands(reader, parsed)
    parsed.kind = parsed.operands[0].kind


def _read_shuffle(reader: _Reader, parsed: Parsed) -> None:
    _read_operands(reader, parsed)
    mask = parsed.operands.pop()
    count = int(mask.kind[1:].split(" ", 1)[0])
    element = parsed.operands[0].kind[1:-1].split(" x ", 1)[1]
    parsed.kind = f"<{count} x {element}>"
    if mask.text.startswith("<"):
        entries = mask.text[1:-1].split(", ")
        parsed.numbers = [
            -1 if entry.endswith(("poison", "undef")) else int(entry.split()[1])
            for entry in entries
        ]
    else:
        number = re.search(r"splat \(i32 (\d+)\)", mask.text)
        parsed.numbers = [int(number.group(1)) if number else 0] * count


def _read_extractvalue(reader: _Reader, parsed: Parsed) -> None:
    parsed.operands = [reader.operand()]
    parsed.numbers = _indices(reader)


def _read_insertvalue(reader: _Reader, parsed: Parsed) -> None:
    first = reader.operand()
    reader.expect(",")
    parsed.operands = [first, reader.operand()]
    parsed.kind = first.kind
    parsed.numbers = _indices(reader)


def _indices(reader: _Reader) -> list[int]:
    numbers = []
    while reader.accept(","):
        number = reader.match(_NUMBER)
        if number is None:
            break
        numbers.append(int(number))
    return numbers


def _read_atomicrmw(reader: _Reader, parsed: Parsed) -> None:
    words = reader.flags().split()
    parsed.is_volatile = words[0] == "volatile"
    parsed.predicate = words[-1]
    pointer = reader.operand()
    reader.expect(",")
    parsed.operands = [pointer, reader.operand()]
    parsed.kind = parsed.operands[1].kind
    _read_tail(reader, parsed, atomic=True)


def _read_cmpxchg(reader: _Reader, parsed: Parsed) -> None:
    words = reader.flags().split()
    parsed.flags = "weak" if "weak" in words else ""
    parsed.is_volatile = "volatile" in words
    _read_operands_until_ordering(reader, parsed)
    parsed.kind = f"{{ {parsed.operands[1].kind}, i1 }}"
    _read_tail(reader, parsed, atomic=True)


def _read_operands_until_ordering(reader: _Reader, parsed: Parsed) -> None:
    parsed.operands = [reader.operand()]
    for _ in range(2):
        reader.expect(",")
        parsed.operands.append(reader.operand())


_READERS = {
    **dict.fromkeys(_BINARY, _read_binary),
    **dict.fromkeys(_CASTS, _read_cast),
    "fneg": _read_unary,
    "freeze": _read_unary,
    "icmp": _read_compare,
    "fcmp": _read_compare,
    "select": _read_select,
    "phi": _read_phi,
    "load": _read_load,
    "store": _read_store,
    "getelementptr": _read_gep,
    "alloca": _read_alloca,
    "call": _read_call,
    "br": _read_branch,
    "ret": _read_return,
    "unreachable": _read_nothing,
    "fence": _read_nothing,
    "extractelement": _read_extractelement,
    "insertelement": _read_insertelement,
    "shufflevector": _read_shuffle,
    "extractvalue": _read_extractvalue,
    "insertvalue": _read_insertvalue,
    "atomicrmw": _read_atomicrmw,
    "cmpxchg": _read_cmpxchg,
}
BINARY_OPCODES, CAST_OPCODES = _BINARY, _CASTS
