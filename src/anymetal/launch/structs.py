"""Named values go in; the bytes of a kernel's struct come out, laid out as Metal lays them out.

A kernel declares `constant Numbers& numbers [[buffer(2)]]`; a call passes a dict, a dataclass or a
NamedTuple with a value for each field. Names, types and ranges are checked against the kernel's own
struct. What can be decided once a kernel is: a launch pays for one `Struct.pack`.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from math import prod
from typing import Any, NoReturn

import torch

from anymetal.engines.choose import checking_target
from anymetal.engines.registry import METAL
from anymetal.launch.declared import Struct, agrees, declared_types, is_record, record_values
from anymetal.msl.arguments import describe_kernels
from anymetal.nouns import Argument, Field, Source
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

_CODES = {
    **{"bool": "?", "char": "b", "signed char": "b", "uchar": "B", "short": "h", "ushort": "H"},
    **{"int": "i", "uint": "I", "long": "q", "ulong": "Q", "half": "e", "float": "f"},
    "bfloat": "H",
}
_TYPE = re.compile(rf"(?:packed_)?({'|'.join(_CODES)})([234])?(?:x([234]))?")
_WORD_BYTES = 8


class Layout:
    """How the values of one struct argument become its bytes."""

    def __init__(self, kernel: str, argument: Argument) -> None:
        self._kernel = kernel
        self._argument = argument
        self._members = [_Member(field) for field in argument.fields]
        self._names = [field.name for field in argument.fields]
        self._is_flat = all(member.is_plain for member in self._members)
        padded = -(-argument.element_size // _WORD_BYTES) * _WORD_BYTES
        self._struct = struct.Struct(_format(list(self._leaves(self._members, 0, "")), padded))
        self._words = struct.Struct(f"<{padded // _WORD_BYTES}q")

    def pack(self, values: Any) -> bytes:
        """The struct's bytes, padded to whole words of 64 bits."""
        if type(values) is not Fixed:
            return self._pack(values)
        data = values.packed.get(self)
        if data is None:
            data = values.packed[self] = self._pack(values)
        return data

    def _pack(self, values: Any) -> bytes:
        named = as_mapping(values)
        if isinstance(values, Struct) or is_record(values):
            self._check_declared(values)
        try:
            if self._is_flat and len(named) == len(self._names):
                return self._struct.pack(*[named[name] for name in self._names])
            return self._struct.pack(*_flattened(self._members, named, []))
        except (KeyError, TypeError, ValueError, OverflowError, struct.error):
            self._explain(self._members, named, "")
            raise

    def _check_declared(self, values: Any) -> None:
        """The types that the caller's struct declares are the kernel's."""
        said = declared_types(values) or {}
        if isinstance(values, Struct) and list(said) != self._names:
            listed = "; ".join(f"{member} {member.name}" for member in self._members)
            self._fail(TypeError, f"is declared as '{listed}', not as {values!r}")
        for member in self._members:
            word = said.get(member.name, "")
            if not agrees(word, str(member), member.scalar):
                self._fail(
                    TypeError, f"field '{member.name}' is {member}, but the struct has {word}"
                )

    def words(self, values: Any) -> list[int]:
        """The bytes as a list of integers: what torch.mps copies into a kernel's arguments."""
        return list(self._words.unpack(self.pack(values)))

    def _leaves(
        self, members: Sequence[_Member], start: int, prefix: str
    ) -> Iterator[tuple[int, int, str]]:
        """Offset, count and code of the numbers of a struct, in the order of memory."""
        for member in members:
            path, field = prefix + member.name, member.field
            if not member.code and not member.members:
                self._fail(TypeError, f"has a field '{path}' ({member}) that takes no value")
            for number in range(prod(field.shape)):
                offset = start + field.offset + number * field.size
                if member.members:
                    yield from self._leaves(member.members, offset, f"{path}.")
                for column in range(member.columns if member.code else 0):
                    step = column * field.size // member.columns
                    yield offset + step, member.length, member.code

    def _explain(self, members: Sequence[_Member], values: Mapping[str, Any], prefix: str) -> None:
        """Says which value is wrong; only a call that failed comes here."""
        names = [member.name for member in members]
        for name in values:
            if name not in names:
                listed = ", ".join(f"'{name}'" for name in names)
                self._fail(TypeError, f"has no field '{prefix}{name}'; it has {listed}")
        for member in members:
            path = f"'{prefix}{member.name}' ({member})"
            if member.name not in values:
                self._fail(TypeError, f"got no value for field {path}")
            try:
                items = list(_nested(values[member.name], member.extents))
                named = [as_mapping(item) for item in items] if member.members else []
            except (TypeError, ValueError) as error:
                self._fail(type(error), f"field {path}: {error}")
            for item in named:
                self._explain(member.members, item, f"{prefix}{member.name}.")
            for item in () if member.members else items:
                self._explain_number(member, item, path)

    def _explain_number(self, member: _Member, value: object, path: str) -> None:
        try:
            struct.pack(f"<{member.code}", member.number(value))
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            if isinstance(value, str) and member.enumerators:
                self._fail(ValueError, f"field {path}: {error}")
            if member.accepts(value):
                self._fail(ValueError, f"field {path}: {value!r} does not fit")
            self._fail(TypeError, f"field {path}: the value is {value!r}")

    def _fail(self, kind: type[Exception], message: str) -> NoReturn:
        place = f"argument '{self._argument.name}' (buffer {self._argument.index})"
        raise kind(f"{self._kernel}: {place} {message}")


class Fixed(dict[str, Any]):
    """Values by name that nobody changes: they are packed once for each struct that takes them.

    Who launches the same shapes again and again keeps one.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.packed: dict[Layout, bytes] = {}


class _Member:
    """A field with what its type means: which numbers, how many, in which arrays."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.name
        self.members = [_Member(inner) for inner in field.fields]
        match = _TYPE.fullmatch(field.type)
        scalar, first, second = match.group(1, 2, 3) if match else ("", None, None)
        self.scalar = scalar
        self.code = _CODES.get(scalar, "")
        # A matrix is spelled columns x rows and stored column by column.
        self.columns = int(first) if first and second else 1
        self.length = int(second or first or 1)
        self.extents = field.shape + ((self.columns,) if second else ())
        self.extents += (self.length,) if first else ()
        self.enumerators = dict(field.enumerators)
        unusual = scalar in ("bool", "bfloat") or bool(self.enumerators)
        self.is_plain = bool(self.code) and not self.extents and not unusual
        self.is_row = bool(self.code) and len(self.extents) == 1 and not unusual

    def __str__(self) -> str:
        return self.field.type + "".join(f"[{extent}]" for extent in self.field.shape)

    def number(self, value: Any) -> Any:
        """A number as `struct` takes it; an enumerator goes by its name."""
        if self.enumerators and isinstance(value, str):
            if value not in self.enumerators:
                raise ValueError(f"{value!r} is none of {', '.join(self.enumerators)}")
            return self.enumerators[value]
        if self.scalar == "bool" and not isinstance(value, bool):
            raise TypeError
        if self.scalar == "bfloat":
            return torch.tensor(float(value), dtype=torch.bfloat16).view(torch.uint16).item()
        return value

    def accepts(self, value: object) -> bool:
        """Whether a value is of the right kind, if perhaps too large."""
        floating = self.scalar in ("half", "float", "bfloat")
        return isinstance(value, int | float if floating else int) and self.scalar != "bool"


def _format(leaves: Sequence[tuple[int, int, str]], size: int) -> str:
    parts, end = ["<"], 0
    for offset, count, code in leaves:
        parts.append(f"{offset - end}x{count}{code}")
        end = offset + count * struct.calcsize(f"<{code}")
    return "".join([*parts, f"{size - end}x"])


def _flattened(members: Sequence[_Member], values: Mapping[str, Any], into: list[Any]) -> list[Any]:
    """The numbers of a struct in the order of memory, appended to a list: quicker than yielding."""
    if len(values) != len(members):
        raise KeyError
    for member in members:
        value = values[member.name]
        if member.is_plain:
            into.append(value)
        elif member.is_row and len(value) == member.extents[0]:
            into.extend(value)
        elif member.members:
            for item in _nested(value, member.extents) if member.extents else (value,):
                _flattened(member.members, as_mapping(item), into)
        else:
            into.extend(member.number(item) for item in _nested(value, member.extents))
    return into


def _nested(value: Any, extents: Sequence[int]) -> Iterator[Any]:
    """The structs or numbers of an array, a vector or a matrix, one by one."""
    if not extents:
        yield value
        return
    if len(value) != extents[0]:
        raise ValueError(f"{extents[0]} values are expected, got {len(value)}")
    for item in value:
        yield from _nested(item, extents[1:])


def is_named(value: object) -> bool:
    """Whether an argument is values by name: a mapping, a dataclass, a NamedTuple or a record."""
    if is_record(value):
        return True
    return isinstance(value, dict | Mapping) or hasattr(value, "_asdict") or is_dataclass(value)


def as_mapping(values: Any) -> Mapping[str, Any]:
    """Values by name; a TypeError for what has none."""
    if is_record(values):
        return record_values(values)
    if isinstance(values, dict | Mapping):
        return values
    if hasattr(values, "_asdict"):
        named: Mapping[str, Any] = values._asdict()
        return named
    if is_dataclass(values):
        return {field.name: getattr(values, field.name) for field in fields(values)}
    raise TypeError(f"values by name are expected, got {type(values).__name__}")


def integers(values: Any) -> Iterator[int]:
    """All integers among values by name and what they hold."""
    if isinstance(values, int):
        yield values
    elif is_named(values):
        for value in as_mapping(values).values():
            yield from integers(value)
    elif isinstance(values, Sequence) and not isinstance(values, str):
        for value in values:
            yield from integers(value)


class Structs:
    """A kernel of torch.mps whose struct arguments take named values, as ours do."""

    def __init__(
        self, kernel: Callable[..., None], name: str, arguments: tuple[Argument, ...]
    ) -> None:
        self.name = name
        self.arguments = arguments
        self._kernel = kernel
        self._layouts = {a.index: Layout(name, a) for a in arguments if a.fields}

    def __call__(self, *args: Any, **keywords: Any) -> None:
        packed = (
            self._layouts[i].words(arg) if i in self._layouts and is_named(arg) else arg
            for i, arg in enumerate(args)
        )
        self._kernel(*packed, **keywords)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._kernel, attribute)


@functools.cache
def reflected(source: Source) -> Mapping[str, tuple[Argument, ...]]:
    """The arguments of every kernel of a source that includes no files, kept on disk."""
    key = digest_of(fingerprint("tools", "processor", "compiler"), repr(source))
    entry = default_store().get("arguments", key)
    if entry is None:
        found = describe_kernels(METAL.prepared(source), checking_target())
        rows = {name: [asdict(argument) for argument in found[name]] for name in found}
        default_store().put("arguments", key, rows)
        return found
    return {
        name: tuple(Argument.from_row(row) for row in rows) for name, rows in entry.note.items()
    }
