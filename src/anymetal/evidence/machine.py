"""What a measurement belongs to: the device, its engine, and the versions of everything."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from anymetal import settings
from anymetal.policy.tuning_cache import device_name, engine_name


@dataclass(frozen=True)
class Machine:
    """The header of every report."""

    device: str
    engine: str
    system: str
    python: str
    torch: str
    threads: int
    fast_math: bool
    commit: str | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        math = ", fast math" if self.fast_math else ""
        return (
            f"{self.device}, {self.engine} engine{math}; torch {self.torch} with {self.threads}"
            f" threads, Python {self.python}, {self.system}"
        )


def best_device() -> torch.device:
    """A Mac's GPU, or the virtual mps device where it is enabled; else the CPU."""
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def describe(device: torch.device) -> Machine:
    """This machine, as a measurement on `device` sees it."""
    return Machine(
        device=device_name(device.type),
        engine=engine_name(device.type),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        fast_math=settings.FAST_MATH.value(),
        commit=_commit(),
    )


def load() -> float:
    """How busy the machine was in the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if sys.platform != "win32" else 0.0


@functools.cache
def _commit() -> str | None:
    """The revision of this package where it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
