"""Named values go in; the bytes of a kernel's struct come out, laid out as Metal lays them out.

A kernel declares `constant Numbers& numbers [[buffer(2)]]`; a call passes a dict, a dataclass or a
NamedTuple with a value for each field. Names, types and ranges are checked against the kernel's own
struct. What can be decided once a kernel is: a launch pays for one `Struct.pack`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy
import torch

from anymetal.engines.choose import checking_target
from anymetal.engines.registry import METAL
from anymetal.launch.declared import Struct, agrees, declared_types, is_record, record_values
from anymetal.msl.arguments import describe_kernels
from anymetal.nouns import Argument, Field, Source
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

if TYPE_CHECKING:
    from typing import TypeGuard

    from _typeshed import DataclassInstance

_CODES = {
    **{"bool": "?", "char": "b", "signed char": "b", "uchar": "B", "short": "h", "ushort": "H"},
    **{"int": "i", "uint": "I", "long": "q", "ulong": "Q", "half": "e", "float": "f"},
    "bfloat": "H",
}
_TYPE = re.compile(rf"(?:packed_)?({'|'.join(_CODES)})([234])?(?:x([234]))?")
_WORD_BYTES = 8
_KEPT_READERS = 64
# What packing values that do not fit a struct raises.
_WRONG = (KeyError, AttributeError, TypeError, ValueError, OverflowError, struct.error)

_Reader = Callable[[Any], tuple[Any, ...]]


class Layout:
    """How the values of one struct argument become its bytes."""

    def __init__(self, kernel: str, argument: Argument) -> None:
        self._kernel = kernel
        self._argument = argument
        self._members = [_Member(field) for field in argument.fields]
        self._names = [field.name for field in argument.fields]
        self._is_simple = all(member.is_simple for member in self._members)
        self._rows = tuple((i, m.extents[0]) for i, m in enumerate(self._members) if m.is_row)
        self._flags = tuple(i for i, m in enumerate(self._members) if m.is_flag)
        self._readers: dict[type, _Reader | None] = {}
        padded = -(-argument.element_size // _WORD_BYTES) * _WORD_BYTES
        self._struct = struct.Struct(_format(list(self._leaves(self._members, 0, "")), padded))
        self._bytes = struct.Struct(f"{padded}s")
        self._words = struct.Struct(f"<{padded // _WORD_BYTES}q")

    def pack(self, values: Any) -> bytes:
        """The struct's bytes, padded to whole words of 64 bits."""
        if type(values) is not Fixed:
            return self._pack(values)
        data = values.packed.get(self)
        if data is None:
            data = values.packed[self] = self._pack(values)
        return data

    def write(self, memory: ctypes.Array[ctypes.c_char], place: int, values: Any) -> bool:
        """Writes the bytes of a dict or a dataclass to a place. False, and part of it may be
        written, for other values and for wrong ones: `pack` takes them, or says what is wrong."""
        try:
            numbers = self._numbers(values)
            if numbers is not None:
                self._struct.pack_into(memory, place, *numbers)
                return True
        except _WRONG:
            return False
        data = self.usual(values)
        if data is None:
            return False
        self._bytes.pack_into(memory, place, data)
        return True

    def usual(self, values: Any) -> bytes | None:
        """The bytes of a dict or a dataclass; None for other values and for wrong ones."""
        kind = type(values)
        if kind is not dict and kind is not Fixed and not _is_dataclass(kind):
            return None
        try:
            return self.pack(values)
        except _WRONG:
            return None

    def _numbers(self, values: Any) -> Sequence[Any] | None:
        """The numbers of a simple struct in the order of memory; None where it is another one, or
        values by name of another kind than dicts and dataclasses."""
        kind = type(values)
        try:
            read = self._readers[kind]
        except KeyError:
            read = self._new_reader(kind)
        if read is None or (kind is dict and len(values) != len(self._names)):
            return None
        numbers = read(values)
        for index in self._flags:
            if type(numbers[index]) is not bool:
                return None
        return self._unrolled(numbers) if self._rows else numbers

    def _unrolled(self, numbers: Sequence[Any]) -> Sequence[Any] | None:
        """Vectors and arrays of numbers become their elements."""
        unrolled: list[Any] = []
        start = 0
        for index, length in self._rows:
            row = numbers[index]
            if len(row) != length:
                return None
            unrolled += numbers[start:index]
            unrolled += row
            start = index + 1
        unrolled += numbers[start:]
        return unrolled

    def _new_reader(self, kind: type) -> _Reader | None:
        read = _reader(kind, self._names) if self._is_simple else None
        if len(self._readers) >= _KEPT_READERS:
            self._readers.clear()
        self._readers[kind] = read
        return read

    def _pack(self, values: Any) -> bytes:
        with contextlib.suppress(*_WRONG):  # what is wrong is said below
            numbers = self._numbers(values)
            if numbers is not None:
                return self._struct.pack(*numbers)
        named = as_mapping(values)
        if isinstance(values, Struct) or is_record(values):
            self._check_declared(values)
        try:
            return self._struct.pack(*_flattened(self._members, named, []))
        except _WRONG:
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
        self.is_flag = scalar == "bool" and not self.extents and not self.enumerators
        self.is_simple = self.is_plain or self.is_row or self.is_flag

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


def _reader(kind: type, names: Sequence[str]) -> _Reader | None:
    """What takes the values with some names from a dict, or from a dataclass that has these fields
    and no other way to tell them; None for other types."""
    if kind is dict:
        return _several(operator.itemgetter, names)
    told = issubclass(kind, Mapping | ctypes.Structure | numpy.void) or hasattr(kind, "_asdict")
    if told or not _is_dataclass(kind) or {field.name for field in fields(kind)} != set(names):
        return None
    return _several(operator.attrgetter, names)


def _is_dataclass(kind: type) -> TypeGuard[type[DataclassInstance]]:
    return hasattr(kind, "__dataclass_fields__") and not issubclass(kind, torch.Tensor)


def _several(getter: Callable[..., Any], names: Sequence[str]) -> _Reader:
    """A getter gives a tuple only where it has several names."""
    if len(names) > 1:
        several: _Reader = getter(*names)
        return several
    single = [getter(name) for name in names]
    return lambda values: tuple([get(values) for get in single])


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
