"""Every ANYMETAL_* environment variable: type, default and meaning, read when asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs


@dataclass(frozen=True)
class Setting:
    """One variable and what it means; `anymetal --help` prints this table."""

    variable: str
    default: str
    meaning: str
    former: tuple[tuple[str, str], ...] = ()  # words of earlier versions, and today's for them

    def text(self) -> str:
        text = os.environ.get(self.variable, self.default)
        return dict(self.former).get(text, text)

    def number(self) -> float:
        try:
            return float(self.text())
        except ValueError:
            raise ValueError(f"{self.variable}={self.text()!r}: expected a number") from None

    def flag(self) -> bool:
        """1 is on; 0 and nothing are off. Other words are refused: `true` must not mean off."""
        text = self.text()
        if text not in ("", "0", "1"):
            raise ValueError(f"{self.variable}={text!r}: expected 0 or 1")
        return text == "1"

    def choice(self, *words: str) -> str:
        if self.text() not in words:
            raise ValueError(f"{self.variable}={self.text()!r}: expected {', '.join(words)}")
        return self.text()

    def path(self) -> Path:
        return Path(self.text()).expanduser()


CACHE_DIR = Setting(
    "ANYMETAL_CACHE_DIR",
    str(platformdirs.user_cache_path("anymetal")),
    "where compiled kernels are kept",
)
CACHE_MEGABYTES = Setting(
    "ANYMETAL_CACHE_MEGABYTES", "512", "the cache is pruned, oldest use first, beyond this size"
)
TIME_LIMIT = Setting(
    "ANYMETAL_TIME_LIMIT",
    "60",
    "seconds without a finished threadgroup after which a kernel is stopped; 0 is no limit",
)
COMPILE_LIMIT = Setting(
    "ANYMETAL_COMPILE_LIMIT", "60", "seconds after which compiling one kernel is given up"
)
ENGINE = Setting(
    "ANYMETAL_ENGINE",
    "auto",
    "how kernels run on the CPU: simdgroup (vectors; earlier called regions), coroutine (the "
    "reference), or auto, which is simdgroup where it can and coroutine elsewhere",
    former=(("regions", "simdgroup"),),
)
FAST_MATH = Setting(
    "PYTORCH_MPS_FAST_MATH", "0", "1 compiles kernels with fast math, as PyTorch on a Mac does"
)
CHECK = Setting(
    "ANYMETAL_CHECK",
    "0",
    "1 checks every kernel call of the process and prints what is found to stderr",
)

CHECK_LEVEL = Setting(
    "ANYMETAL_CHECK_LEVEL",
    "2",
    "optimisation of checked kernels, 0 to 3, after the checks are in: no finding depends on it",
)

DEVICE = Setting("ANYMETAL_DEVICE", "0", "1 gives torch a virtual mps device when it is imported")
DEVICE_MISSING = Setting(
    "ANYMETAL_DEVICE_MISSING",
    "warn",
    "operators that MPS lacks: run them, warn and run, or error, on the virtual device",
)
DEVICE_ASYNC = Setting(
    "ANYMETAL_DEVICE_ASYNC",
    "0",
    "1 shows results of the virtual device only where a Mac waits for its GPU",
)
CXX = Setting("ANYMETAL_CXX", "", "the C++ compiler that builds the virtual device")

POLICY = Setting(
    "ANYMETAL_POLICY", "", "a TOML file of launch policies that go before the package's own"
)

ALL = (
    ENGINE,
    CACHE_DIR,
    CACHE_MEGABYTES,
    TIME_LIMIT,
    COMPILE_LIMIT,
    FAST_MATH,
    CHECK,
    CHECK_LEVEL,
    DEVICE,
    DEVICE_MISSING,
    DEVICE_ASYNC,
    CXX,
    POLICY,
)
