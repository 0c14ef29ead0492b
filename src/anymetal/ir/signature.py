"""The head of a function: the `define` or `declare` line taken apart, and written again."""

from __future__ import annotations

from dataclasses import dataclass, field

from anymetal.ir.operand import Operand
from anymetal.ir.tokens import Reader
from anymetal.ir.types import Type


@dataclass
class Parameter:
    """A parameter; `name` has its percent sign and is empty in declarations."""

    type: Type
    name: str = ""
    attributes: tuple[str, ...] = ()

    def operand(self) -> Operand:
        return Operand(self.type, self.name)

    def __str__(self) -> str:
        return " ".join([self.type.text, *self.attributes, *([self.name] if self.name else [])])


@dataclass
class Signature:
    """Everything a `define` or `declare` line says."""

    name: str
    type: Type
    parameters: list[Parameter]
    words: tuple[str, ...] = ()  # linkage, calling convention, attributes of the result
    is_variadic: bool = False
    attributes: tuple[str, ...] = ()  # #0, nounwind, "key"="value", comdat, ...
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> list[str]:
        """The attribute groups it refers to: #0."""
        return [word for word in self.attributes if word.startswith("#")]

    def written(self, keyword: str) -> str:
        parameters = [*map(str, self.parameters), *(["..."] if self.is_variadic else [])]
        nodes = [f"!{name} {node}" for name, node in self.metadata.items()]
        # A declaration has its metadata in front.
        before = [keyword, *nodes] if keyword == "declare" else [keyword]
        head = " ".join([*before, *self.words, self.type.text])
        after = [*self.attributes, *(nodes if keyword == "define" else [])]
        return " ".join([f"{head} @{quoted(self.name)}({', '.join(parameters)})", *after])


def quoted(name: str) -> str:
    """A name as LLVM writes it after its mark."""
    return name if name.replace(".", "_").replace("$", "_").isidentifier() else f'"{name}"'


def read_signature(text: str) -> Signature:
    """Reads a `define` line, with or without its brace, or a `declare` line."""
    reader = Reader(text.rstrip("{ "))
    reader.next()
    metadata = _read_metadata(reader)
    words = reader.flags()
    kind = reader.type()
    name = reader.next()[1:].strip('"')
    reader.expect("(")
    parameters: list[Parameter] = []
    is_variadic = False
    while not reader.accept(")"):
        if reader.accept("..."):
            is_variadic = True
            continue
        parameters.append(_read_parameter(reader))
        reader.accept(",")
    attributes = []
    while reader.peek and reader.peek[0] != "!":
        attributes.append(reader.attribute())
    metadata |= _read_metadata(reader)
    return Signature(name, kind, parameters, words, is_variadic, tuple(attributes), metadata)


def _read_parameter(reader: Reader) -> Parameter:
    kind = reader.type()
    attributes = []
    while reader.peek not in (",", ")") and reader.peek[:1] != "%":
        attributes.append(reader.attribute())
    name = reader.next() if reader.peek[:1] == "%" else ""
    return Parameter(kind, name, tuple(attributes))


def _read_metadata(reader: Reader) -> dict[str, str]:
    found = {}
    while reader.peek[:1] == "!":
        name = reader.next()[1:]
        found[name] = reader.node()
    return found
