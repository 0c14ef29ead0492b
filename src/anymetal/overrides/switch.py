"""Which functions are replaced now, and how they come back: whole, in any order, from any thread.

Each `enable` and each block is a request of its own. A function is replaced while a request names
it, on the kinds of devices of all that do, and is torch's own object again when the last is gone.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.jit import _builtins

from anymetal import settings
from anymetal.overrides import functions, linear_algebra, optimizers  # noqa: F401  (the rows)
from anymetal.overrides.calls import replacement
from anymetal.overrides.reasons import KINDS, kind_of
from anymetal.overrides.table import ALL, TABLE, Kinds, Row, check_groups
from anymetal.overrides.verdicts import helpful_kinds, measured_kinds

_log = logging.getLogger("anymetal.overrides")
# Kinds of devices by places, with the least elements of a call that is taken there.
Wanted = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Place:
    """Where torch has a function: an attribute of a module or of a class."""

    path: str
    row: Row

    @property
    def holder(self) -> Any:
        *parents, _ = self.path.split(".")
        found: Any = torch
        for parent in parents:
            found = getattr(found, parent)
        return found

    @property
    def attribute(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass
class Replaced:
    """A place that holds a function of ours, and what it held."""

    place: Place
    original: Any
    was_own: bool  # whether the holder had it itself, or from a class above
    kinds: Kinds = field(default_factory=dict)  # the replacement reads it

    def put(self) -> None:
        row = self.place.row
        make = row.make or replacement
        mine = make(row, self.place.path, self.original, self.kinds)
        # torch.jit.script knows torch's functions by their addresses.
        builtin = _builtins._find_builtin(self.original)  # type: ignore[no-untyped-call]
        if builtin is not None:
            _builtins._register_builtin(mine, builtin)
        setattr(self.place.holder, self.place.attribute, mine)

    def take_back(self) -> None:
        mine = vars(self.place.holder)[self.place.attribute]
        table = _builtins._get_builtin_table()  # type: ignore[no-untyped-call]
        table.pop(id(mine), None)
        if self.was_own:
            setattr(self.place.holder, self.place.attribute, self.original)
        else:
            delattr(self.place.holder, self.place.attribute)


PLACES = {path: Place(path, row) for row in TABLE.rows for path in row.places}


@dataclass
class Switch:
    """The one of this process."""

    requests: dict[int, Wanted] = field(default_factory=dict)
    replaced: dict[str, Replaced] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _next: int = 0

    def add(self, wanted: Wanted) -> int:
        with self.lock:
            self._next += 1
            self.requests[self._next] = wanted
            self._settle()
            return self._next

    def remove(self, request: int) -> None:
        with self.lock:
            self.requests.pop(request, None)  # `disable` may have been before
            self._settle()

    def clear(self) -> None:
        with self.lock:
            self.requests.clear()
            self._settle()

    def _settle(self) -> None:
        wanted: dict[str, Kinds] = {}
        for request in self.requests.values():
            for path, more in request.items():
                known = wanted.setdefault(path, {})
                known |= {kind: min(n, known.get(kind, n)) for kind, n in more.items()}
        for path in [path for path in self.replaced if path not in wanted]:
            self.replaced.pop(path).take_back()
        for path, kinds in wanted.items():
            if path not in self.replaced:
                self.replaced[path] = _found(PLACES[path])
                self.replaced[path].kinds.update(kinds)
                self.replaced[path].put()
            here = self.replaced[path].kinds
            here.update(kinds)  # first more, then less: other threads read it
            for kind in here.keys() - kinds:
                del here[kind]
        _forget_lists()


def _forget_lists() -> None:
    """torch keeps lists of its functions, made when they are first asked for, maybe of ours."""
    for name in ("_get_overridable_functions", "_get_tensor_methods", "get_testing_overrides"):
        getattr(torch.overrides, name).cache_clear()


def _found(place: Place) -> Replaced:
    return Replaced(
        place, getattr(place.holder, place.attribute), place.attribute in vars(place.holder)
    )


SWITCH = Switch()


def wanted_of(groups: tuple[str, ...], devices: tuple[str, ...] | None) -> Wanted:
    """The places of groups; without groups, those that were measured to be faster."""
    check_groups(groups)
    kinds = frozenset(KINDS if devices is None else devices)
    for kind in kinds - set(KINDS):
        raise ValueError(f"overrides: unknown kind of device {kind!r}; they are {', '.join(KINDS)}")
    rows = [row for group in groups or (ALL,) for row in TABLE.of(group)]
    found = {
        row: dict.fromkeys(kinds, 0)
        if groups
        else {kind: least for kind, least in helpful_kinds(row).items() if kind in kinds}
        for row in rows
    }
    return {path: found[row] for row in rows if found[row] for path in row.places}


def enable(*groups: str, devices: tuple[str, ...] | None = None) -> None:
    """Replaces torch's functions by ours, in the whole process, until `disable`.

    Groups are named, or "all"; without any it is what was measured to be faster, for each kind of
    device ("cpu", "mps", "virtual-mps", "cuda"). `devices` leaves calls on other kinds to torch.
    """
    _request(groups, devices)


def disable() -> None:
    """Takes everything back: every function and class is torch's own object again."""
    SWITCH.clear()


@contextmanager
def enabled(*groups: str, devices: tuple[str, ...] | None = None) -> Iterator[None]:
    """`enable` for a block. What was enabled around it stays so inside."""
    request = _request(groups, devices)
    try:
        yield
    finally:
        if request is not None:
            SWITCH.remove(request)


def _request(groups: tuple[str, ...], devices: tuple[str, ...] | None) -> int | None:
    wanted = wanted_of(groups, devices)
    if not settings.OVERRIDES.value():
        return None
    if not groups:
        best = "mps" if torch.backends.mps.is_available() else "cpu"
        _warn_of_unmeasured(kind_of(torch.device(best)))
    # torch.compile learns torch's functions by their names, once; it must not learn ours.
    importlib.import_module("torch._dynamo")
    return SWITCH.add(wanted)


def _warn_of_unmeasured(kind: str) -> None:
    if kind in measured_kinds():
        return
    _log.warning(
        "overrides.enable(): nothing was measured on %s, so nothing is on by default there. Name"
        " groups, or measure with `anymetal bench --verdict FILE` and set %s=FILE",
        {"mps": "a Mac's GPU", "cpu": "CPUs"}.get(kind, kind),
        settings.VERDICTS.variable,
    )


def active() -> dict[str, tuple[str, ...]]:
    """What is replaced now: torch's names, with the kinds of devices that ours takes."""
    with SWITCH.lock:
        return {
            f"torch.{path}": tuple(sorted(one.kinds))
            for path, one in sorted(SWITCH.replaced.items())
        }
