"""What cached things depend on, in one table: a key names its parts, each part is one row.

Files of an installed package do not change under a process, so every row is computed once.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from anymetal.machine.processor import name_and_features, wanted
from anymetal.store.cache import digest_of

_PACKAGE = Path(__file__).parent.parent
# The rooms whose code decides what an executable looks like.
_COMPILER_ROOMS = (
    "air", "checker", "engines", "ir", "machine", "msl", "passes", "store",
)  # fmt: skip


def fingerprint(*parts: str | Path) -> str:
    """The digest of rows of the table, and of the content of files and folders given by path."""
    return digest_of(*(_content(p) if isinstance(p, Path) else row(p) for p in parts))


def row(name: str) -> str:
    """What a row of the table says of this machine, or of the one that code is made for."""
    return _row(name, wanted())


def versions(*packages: str) -> str:
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def processor() -> str:
    """Name and features of the processor: machine code is only good on its like."""
    return f"{platform.machine()} {' '.join(name_and_features())}"


def _torch() -> str:
    import torch  # noqa: PLC0415  (takes a second)

    return torch.__version__


def _compiler_stamp() -> str:
    """clang as it is installed here, and the code of ours that makes executables."""
    spec = find_spec("ziglang")
    clang = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    rooms = [_PACKAGE / room for room in _COMPILER_ROOMS if (_PACKAGE / room).is_dir()]
    stamps = [*(stamp(place, depth=0) for place in clang), *(stamp(room) for room in rooms)]
    return digest_of(*stamps)


TABLE: dict[str, Callable[[], str]] = {
    "tools": lambda: versions("ziglang", "llvmlite"),
    "processor": processor,
    # By size and time: read at each start, where 150 files by content take 10 ms.
    "compiler": _compiler_stamp,
    "torch": _torch,
    "system": lambda: f"{platform.system()} {platform.release()}",
}


@functools.cache
def _row(name: str, processor: str) -> str:
    return TABLE[name]()


@functools.cache
def _content(path: Path) -> str:
    """Names and contents below a folder, or the content of a file."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    kept = [file for file in files if "__pycache__" not in file.parts]
    names = [file.relative_to(path).as_posix() for file in kept]
    pairs = zip(names, (file.read_bytes() for file in kept), strict=True)
    return digest_of(*(part for pair in pairs for part in pair))


def stamp(folder: Path, depth: int = 8) -> str:
    """Name, size and time of the files in a folder: quicker than reading them, and as telling."""
    return "\n".join(_stamps(folder, depth))


def _stamps(folder: Path, depth: int) -> list[str]:
    lines = []
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        if item.is_dir():
            if depth > 0 and item.name != "__pycache__":
                lines += [f"{item.name}/{line}" for line in _stamps(Path(item.path), depth - 1)]
        else:
            status = item.stat()
            lines.append(f"{item.name} {status.st_size} {status.st_mtime_ns}")
    return lines


def file_digest(path: str | Path) -> str | None:
    """The digest of a file's content; None where there is no such file."""
    try:
        return digest_of(Path(path).read_bytes())
    except OSError:
        return None


def unchanged(files: Iterable[tuple[str, str]]) -> bool:
    """Whether every file still has the content whose digest stands beside it."""
    return all(file_digest(path) == digest for path, digest in files)


def forget() -> None:
    """Looks at all files again: one of them has changed under our feet."""
    _row.cache_clear()
    _content.cache_clear()
