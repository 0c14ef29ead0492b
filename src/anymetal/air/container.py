"""Bytes of a metallib <-> the functions in it: names, versions, function constants, bitcode.

A metallib is a header of 88 bytes, a list of functions, two lists of notes for each of them
(public: function constants; private: where debug information came from) and the bitcode of all.
Every entry is a row of tags. What a file claims is checked before it is believed: each offset and
size must lie inside the file, else the error says which does not.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from anymetal.errors import MetallibError

MAGIC = b"MTLB"
KERNEL = 2  # of the kinds a function may be: vertex, fragment, kernel, ...
_HEADER = struct.Struct("<4s12s9Q")
_PLATFORM = bytes.fromhex("018002000700008119000000")  # macOS, library, as Apple's compiler has it
_END = b"ENDT"
_MOST_FUNCTIONS = 1 << 20
# What Metal calls the types that a function constant may have, by Apple's numbers.
_TYPES = {
    3: "float", 4: "float2", 5: "float3", 6: "float4",
    16: "half", 17: "half2", 18: "half3", 19: "half4",
    29: "int", 30: "int2", 31: "int3", 32: "int4",
    33: "uint", 34: "uint2", 35: "uint3", 36: "uint4",
    37: "short", 38: "short2", 39: "short3", 40: "short4",
    41: "ushort", 42: "ushort2", 43: "ushort3", 44: "ushort4",
    45: "char", 46: "char2", 47: "char3", 48: "char4",
    49: "uchar", 50: "uchar2", 51: "uchar3", 52: "uchar4",
    53: "bool", 54: "bool2", 55: "bool3", 56: "bool4",
    81: "long", 85: "ulong", 121: "bfloat",
}  # fmt: skip
_NUMBERS = {name: number for number, name in _TYPES.items()}

Tags = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Constant:
    """A function constant as the container lists it."""

    name: str
    type: str
    index: int
    is_required: bool


@dataclass(frozen=True)
class LibraryFunction:
    """One function of a metallib. `air` and `language` are versions: (2, 6) and (3, 1)."""

    name: str
    bitcode: bytes = field(repr=False)
    air: tuple[int, int] = (2, 6)
    language: tuple[int, int] = (3, 1)
    kind: int = KERNEL
    constants: tuple[Constant, ...] = ()


class Metallib:
    """The functions of a metallib, found by name; their bitcode stays in the file's bytes."""

    def __init__(self, data: bytes, name: str) -> None:
        self.name = name
        self._file = _File(data, name)

    @cached_property
    def _rows(self) -> dict[str, Tags]:
        return self._file.functions()

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels, in the file's order."""
        return tuple(name for name, tags in self._rows.items() if _kind(tags) == KERNEL)

    def function(self, name: str) -> LibraryFunction:
        """One function, with its bitcode. Raises MetallibError where that is not what the file's
        own digest says."""
        tags = self._rows[name]
        return self._file.function(name, tags)

    def functions(self) -> Iterator[LibraryFunction]:
        return (self.function(name) for name in self._rows)


def _kind(tags: Tags) -> int:
    kinds = dict(tags).get(b"TYPE", b"")
    return kinds[0] if kinds else -1


class _File:
    """A file's bytes, and the parts that its header names."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        if len(data) < _HEADER.size:
            raise self._wrong(f"has {len(data)} bytes, and a header alone has {_HEADER.size}")
        magic, _, size, *parts = _HEADER.unpack_from(data)
        if magic != MAGIC:
            raise self._wrong(f"begins with {magic!r}, and a metallib begins with {MAGIC!r}")
        if size > len(data):
            raise self._wrong(f"has {len(data)} bytes of the {size} that its header names")
        self._size = size
        names = ("function list", "public notes", "private notes", "bitcode")
        pairs = zip(parts[::2], parts[1::2], strict=True)
        self._parts = {
            part: self._inside(*pair, f"the {part}")
            for part, pair in zip(names, pairs, strict=True)
        }

    def _wrong(self, what: str) -> MetallibError:
        return MetallibError(f"{self._name}: no usable metallib: it {what}")

    def _inside(self, offset: int, size: int, what: str) -> tuple[int, int]:
        """The place as start and end, which the file must have."""
        if offset + size > self._size:
            raise self._wrong(
                f"has {self._size} bytes, and {what} is at {offset} with {size} bytes"
            )
        return offset, offset + size

    def _number(self, offset: int, end: int, what: str) -> int:
        if offset + 4 > end:
            raise self._wrong(f"ends inside {what}, at byte {offset}")
        return int(struct.unpack_from("<I", self._data, offset)[0])

    def functions(self) -> dict[str, Tags]:
        start, end = self._parts["function list"]
        # The size that the header names leaves out the four bytes of the count.
        end = min(end + 4, self._size)
        count = self._number(start, end, "the function list")
        if count > _MOST_FUNCTIONS:
            raise self._wrong(f"names {count} functions, more than {_MOST_FUNCTIONS}")
        found: dict[str, Tags] = {}
        at = start + 4
        for number in range(count):
            what = f"entry {number} of the function list"
            size = self._number(at, end, what)
            if size < 4 or at + size > end:
                raise self._wrong(f"ends inside {what}, of {size} bytes at byte {at}")
            tags = tuple(self._tags(at + 4, at + size, what))
            found[self._text(dict(tags).get(b"NAME"), what)] = tags
            at += size
        return found

    def _tags(self, at: int, end: int, what: str) -> Iterator[tuple[bytes, bytes]]:
        while True:
            tag = self._data[at : at + 4]
            if tag == _END and at + 4 <= end:
                return
            if at + 6 > end:
                raise self._wrong(f"ends inside {what}, at byte {at}")
            (size,) = struct.unpack_from("<H", self._data, at + 4)
            at += 6 + size
            if at > end:
                raise self._wrong(f"ends inside the tag {tag!r} of {what}")
            yield tag, self._data[at - size : at]

    def _text(self, value: bytes | None, what: str) -> str:
        if value is None:
            raise self._wrong(f"has no name in {what}")
        try:
            return value.rstrip(b"\0").decode()
        except UnicodeDecodeError:
            raise self._wrong(f"has a name in {what} that is no text: {value[:40]!r}") from None

    def function(self, name: str, tags: Tags) -> LibraryFunction:
        given = dict(tags)
        for tag, size in ((b"OFFT", 24), (b"MDSZ", 8), (b"VERS", 8)):
            if len(given.get(tag, b"")) != size:
                raise self._wrong(f"has no tag {tag.decode()} of {size} bytes for '{name}'")
        public, _, at = struct.unpack("<3Q", given[b"OFFT"])
        (size,) = struct.unpack("<Q", given[b"MDSZ"])
        start, end = self._parts["bitcode"]
        if at + size > end - start:
            raise self._wrong(
                f"has {end - start} bytes of bitcode, and that of '{name}' is at {at} with {size}"
            )
        bitcode = self._data[start + at : start + at + size]
        digest = given.get(b"HASH")
        if digest is not None and hashlib.sha256(bitcode).digest() != digest:
            raise self._wrong(f"has bitcode of '{name}' that is not what its digest says")
        versions = struct.unpack("<4H", given[b"VERS"])
        constants = tuple(self._constants(public, name))
        return LibraryFunction(name, bitcode, versions[:2], versions[2:], _kind(tags), constants)

    def _constants(self, at: int, name: str) -> Iterator[Constant]:
        start, end = self._parts["public notes"]
        if start == end:
            return
        what = f"the public notes of '{name}'"
        if start + at + 4 > end:
            raise self._wrong(
                f"has {end - start} bytes of public notes, and those of '{name}' at {at}"
            )
        size = self._number(start + at, end, what)
        # Apple's tools count these four bytes as part of the list, or do not.
        last = min(start + at + 4 + size, end)
        for tag, value in self._tags(start + at + 4, last, what):
            if tag == b"CNST":
                yield from self._listed(value, what)

    def _listed(self, value: bytes, what: str) -> Iterator[Constant]:
        if len(value) < 2:
            raise self._wrong(f"ends inside the function constants of {what}")
        (count,) = struct.unpack_from("<H", value)
        at = 2
        for _ in range(count):
            stop = value.find(b"\0", at)
            if stop < 0 or stop + 5 > len(value):
                raise self._wrong(f"ends inside the function constants of {what}")
            kind, index, required = struct.unpack_from("<BHB", value, stop + 1)
            text = self._text(value[at:stop], what)
            yield Constant(text, _TYPES.get(kind, f"type {kind}"), index, bool(required))
            at = stop + 5


# ---- writing -------------------------------------------------------------------------------------


def write_metallib(functions: Iterable[LibraryFunction]) -> bytes:
    """A metallib of these functions, as `Metallib` and Apple's tools read it."""
    listed = list(functions)
    rows, public, private, bitcode = b"", b"", b"", b""
    for function in listed:
        tags = (
            (b"NAME", function.name.encode() + b"\0"),
            (b"TYPE", bytes([function.kind])),
            (b"HASH", hashlib.sha256(function.bitcode).digest()),
            (b"OFFT", struct.pack("<3Q", len(public), len(private), len(bitcode))),
            (b"VERS", struct.pack("<4H", *function.air, *function.language)),
            (b"MDSZ", struct.pack("<Q", len(function.bitcode))),
        )
        rows += _entry(tags, counted=True)
        public += _entry(_constant_tags(function.constants), counted=False)
        private += _entry((), counted=False)
        bitcode += function.bitcode
    body = struct.pack("<I", len(listed)) + rows + _END
    parts, at = [_HEADER.size, len(rows)], _HEADER.size + len(body)
    for part in (public, private, bitcode):
        parts += [at, len(part)]
        at += len(part)
    return _HEADER.pack(MAGIC, _PLATFORM, at, *parts) + body + public + private + bitcode


def _entry(tags: Iterable[tuple[bytes, bytes]], *, counted: bool) -> bytes:
    """Tags behind their length, which counts its own four bytes or does not."""
    body = b"".join(tag + struct.pack("<H", len(value)) + value for tag, value in tags) + _END
    return struct.pack("<I", len(body) + 4 * counted) + body


def _constant_tags(constants: tuple[Constant, ...]) -> Tags:
    if not constants:
        return ()
    rows = b"".join(
        one.name.encode()
        + b"\0"
        + struct.pack("<BHB", _NUMBERS[one.type], one.index, one.is_required)
        for one in constants
    )
    return ((b"CNST", struct.pack("<H", len(constants)) + rows),)
