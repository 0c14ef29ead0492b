"""A content-addressed store on disk: a key and bytes go in, the same bytes come out, or nothing.

One file holds one entry: a magic word, the sha256 of the rest, a JSON note and a payload. Files are
written beside their place and moved into it, so that any number of processes may read and write at
once. The store holds machine code, so it is used only where nobody else can write.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anymetal import settings

# Part of the path: a new layout never meets files of an old one.
LAYOUT = "v1"

_MAGIC = b"anymetal"
_DIGEST_BYTES = 32
_NOTE_LENGTH = struct.Struct("<I")
_HEADER_BYTES = len(_MAGIC) + _DIGEST_BYTES + _NOTE_LENGTH.size

# An entry's time of last use is refreshed when it is older than this, to spare a write per read.
_REFRESH_SECONDS = 60.0
# Other processes write too: count the whole directory again after this many entries of our own.
_PUTS_BETWEEN_COUNTS = 16
# A temporary file this old belongs to a process that died while writing.
_STALE_SECONDS = 3600.0


@dataclass(frozen=True)
class Entry:
    """What was stored under a key: a small note that reads as JSON, and bytes."""

    note: dict[str, Any]
    payload: bytes


@dataclass(frozen=True)
class Usage:
    """How full a store is, for `anymetal cache info`."""

    directory: Path
    persistent: bool
    entries: int
    size: int
    limit: int


def digest_of(*parts: str | bytes) -> str:
    """A key made of parts. Each part is preceded by its length, so that no two lists collide."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


class Store:
    """Entries in one private directory, the least recently used dropped beyond `limit` bytes."""

    def __init__(self, directory: Path, limit: int, *, persistent: bool = True) -> None:
        self.directory = directory
        self.limit = limit
        self.persistent = persistent
        self._root = directory / LAYOUT
        self._lock = threading.Lock()
        self._counted = -1
        self._puts = 0

    def get(self, kind: str, key: str) -> Entry | None:
        """The entry, or None. A damaged file is removed and counts as absent."""
        path = self._path(kind, key)
        try:
            with path.open("rb") as file:
                data = file.read()
                last_use = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        entry = _decode(data)
        if entry is None:
            _remove(path)
            return None
        self._touch(path, last_use)
        return entry

    def put(self, kind: str, key: str, note: dict[str, Any], payload: bytes = b"") -> None:
        """Store an entry. A full or read-only disk is not an error: the entry is not kept."""
        data = _encode(note, payload)
        with contextlib.suppress(OSError):
            self._write(self._path(kind, key), lambda path: _write_bytes(path, data))
            self._bound(len(data))

    def file(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """The path of a file that other programs read, built once by `build(path)`.

        Its contents are not digested on each use: for files such as precompiled headers, which
        their reader validates itself.
        """
        path = self._path(kind, key)
        try:
            self._touch(path, path.stat().st_mtime)
        except OSError:
            self._write(path, build)
            self._bound(path.stat().st_size)
        return path

    def usage(self) -> Usage:
        """Count what is there now."""
        sizes = [status.st_size for _, status in self._files()]
        return Usage(self.directory, self.persistent, len(sizes), sum(sizes), self.limit)

    def clear(self) -> Usage:
        """Remove every entry, of older layouts too; returns what was there."""
        before = self.usage()
        if self.directory.is_dir():
            for child in self.directory.iterdir():
                if child.is_dir() and re.fullmatch(r"v\d+", child.name):
                    shutil.rmtree(child, ignore_errors=True)
        self._counted = 0
        return before

    def prune(self) -> None:
        """Drop the least recently used entries until nine tenths of the limit are left."""
        files = sorted(self._files(), key=lambda item: item[1].st_mtime)
        total = sum(status.st_size for _, status in files)
        if total > self.limit:
            for path, status in files:
                if total <= self.limit * 0.9:
                    break
                _remove(path)
                total -= status.st_size
        self._counted = total

    def _path(self, kind: str, key: str) -> Path:
        return self._root / kind / key[:2] / key

    def _write(self, path: Path, build: Callable[[Path], None]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            build(temporary)
            temporary.replace(path)
        finally:
            _remove(temporary)

    def _touch(self, path: Path, last_use: float) -> None:
        if time.time() - last_use > _REFRESH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)

    def _bound(self, added: int) -> None:
        with self._lock:
            self._puts += 1
            self._counted += added
            recount = self._puts % _PUTS_BETWEEN_COUNTS == 1
            if recount or self._counted > self.limit:
                self.prune()

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder, _, names in os.walk(self._root):
            for name in names:
                path = Path(folder, name)
                try:
                    status = path.stat()
                except OSError:
                    continue
                if not name.startswith("."):
                    yield path, status
                elif time.time() - status.st_mtime > _STALE_SECONDS:
                    _remove(path)


def default_store() -> Store:
    """The store that ANYMETAL_CACHE_DIR names, or a private temporary one where that is unsafe."""
    limit = int(settings.CACHE_MEGABYTES.value() * 1024 * 1024)
    return _store(settings.CACHE_DIR.value().absolute(), limit)


@functools.lru_cache(maxsize=8)
def _store(directory: Path, limit: int) -> Store:
    reason = _make_private(directory)
    if reason is None:
        return Store(directory, limit)
    temporary = Path(tempfile.mkdtemp(prefix="anymetal-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    warnings.warn(
        f"anymetal keeps no kernels in {directory}: {reason}. Compiled kernels are kept in a"
        f" temporary directory until this process ends; set {settings.CACHE_DIR.variable} to a"
        " directory that only you can write.",
        RuntimeWarning,
        stacklevel=2,
    )
    return Store(temporary, limit, persistent=False)


def _make_private(directory: Path) -> str | None:
    """Create the directory for its owner alone; returns why it cannot be trusted, if so."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return untrusted(directory)
    except OSError as error:
        return f"it cannot be used ({error.strerror or error})"


def untrusted(directory: Path) -> str | None:
    """Why others could place files in this directory, or None. Windows profiles are private."""
    if not hasattr(os, "getuid"):
        return None
    user = os.getuid()
    place = directory.resolve()
    status = place.stat()
    if status.st_uid != user:
        return "it belongs to another user"
    if _others_write(status):
        return "other users can write to it"
    for parent in place.parents:
        status = parent.stat()
        if status.st_uid not in (0, user):
            return f"{parent} belongs to another user"
        if _others_write(status) and not status.st_mode & stat.S_ISVTX:
            return f"other users can write to {parent}"
    return None


def _others_write(status: os.stat_result) -> bool:
    """True where the mode lets others write; a group that has the user's own number is private."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and status.st_gid != status.st_uid


def _encode(note: dict[str, Any], payload: bytes) -> bytes:
    text = json.dumps(note, separators=(",", ":")).encode()
    body = _NOTE_LENGTH.pack(len(text)) + text + payload
    return _MAGIC + hashlib.sha256(body).digest() + body


def _decode(data: bytes) -> Entry | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    if len(data) < _HEADER_BYTES or data[: len(_MAGIC)] != _MAGIC:
        return None
    if hashlib.sha256(memoryview(data)[start:]).digest() != data[len(_MAGIC) : start]:
        return None
    (length,) = _NOTE_LENGTH.unpack_from(data, start)
    middle = _HEADER_BYTES + length
    try:
        note = json.loads(data[_HEADER_BYTES:middle])
    except ValueError:
        return None
    return Entry(note, data[middle:]) if isinstance(note, dict) else None


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
