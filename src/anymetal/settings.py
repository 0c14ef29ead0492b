"""Every environment variable: its type, default and meaning, read when asked for."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import platformdirs

Value = TypeVar("Value")
Missing = Literal["run", "warn", "error"]
"""What the virtual device does with an operator that MPS lacks."""


@dataclass(frozen=True)
class Setting(Generic[Value]):
    """One variable, what its words become, and what it means; `anymetal --help` prints the table.

    `read` makes the value of the text, or raises ValueError with what was expected.
    """

    variable: str
    read: Callable[[str], Value]
    default: str
    meaning: str
    former: tuple[tuple[str, str], ...] = ()  # words of earlier versions, and today's for them

    def text(self) -> str:
        """What the environment says; a variable that is set to nothing is not set."""
        text = self.default
        if self._is_set():
            text = os.environ.get(self.variable) or self.default
        return dict(self.former).get(text, text) if self.former else text

    def _is_set(self) -> bool:
        """Every launch asks. `os.environ` raises and catches a KeyError for what is not there, and
        that takes a microsecond; the dictionary in it takes a tenth."""
        known = getattr(os.environ, "_data", None)
        return known is None or self._key in known

    @functools.cached_property
    def _key(self) -> str | bytes:
        return os.environ.encodekey(self.variable)

    @functools.cached_property
    def _values(self) -> dict[str, Value]:
        return {}

    def value(self) -> Value:
        text = self.text()
        if text not in self._values:
            try:
                self._values[text] = self.read(text)
            except ValueError as error:
                raise ValueError(f"{self.variable}={text!r}: expected {error}") from None
        return self._values[text]

    def one_of(self, *words: str) -> str:
        """The text, where only those who ask know the words that it may be."""
        if self.text() not in words:
            raise ValueError(f"{self.variable}={self.text()!r}: expected {', '.join(words)}")
        return self.text()


def flag(text: str) -> bool:
    """1 is on, 0 is off. Other words are refused: `true` must not mean off."""
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def at_least(least: float) -> Callable[[str], float]:
    """Reads a number that is finite and not below `least`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("a number") from None
        if not least <= value < math.inf:
            raise ValueError(f"a number, {least:g} or more")
        return value

    return read


def level(text: str) -> int:
    if text not in ("0", "1", "2", "3"):
        raise ValueError("0, 1, 2 or 3")
    return int(text)


def folder(text: str) -> Path:
    return Path(text).expanduser()


def missing(text: str) -> Missing:
    for word in get_args(Missing):
        if text == word:
            return word  # type: ignore[no-any-return]
    raise ValueError("run, warn or error")


CACHE_DIR = Setting(
    "ANYMETAL_CACHE_DIR",
    folder,
    str(platformdirs.user_cache_path("anymetal")),
    "where compiled kernels are kept",
)
CACHE_MEGABYTES = Setting(
    "ANYMETAL_CACHE_MEGABYTES",
    at_least(64),  # a precompiled header alone takes 26
    "512",
    "the cache is pruned, oldest use first, beyond this size",
)
TIME_LIMIT = Setting(
    "ANYMETAL_TIME_LIMIT",
    at_least(0),
    "60",
    "seconds without a finished threadgroup after which a kernel is stopped; 0 is no limit",
)
COMPILE_LIMIT = Setting(
    "ANYMETAL_COMPILE_LIMIT",
    at_least(1),
    "60",
    "seconds after which compiling one kernel is given up",
)
ENGINE = Setting(
    "ANYMETAL_ENGINE",
    str,
    "auto",
    "how kernels run on the CPU: simdgroup (vectors; earlier called regions), coroutine (the "
    "reference), or auto, which is simdgroup where it can and coroutine elsewhere",
    former=(("regions", "simdgroup"),),
)
FAST_MATH = Setting(
    "PYTORCH_MPS_FAST_MATH",
    lambda text: text == "1",
    "0",
    "1 compiles kernels with fast math, as PyTorch on a Mac does",
)
CHECK = Setting(
    "ANYMETAL_CHECK",
    flag,
    "0",
    "1 checks every kernel call of the process and prints what is found to stderr",
)

CHECK_LEVEL = Setting(
    "ANYMETAL_CHECK_LEVEL",
    level,
    "2",
    "optimisation of checked kernels, 0 to 3, after the checks are in: no finding depends on it",
)

DEVICE = Setting(
    "ANYMETAL_DEVICE", flag, "0", "1 gives torch a virtual mps device when it is imported"
)
DEVICE_MISSING = Setting(
    "ANYMETAL_DEVICE_MISSING",
    missing,
    "warn",
    "operators that MPS lacks: run them, warn and run, or error, on the virtual device",
)
DEVICE_ASYNC = Setting(
    "ANYMETAL_DEVICE_ASYNC",
    flag,
    "0",
    "1 shows results of the virtual device only where a Mac waits for its GPU",
)
CXX = Setting("ANYMETAL_CXX", str, "", "the C++ compiler that builds the virtual device")

POLICY = Setting(
    "ANYMETAL_POLICY", str, "", "a TOML file of launch policies that go before the package's own"
)

BUNDLE = Setting(
    "ANYMETAL_BUNDLE",
    str,
    "",
    "files of `anymetal compile`, separated as in PATH: kernels in them run without a compiler",
)

OVERRIDES = Setting(
    "ANYMETAL_OVERRIDES", flag, "1", "0 leaves torch's functions alone, whatever a program enables"
)
OVERRIDES_LOG = Setting(
    "ANYMETAL_OVERRIDES_LOG", flag, "0", "1 logs once why a call stays with torch's own function"
)
OVERRIDES_STRICT = Setting(
    "ANYMETAL_OVERRIDES_STRICT",
    flag,
    "0",
    "1 raises errors of our kernels instead of calling torch's own function",
)
VERDICTS = Setting(
    "ANYMETAL_VERDICTS",
    str,
    "",
    "a file of `anymetal bench --verdict` that goes before the package's own",
)

ALL: tuple[Setting[Any], ...] = (
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
    BUNDLE,
    OVERRIDES,
    OVERRIDES_LOG,
    OVERRIDES_STRICT,
    VERDICTS,
)
