"""A cache damaged in one place, and what a program makes of it: right results, and a cache that is
whole again afterwards.

Every kind of file that the cache holds times every way to damage one. Each case is a process: a
copy of a process that has imported torch, and has not looked at any cache yet.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anymetal.store.cache import Store, is_marked

_SECONDS = 120
_FOLDERS = ("layout", "kind", "half")  # what stands above an entry, from the top

FILE_KINDS = ("pch", "device")  # other programs read them; the rest are entries
_OF_COMPILING = ("pch", "pch-digest", "checks")  # read only where a kernel is new

Harm = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Damage:
    """What is done to a file or folder, and whether the cache can be whole again after it."""

    name: str
    harm: Harm
    heals: bool = True


def _cut(path: Path, choose: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: choose.randrange(len(data))])


def _flip(path: Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def _flip_many(path: Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(99):
        data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def _zeros_in_the_middle(path: Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = choose.randrange(len(data))
    end = min(len(data), start + 4096)
    data[start:end] = bytes(end - start)
    if bytes(data) == path.read_bytes():
        data[0] ^= 1
    path.write_bytes(data)


def _swap(path: Path, choose: random.Random) -> None:
    """With another file of its kind, where there is one, else with one of another kind."""
    kind = path.parents[1]
    others = [p for p in _files(kind) if p != path] or [p for p in _files(kind.parent) if p != path]
    other = choose.choice(sorted(others))
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.unlink()
    other.write_bytes(first)


def _directory(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _full_directory(path: Path, choose: random.Random) -> None:
    _directory(path, choose)
    (path / "notes.txt").write_text("somebody's own")


def _pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _link_to_nothing(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _link_to_itself(path: Path, _: random.Random) -> None:
    path.unlink()
    path.symlink_to(path)


def _half_written(path: Path, choose: random.Random) -> None:
    """As after a process that died: the file is not there, a part of it is beside it."""
    data = path.read_bytes()
    path.unlink()
    part = path.parent / f".anymetal-{choose.randrange(1 << 30):x}"
    part.write_bytes(data[: choose.randrange(len(data))])


def _endless(path: Path, _: random.Random) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


FILES = (
    Damage("cut", _cut),
    Damage("cut-again", _cut),
    Damage("empty", lambda path, _: path.write_bytes(b"") and None),
    Damage("flip", _flip),
    Damage("flip-again", _flip),
    Damage("flip-many", _flip_many),
    Damage("zeros", lambda path, _: path.write_bytes(bytes(path.stat().st_size)) and None),
    Damage("zeros-in-the-middle", _zeros_in_the_middle),
    Damage("longer", lambda path, _: path.write_bytes(path.read_bytes() + b"\0") and None),
    Damage("other-version", lambda path, _: path.write_bytes(b"anymetak" + bytes(99)) and None),
    Damage("text", lambda path, _: path.write_text("#!/bin/sh\nexit 1\n") and None),
    Damage("swapped", _swap),
    Damage("gone", lambda path, _: path.unlink()),
    Damage("directory", _directory),
    Damage("full-directory", _full_directory, heals=False),
    Damage("pipe", _pipe),
    Damage("link-to-nothing", _link_to_nothing),
    Damage("link-to-itself", _link_to_itself),
    Damage("half-written", _half_written),
    Damage("endless", _endless),
    Damage("unreadable", lambda path, _: path.chmod(0)),
)


def _file_for_folder(path: Path, _: random.Random) -> None:
    shutil.rmtree(path)
    path.write_text("somebody's own")


PLACES = (
    Damage("gone", lambda path, _: shutil.rmtree(path)),
    Damage("file", _file_for_folder, heals=False),
    Damage("read-only", lambda path, _: path.chmod(0o500), heals=False),
)
MARKERS = (
    Damage("gone", lambda path, _: path.unlink()),
    Damage("cut", _cut),
    Damage("flip", _flip),
    Damage("empty", lambda path, _: path.write_bytes(b"") and None),
    Damage("directory", _directory),
    Damage("bytes", lambda path, _: path.write_bytes(b"\xff\xfe\x00") and None),
)


@dataclass(frozen=True)
class Case:
    """One damage to one path of a cache, relative to its folder."""

    name: str
    path: Path
    damage: Damage


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def cases(whole: Path) -> list[Case]:
    """Of a cache as a program leaves it: each kind of file and of folder, damaged in every way."""
    (layout,) = (path for path in whole.iterdir() if path.is_dir())
    found = []
    for kind in sorted(path for path in layout.iterdir()):
        file = _files(kind)[0].relative_to(whole)
        found += [Case(f"{kind.name}-{d.name}", file, d) for d in FILES]
        for number, above in enumerate(reversed(file.parents[:-1])):
            if number == 0 and kind.name != "outline":
                continue  # there is one layout
            found += [Case(f"{kind.name}-{_FOLDERS[number]}-{d.name}", above, d) for d in PLACES]
    marker = Path("CACHEDIR.TAG")
    return found + [Case(f"marker-{d.name}", marker, d) for d in MARKERS]


def attack_damage(only: str, step: int = 1) -> Iterator[tuple[str, str]]:
    """Every so many cases, and what is wrong with how a program ran on the damaged cache."""
    from . import program  # noqa: F401, PLC0415  (before the copies are made, once for all)

    with tempfile.TemporaryDirectory(prefix="anymetal-attack-") as folder:
        whole = Path(folder, "whole")
        expected = _in_a_copy(whole, new=False)
        if not expected.startswith("{"):
            yield "whole", expected
            return
        for case in cases(whole)[::step]:
            if only in case.name:
                yield case.name, _wrong(case, whole, Path(folder, "damaged"), expected)


def _wrong(case: Case, whole: Path, damaged: Path, expected: str) -> str:
    _copy(whole, damaged)
    path = damaged / case.path
    if path.is_file():  # the copies are links
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(data)
    case.damage.harm(path, random.Random(case.name))
    try:
        kind = case.path.parts[1:2]
        answer = _in_a_copy(damaged, new=not kind or kind[0] in _OF_COMPILING)
        if answer != expected:
            return answer
        return _difference(whole, damaged) if case.damage.heals else ""
    finally:
        for folder in (damaged, *(p for p in damaged.rglob("*") if p.is_dir())):
            folder.chmod(0o700)
        shutil.rmtree(damaged)


def _copy(whole: Path, target: Path) -> None:
    shutil.copytree(whole, target, copy_function=os.link)


def _difference(whole: Path, healed: Path) -> str:
    """What a healed cache lacks or has in another form than a store writes it."""
    store = Store(healed, 1 << 30)
    for path in _files(whole):
        place = path.relative_to(whole)
        kind, key = place.parts[1:2], place.name
        if not kind:
            sound = is_marked(healed)
        elif kind[0] in FILE_KINDS:
            sound = store.is_intact(kind[0], key)
        else:
            sound = store.get(kind[0], key) is not None
        if not sound:
            return f"{place} is not whole again"
    return ""


def _in_a_copy(cache: Path, *, new: bool) -> str:
    """What the program answers in a copy of this process: JSON, or how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(cache, new, writing)
    os.close(writing)
    until = time.monotonic() + _SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)
            return f"hangs: no answer after {_SECONDS} s"
        time.sleep(0.01)
    with os.fdopen(reading) as answers:
        return answers.read() or "dies"


def _answer(cache: Path, new: bool, writing: int) -> None:
    os.environ["ANYMETAL_CACHE_DIR"] = str(cache)
    warnings.simplefilter("ignore")
    try:
        from tests.attack.program import results  # noqa: PLC0415

        text = json.dumps(results(new))
    except BaseException as error:  # whatever it is, it is the answer
        text = f"raises {type(error).__name__}: {error}"
    os.write(writing, text.encode()[:60_000])
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    faults = {name: fault for name, fault in attack_damage("", int(sys.argv[1])) if fault}
    print(faults)
    sys.exit(1 if faults else 0)
