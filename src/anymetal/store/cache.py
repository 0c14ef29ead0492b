"""A content-addressed store on disk: a key and bytes go in, the same bytes come out, or nothing.

One file holds one entry: a magic word, the sha256 of its place and of the rest, a JSON note and a
payload. Files are written beside their place and moved into it, so that any number of processes may
read and write at once. The store holds machine code, so it is used only where nobody else can
write.

Only what the store wrote is ever deleted: in a directory that carries its marker, files whose names
have the form it gives them.
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
LAYOUT = "v3"
# What makes a directory a store's own. Backup programs know this name and skip the directory.
MARKER = "CACHEDIR.TAG"

_SIGNATURE = "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled kernels of anymetal.\n"
_LAYOUT_NAME = re.compile(r"v\d+")
_LOCK_NAME = re.compile(r"[a-z]+-[0-9a-f]+\.lock")
_KEY_NAME = re.compile(r"[0-9a-f]{64}")
_TEMPORARY_PREFIX = ".anymetal-"

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
            data = self._read(path)
            last_use = path.stat().st_mtime
        except OSError:
            return None
        entry = decode(data, f"{kind}/{key}")
        if entry is None:
            _remove(path)
            return None
        self._touch(path, last_use)
        return entry

    def all(self, kind: str) -> Iterator[Entry]:
        """Every entry of a kind, in the order of their keys."""
        for path, _ in sorted(_entries(self._root / kind)):
            entry = self.get(kind, path.name)
            if entry is not None:
                yield entry

    def put(self, kind: str, key: str, note: dict[str, Any], payload: bytes = b"") -> None:
        """Store an entry. A full or read-only disk is not an error: the entry is not kept."""
        data = encode(note, payload, f"{kind}/{key}")
        with contextlib.suppress(OSError):
            self._write(self._path(kind, key), lambda path: _write_bytes(path, data))
            self._bound(len(data))

    def file(self, kind: str, key: str, build: Callable[[Path], None]) -> Path:
        """The path of a file that other programs read, built by `build(path)` unless it is there.

        One that is not as it was built counts as absent. Where the place cannot be written it is
        built for this process alone. Callers ask once a process: the digest of a precompiled header
        takes 20 ms.
        """
        path = self._path(kind, key)
        if self.is_intact(kind, key):
            self._touch(path, path.stat().st_mtime)
            return path
        try:
            self._write(path, build)
        except OSError as error:
            if not self.persistent:
                raise
            why = f"{path} cannot be written ({error.strerror or error})"
            return _temporary_store(self.directory, why, self.limit).file(kind, key, build)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.put(f"{kind}-digest", key, {"sha256": digest})
        self._bound(path.stat().st_size)
        return path

    def is_intact(self, kind: str, key: str) -> bool:
        """Whether a file is there as it was built."""
        known = self.get(f"{kind}-digest", key)
        try:
            data = self._read(self._path(kind, key))
        except OSError:
            return False
        return known is not None and known.note.get("sha256") == hashlib.sha256(data).hexdigest()

    def _read(self, path: Path) -> bytes:
        """A file's bytes; none of what no store wrote: a pipe has no end, nor has a large file."""
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            ours = stat.S_ISREG(status.st_mode) and status.st_size <= self.limit
            return file.read() if ours else b""

    def usage(self) -> Usage:
        """Count what is there now."""
        sizes = [status.st_size for _, status in self._files()]
        return Usage(self.directory, self.persistent, len(sizes), sum(sizes), self.limit)

    def clear(self) -> Usage:
        """Remove every entry, of older layouts too; returns what was there."""
        before = self.usage()
        for root in self._layouts():
            for path, _ in _entries(root):
                _remove(path)
            _remove_empty_folders(root)
        self._counted = 0
        return before

    def _layouts(self) -> list[Path]:
        """Folders of this and earlier versions; none where the directory is not a store's own."""
        if not is_marked(self.directory):
            return []
        children = self.directory.iterdir()
        return [path for path in children if _LAYOUT_NAME.fullmatch(path.name) and path.is_dir()]

    def prune(self) -> None:
        """Drop what is too large by itself, then the least recently used entries, until nine tenths
        of the limit are left."""

        def turn(item: tuple[Path, os.stat_result]) -> tuple[bool, float]:
            return item[1].st_size <= self.limit, item[1].st_mtime

        files = sorted(self._files(), key=turn)
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
        mark(self.directory)
        handle, name = tempfile.mkstemp(prefix=_TEMPORARY_PREFIX, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            build(temporary)
            with contextlib.suppress(OSError):  # what is not an empty directory stays
                path.rmdir()
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
        """Every entry; temporary files of processes that died are removed on the way."""
        for path, status in _entries(self._root):
            if not path.name.startswith(_TEMPORARY_PREFIX):
                yield path, status
            elif time.time() - status.st_mtime > _STALE_SECONDS:
                _remove(path)


def default_store() -> Store:
    """The store that ANYMETAL_CACHE_DIR names, or a private temporary one where that is unsafe."""
    limit = int(settings.CACHE_MEGABYTES.value() * 1024 * 1024)
    return _store(settings.CACHE_DIR.value().absolute(), limit)


@functools.lru_cache(maxsize=8)
def _store(directory: Path, limit: int) -> Store:
    reason = _make_private(directory) or _foreign(directory)
    if reason is None:
        mark(directory)
        return Store(directory, limit)
    return _temporary_store(directory, reason, limit)


@functools.cache
def _temporary_store(directory: Path, reason: str, limit: int) -> Store:
    """A store until this process ends, in place of one at `directory`."""
    temporary = Path(tempfile.mkdtemp(prefix="anymetal-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    warnings.warn(
        f"anymetal keeps no kernels in {directory}: {reason}. Compiled kernels are kept in a"
        f" temporary directory until this process ends; set {settings.CACHE_DIR.variable} to a"
        " new directory, or an empty one that only you can write.",
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


def _foreign(directory: Path) -> str | None:
    """Why the directory is somebody's own, if it is; the system's place for our cache is ours."""
    is_default = directory == Path(settings.CACHE_DIR.default).absolute()
    if is_default or is_marked(directory) or _holds_only_entries(directory):
        return None if os.access(directory, os.W_OK) else "it is read-only"
    return "it holds other files"


def _holds_only_entries(directory: Path) -> bool:
    """Whether it is empty, a store of a version that set no marker, or one that another process
    is marking right now."""
    children = [
        child
        for child in directory.iterdir()
        if child.name != MARKER and not _LOCK_NAME.fullmatch(child.name)
    ]
    files = {
        Path(folder, name)
        for child in children
        for folder, _, names in os.walk(child)
        for name in names
    }
    entries = {path for child in children for path, _ in _entries(child)}
    return files <= entries and all(_LAYOUT_NAME.fullmatch(child.name) for child in children)


def is_marked(directory: Path) -> bool:
    """Whether a store made this directory its own."""
    try:
        return (directory / MARKER).read_text() == _SIGNATURE
    except (OSError, UnicodeDecodeError):
        return False


def mark(directory: Path) -> None:
    """Makes a directory a store's own, where it can be; a damaged marker is written again."""
    marker = directory / MARKER
    if is_marked(directory) or _is_tag_of_others(marker):
        return
    with contextlib.suppress(OSError):
        if marker.is_dir():
            marker.rmdir()
        marker.write_text(_SIGNATURE)


def _is_tag_of_others(marker: Path) -> bool:
    """Whether another program made the tag: it begins as all of them do and is not of ours."""
    try:
        text = marker.read_text()
    except (OSError, UnicodeDecodeError):
        return False
    first = _SIGNATURE.partition("\n")[0]
    return text.startswith(first) and "anymetal" not in text and not _SIGNATURE.startswith(text)


def _entries(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files below a layout's folder that bear a name the store gives: a key, or a temporary one."""
    for folder, _, names in os.walk(root):
        for name in names:
            if _KEY_NAME.fullmatch(name) or name.startswith(_TEMPORARY_PREFIX):
                with contextlib.suppress(OSError):
                    yield Path(folder, name), Path(folder, name).stat()


def _remove_empty_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):  # one that is not empty stays
            Path(folder).rmdir()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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


def encode(note: dict[str, Any], payload: bytes, place: str = "") -> bytes:
    """A note and bytes as one, with the digest of both and of the place they are for."""
    text = json.dumps(note, separators=(",", ":")).encode()
    body = _NOTE_LENGTH.pack(len(text)) + text + payload
    return _MAGIC + _digest(place, body) + body


def _digest(place: str, body: bytes | memoryview) -> bytes:
    state = hashlib.sha256(place.encode())
    state.update(body)
    return state.digest()


def decode(data: bytes, place: str = "") -> Entry | None:
    """What `encode` was given; None where the bytes are not as it left them, or for another
    place."""
    start = len(_MAGIC) + _DIGEST_BYTES
    if len(data) < _HEADER_BYTES or data[: len(_MAGIC)] != _MAGIC:
        return None
    if _digest(place, memoryview(data)[start:]) != data[len(_MAGIC) : start]:
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
