"""Metallibs inside other files: wheels and other zip files, dynamic libraries, or by themselves."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anymetal.air.container import MAGIC, Metallib
from anymetal.errors import MetallibError
from anymetal.nouns import MetallibSource

SUFFIXES = (".metallib", ".dylib", ".whl")
_ZIP = b"PK\3\4"
_INSIDE_ZIP = (".metallib", ".dylib", ".so")
_HEADER_BYTES = 88
_LARGEST = 1 << 31  # bytes of one file in an archive


@dataclass(frozen=True)
class Found:
    """One metallib: how it is picked, and its bytes."""

    name: str
    data: bytes = field(repr=False)


def metallibs_in(data: bytes, file: str) -> list[Found]:
    """Every metallib of a file. Raises MetallibError where there is none."""
    if data[:4] == MAGIC:
        return [Found(file, data)]
    found = list(_in_zip(data, file) if data[:4] == _ZIP else _in_bytes(data, ""))
    if not found:
        raise MetallibError(f"{file}: no metallib, and none inside ({len(data)} bytes)")
    return found


def pick(data: bytes, file: str, wanted: str | None) -> Found:
    """The one metallib that is wanted, by its name or number; the only one where none is named."""
    found = metallibs_in(data, file)
    names = [one.name for one in found]
    if wanted is None and len(found) == 1:
        return found[0]
    listed = ", ".join(f"{number}: {name}" for number, name in enumerate(names))
    if wanted is None:
        raise MetallibError(f"{file} holds {len(found)} metallibs; name one of them: {listed}")
    if wanted in names:
        return found[names.index(wanted)]
    if wanted.isdigit() and int(wanted) < len(found):
        return found[int(wanted)]
    raise MetallibError(f"{file} holds no metallib {wanted!r}; it holds {listed}")


def metallib_source(
    source: str | os.PathLike[str] | bytes | bytearray, library: str | None
) -> MetallibSource:
    """The one metallib that is meant, as a Source."""
    if isinstance(source, bytes | bytearray):
        name, data = "<metallib>", bytes(source)
    elif isinstance(source, str | os.PathLike):
        name, data = str(source), Path(source).read_bytes()
    else:
        raise TypeError(
            f"load_metallib takes a path or bytes, not {type(source).__name__}: {source!r:.60}"
        )
    found = pick(data, name, library)
    shown = name if found.name == name else f"{name}::{found.name}"
    return MetallibSource(hashlib.sha256(found.data).hexdigest(), name=shown, data=found.data)


def _in_zip(data: bytes, file: str) -> Iterator[Found]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(_INSIDE_ZIP):
                    continue
                if member.file_size > _LARGEST:
                    raise MetallibError(
                        f"{file}: {member.filename} has {member.file_size} bytes, more than"
                        f" {_LARGEST}"
                    )
                content = archive.read(member)
                if content[:4] == MAGIC:
                    yield Found(member.filename, content)
                else:
                    yield from _in_bytes(content, member.filename)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        if isinstance(error, MetallibError):
            raise
        raise MetallibError(f"{file}: a damaged zip file: {error}") from None


def _in_bytes(data: bytes, name: str) -> Iterator[Found]:
    """The places where a header begins whose parts all lie inside."""
    at, number = data.find(MAGIC), 0
    while at >= 0:
        size = _claimed(data, at)
        part = data[at : at + size]
        if size and _is_metallib(part):
            yield Found(f"{name}#{number}", part)
            number += 1
            at += size - 1
        at = data.find(MAGIC, at + 1)


def _claimed(data: bytes, at: int) -> int:
    """The size that a header names, 0 where there is no room for it."""
    if at + _HEADER_BYTES > len(data):
        return 0
    size = int(struct.unpack_from("<Q", data, at + 16)[0])
    return size if _HEADER_BYTES <= size <= len(data) - at else 0


def _is_metallib(data: bytes) -> bool:
    try:
        return len(Metallib(data, "part").kernels) >= 0
    except MetallibError:
        return False
