"""The notes that Apple's compiler left in a kernel's module -> arguments, constants and limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from anymetal.air.container import Constant
from anymetal.errors import MetallibError
from anymetal.ir import Module
from anymetal.ir.tokens import Reader
from anymetal.nouns import Argument, Field

_SPACES = {1: "device", 2: "constant", 3: "threadgroup"}
_BUFFERS = ("air.buffer", "air.indirect_buffer")
_ESCAPE = re.compile(r"\\([0-9A-F]{2})")
BUILTINS = (
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "grid_origin",
    "grid_size",
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "thread_index_in_quadgroup",
    "simdgroup_index_in_threadgroup",
    "quadgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "quadgroups_per_threadgroup",
    "dispatch_simdgroups_per_threadgroup",
    "dispatch_quadgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
)
# As written -> as our own front end names the type that clang resolved.
_SPELLINGS = {
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long",
    "uint8_t": "uchar",
    "uint16_t": "ushort",
    "uint32_t": "uint",
    "uint64_t": "ulong",
    "size_t": "ulong",
    "ptrdiff_t": "long",
    "unsigned char": "uchar",
    "unsigned short": "ushort",
    "unsigned int": "uint",
    "unsigned": "uint",
    "unsigned long": "ulong",
    "bfloat16_t": "bfloat",
    "float16_t": "half",
}


@dataclass(frozen=True)
class Noted:
    """A parameter. `predicate` is the variable that says whether it is there, if one does."""

    argument: Argument
    predicate: str = ""
    condition: str = ""  # as the author wrote it


@dataclass(frozen=True)
class NotedConstant:
    """A function constant and the variable that takes its value."""

    variable: str
    constant: Constant


@dataclass(frozen=True)
class Notes:
    """What is known of a kernel besides its code."""

    function: str
    parameters: tuple[Noted, ...]
    constants: tuple[NotedConstant, ...]
    max_threads: int | None


Node = list[str]


def read_notes(module: Module, kernel: str) -> Notes:
    """The notes of a module with one kernel."""
    nodes = _nodes(module)
    listed = nodes.get("!air.kernel")
    if not listed:
        raise MetallibError(f"'{kernel}' is no kernel: its module has no air.kernel node")
    function, _, parameters, *more = nodes[listed[0]]
    limits = [nodes[one] for one in more if one in nodes]
    sizes = [_number(row[1]) for row in limits if _word(row[0]) == "air.max_work_group_size"]
    return Notes(
        function.split()[-1],
        tuple(_parameter(nodes, nodes[one], kernel) for one in nodes[parameters]),
        tuple(_constant(nodes[one]) for one in nodes.get("!air.function_constants", [])),
        sizes[0] if sizes else None,
    )


def _nodes(module: Module) -> dict[str, Node]:
    """The items of each node that is a plain list."""
    found = {}
    for name, text in module.nodes().items():
        body = text.removeprefix("distinct ")
        if body.startswith("!{") and body.endswith("}"):
            found[name] = _items(body[2:-1])
    return found


def _items(text: str) -> Node:
    """What stands between commas; a value is one item with its type."""
    reader = Reader(text)
    items, start, depth = [], 0, 0
    while reader.peek:
        token = reader.next()
        depth += (token in ("<", "[", "{", "(")) - (token in (">", "]", "}", ")"))
        if depth == 0 and reader.peek in (",", ""):
            items.append(reader.since(start))
            reader.accept(",")
            start = reader.at
    return items


def _word(item: str) -> str | None:
    """The text of a string, which has its mark in front."""
    if not item.startswith('!"'):
        return None
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), item[2:-1])


def _number(item: str) -> int:
    """`i32 7`, `i1 true`."""
    text = item.split()[-1]
    return {"true": 1, "false": 0}[text] if text in ("true", "false") else int(text)


class _Row:
    """A parameter's node: words, each with what stands behind it."""

    def __init__(self, items: Node) -> None:
        self._items = items
        self.words = [_word(item) for item in items]

    def __contains__(self, word: str) -> bool:
        return word in self.words

    def item(self, word: str) -> str | None:
        return self._items[self.words.index(word) + 1] if word in self.words else None

    def number(self, word: str, default: int = 0) -> int:
        item = self.item(word)
        return default if item is None else _number(item)

    def text(self, word: str) -> str:
        return _word(self.item(word) or "") or ""


def _parameter(nodes: Mapping[str, Node], items: Node, kernel: str) -> Noted:
    row = _Row(items)
    kinds = (word for word in row.words[1:] if word and word.startswith("air."))
    kind = next((word for word in kinds if word != "air.function_constant"), "")
    predicate, condition = "", ""
    if (reference := row.item("air.function_constant")) is not None:
        variable, _, text = nodes[reference][:3]
        predicate, condition = variable.split()[-1], _word(text) or ""
    argument = Argument(
        name=row.text("air.arg_name"),
        role="builtin",
        index=None,
        builtin=kind.removeprefix("air."),
        space=None,
        type=metal_type(row.text("air.arg_type_name")),
        element_size=0,
        element_align=0,
        is_pointer=False,
        is_const=False,
    )
    if kind in _BUFFERS:
        argument = _buffer(nodes, row, argument)
    elif argument.builtin in BUILTINS:
        size, align = builtin_extent(argument.type)
        argument = replace(argument, element_size=size, element_align=align)
    else:
        raise MetallibError(
            f"kernel '{kernel}': parameter '{argument.name}' is of the kind {kind or items},"
            " which anymetal does not run"
        )
    return Noted(argument, predicate, condition)


def _buffer(nodes: Mapping[str, Node], row: _Row, argument: Argument) -> Argument:
    space = row.number("air.address_space", 1)
    fields: tuple[Field, ...] = ()
    if (reference := row.item("air.struct_type_info")) is not None:
        fields = tuple(_fields(nodes, nodes[reference]))
    size = row.number("air.arg_type_size", 1)
    return replace(
        argument,
        role="threadgroup" if space == 3 else "buffer",
        index=row.number("air.location_index"),
        builtin=None,
        space=_SPACES.get(space, f"address space {space}"),
        element_size=size,
        element_align=row.number("air.arg_type_align_size", 1),
        # Of a pointer no size is known, of an array more than one element's.
        is_pointer=row.number("air.buffer_size") != size,
        is_const="air.read" in row,
        fields=fields,
    )


def _fields(nodes: Mapping[str, Node], items: Node) -> list[Field]:
    """Rows of offset, size, array length, type and name. The node of a nested struct stands before
    its row, the place of a pointer in an argument buffer behind it."""
    found: list[Field] = []
    at = 0
    while at < len(items):
        inner: tuple[Field, ...] = ()
        if _word(items[at]) == "air.struct_type_info":
            inner = tuple(_fields(nodes, nodes[items[at + 1]]))
            at += 2
        offset, size, length = (_number(item) for item in items[at : at + 3])
        type_, name = (_word(item) or "" for item in items[at + 3 : at + 5])
        at += 5
        if items[at : at + 1] == ['!"air.indirect_argument"']:
            type_ += "*" if items[at + 1].startswith("!") else ""
            at += 2
        shape = (length,) if length else ()
        found.append(Field(name, metal_type(type_), offset, size, shape, inner))
    return found


def _constant(items: Node) -> NotedConstant:
    variable, type_, name, index, required = items[:5]
    constant = Constant(
        _word(name) or "",
        metal_type(_word(type_) or ""),
        _number(index),
        bool(_number(required)),
    )
    return NotedConstant(variable.split()[-1], constant)


def metal_type(text: str) -> str:
    """A type as the author wrote it, as our own front end names it."""
    text = re.sub(r"\b(const|volatile|device|constant|threadgroup)\b|\bmetal::", "", text).strip()
    return _SPELLINGS.get(text, text)


def builtin_extent(type_: str) -> tuple[int, int]:
    """Size and alignment of uint, ushort3 and the like."""
    match = re.fullmatch(r"(u?(?:char|short|int|long))([234]?)", type_)
    if match is None:
        return 4, 4
    scalar = {"char": 1, "short": 2, "int": 4, "long": 8}[match[1].removeprefix("u")]
    size = scalar * {"": 1, "2": 2, "3": 4, "4": 4}[match[2]]
    return size, size
