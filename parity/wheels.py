"""The wheels that hold Apple's output: fetched by exact version, kept in the cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from anymetal.air.archive import metallibs_in
from anymetal.air.container import Metallib

FOLDER = Path(__file__).parent.parent / ".anymetal" / "parity"


class NoWheel(Exception):
    """A wheel is neither here nor to be had."""


@dataclass(frozen=True)
class Wheel:
    """A package, exactly: its name, version, platform and the Python it is for."""

    package: str
    version: str
    platform: str
    python: str = "3.11"

    @property
    def label(self) -> str:
        return f"{self.package} {self.version} ({self.platform})"


MLX = Wheel("mlx-metal", "0.32.4", "macosx_14_0_arm64")
MLX_26 = Wheel("mlx-metal", "0.32.4", "macosx_26_0_arm64")
TORCH = Wheel("torch", "2.13.0", "macosx_14_0_arm64")


def fetch(wheel: Wheel, folder: Path = FOLDER) -> Path:
    """The wheel's file, downloaded where it is not here yet."""
    place = folder / wheel.platform
    stem = f"{wheel.package.replace('-', '_')}-{wheel.version}-"
    found = sorted(place.glob(f"{stem}*.whl"))
    if found:
        return found[0]
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--platform={wheel.platform}", f"--dest={place}"]
    command += [f"--python-version={wheel.python}", "--index-url=https://pypi.org/simple"]
    done = subprocess.run(
        [*command, f"{wheel.package}=={wheel.version}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DEFAULT_TIMEOUT": "20", "PIP_RETRIES": "1"},
    )
    found = sorted(place.glob(f"{stem}*.whl"))
    if not found:
        raise NoWheel(f"{wheel.label} is not to be had:\n{done.stderr.strip()[-600:]}")
    return found[0]


def unpacked(wheel: Wheel, suffix: str, folder: Path = FOLDER) -> Path:
    """The folder with the wheel's files that end so; those of a wheel are unpacked once."""
    file = fetch(wheel, folder)
    target = file.with_suffix("")
    mark = target / f".{suffix.strip('.')}"
    if not mark.exists():
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(suffix)]
            archive.extractall(target, names)
        mark.touch()
    return target


def mlx_library(wheel: Wheel = MLX) -> Path:
    return unpacked(wheel, ".metallib") / "mlx" / "lib" / "mlx.metallib"


def mlx_headers(wheel: Wheel = MLX) -> Path:
    return unpacked(wheel, ".h") / "mlx" / "include"


def torch_library(number: int = 0) -> Path:
    """One of the two metallibs in torch's library, in a file of its own."""
    file = fetch(TORCH)
    target = file.with_name(f"torch-{number}.metallib")
    if not target.exists():
        for count, found in enumerate(metallibs_in(file.read_bytes(), file.name)):
            file.with_name(f"torch-{count}.metallib").write_bytes(found.data)
    return target


def kernels_of(path: Path) -> Metallib:
    return Metallib(path.read_bytes(), path.name)
