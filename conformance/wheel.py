"""The newest macOS wheel of metalcore in, its Metal sources and the names Apple compiled out."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "metalcore"
FOLDER = Path(".anymetal") / "conformance"
PLATFORMS = [f"macosx_{version}_0_arm64" for version in (26, 15, 14, 13, 12, 11)]
PYTHONS = ["3.14", "3.13", "3.12", "3.11", "3.10"]


@dataclass(frozen=True)
class Sources:
    """What the wheel holds for us."""

    version: str
    files: tuple[Path, ...]
    compiled_by_apple: frozenset[str]


def fetch(folder: Path = FOLDER) -> Sources:
    """Download the wheel, or take the one there when there is no network, and unpack it."""
    folder.mkdir(parents=True, exist_ok=True)
    complaints = [message for python in PYTHONS if (message := download(folder, python))]
    wheels = sorted(folder.glob(f"{PACKAGE}-*.whl"), key=version_of)
    if not wheels:
        raise SystemExit(f"no {PACKAGE} wheel to be had:\n{complaints[-1]}")
    return unpack(wheels[-1], folder)


def download(folder: Path, python: str) -> str | None:
    """Ask pip for the newest wheel for one Python; None when it came, else what pip said.

    All Pythons are asked, because the newest release may not be there for each of them.
    """
    tag = "cp" + python.replace(".", "")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    command += [f"--abi={tag}", f"--dest={folder}", PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()


def version_of(wheel: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", wheel.name.split("-")[1]))


def unpack(wheel: Path, folder: Path) -> Sources:
    version = wheel.name.split("-")[1]
    target = folder / f"{PACKAGE}-{version}"
    target.mkdir(exist_ok=True)
    names: set[str] = set()
    files = []
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.namelist():
            place = target / Path(entry).name
            if entry.endswith(".metal"):
                place.write_bytes(archive.read(entry))
                files.append(place)
            elif entry.endswith(".metallib"):
                names |= kernel_names(archive.read(entry))
    return Sources(version, tuple(sorted(files)), frozenset(names))


def kernel_names(metallib: bytes) -> set[str]:
    """The functions of a metallib: each is listed as NAME, a 16-bit length and the text."""
    found = re.findall(rb"NAME(..)([A-Za-z_]\w*)\x00", metallib, re.DOTALL)
    return {
        name.decode() for length, name in found if int.from_bytes(length, "little") == len(name) + 1
    }
