"""How often each function was ours, how often torch's and why; and what was switched off."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from anymetal import settings

_log = logging.getLogger("anymetal.overrides")


@dataclass(frozen=True)
class Calls:
    """Calls of one of torch's functions since the counts were reset."""

    taken: int
    passed: Mapping[str, int]  # by reason
    switched_off: str | None = None  # by which error


@dataclass
class Counts:
    """Kept for the process; `enable` and `disable` leave it as it is."""

    taken: Counter[str] = field(default_factory=Counter)
    passed: dict[str, Counter[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str) -> None:
        with self._lock:
            self.taken[name] += 1

    def keep(self, name: str, reason: str) -> None:
        """A call that torch kept; a new reason is logged once where the environment asks."""
        with self._lock:
            reasons = self.passed.setdefault(name, Counter())
            reasons[reason] += 1
            is_new = reasons[reason] == 1
        if is_new and settings.OVERRIDES_LOG.value():
            _log.warning("%s: torch's own, %s", name, reason)

    def switch_off(self, name: str, kernel: str, error: Exception, arguments: str) -> None:
        """Remembers and logs an error of ours, after which torch has this function to itself."""
        with self._lock:
            if name in self.failures:
                return
            self.failures[name] = f"{type(error).__name__}: {error}"
        _log.error(
            "%s: %s failed with %s: %s; arguments: %s. torch's own runs from here on",
            name, kernel, type(error).__name__, error, arguments,
        )  # fmt: skip

    def read(self) -> dict[str, Calls]:
        with self._lock:
            names = sorted({*self.taken, *self.passed, *self.failures})
            return {
                name: Calls(
                    self.taken[name], dict(self.passed.get(name, {})), self.failures.get(name)
                )
                for name in names
            }

    def reset(self) -> None:
        """Forgets counts and failures: what was switched off may be tried again."""
        with self._lock:
            self.taken.clear()
            self.passed.clear()
            self.failures.clear()


COUNTS = Counts()
