"""What a patch changed and left, and the way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from types import FunctionType, MethodType
from typing import Any

from torch import nn

_MISSING = object()


@dataclass(frozen=True)
class Row:
    """One line of a report: a module, what it is, and the operator or the reason."""

    name: str
    kind: str
    replaced: bool
    why: str

    def __str__(self) -> str:
        verdict = "replaced by" if self.replaced else "left:"
        return f"{self.name or '(model)'}: {self.kind} {verdict} {self.why}"


@dataclass(frozen=True)
class _Change:
    """One entry of a dictionary (a module's attributes, a registry) with what it held before."""

    name: str
    place: MutableMapping[Any, Any]
    key: Any
    before: Any
    after: Any

    def undo(self) -> None:
        if self.before is _MISSING:
            self.place.pop(self.key, None)
        else:
            self.place[self.key] = self.before


@dataclass
class Handle:
    """The changes of one call of `patch`; `undo()` takes them back, all or none."""

    rows: list[Row] = field(default_factory=list)
    _changes: list[_Change] = field(default_factory=list, repr=False)
    _frozen: list[nn.Parameter] = field(default_factory=list, repr=False)
    _afterwards: list[Callable[[], None]] = field(default_factory=list, repr=False)

    @property
    def count(self) -> int:
        """How many modules have our operators now."""
        return sum(row.replaced for row in self.rows)

    def report(self) -> str:
        """What was replaced and what was left and why, alike ones in one line with their number."""
        lines = []
        for replaced in (True, False):
            kinds = Counter((row.kind, row.why) for row in self.rows if row.replaced is replaced)
            title = "replaced" if replaced else "left"
            lines.append(f"{title}: {sum(kinds.values())}")
            lines += [f"  {n:4} {kind}: {why}" for (kind, why), n in sorted(kinds.items())]
        return "\n".join(lines)

    def undo(self) -> None:
        """Everything as it was. An error, and nothing changed, where others changed it since."""
        for change in self._changes:
            held = change.place.get(change.key, _MISSING)
            if held is not change.after and held != change.after:
                raise RuntimeError(
                    f"undo: {change.name} was set to {held!r} after the patch. Take that back first"
                )
        for change in reversed(self._changes):
            change.undo()
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        for step in self._afterwards:
            step()
        for done in (self._changes, self._frozen, self._afterwards, self.rows):
            done.clear()

    # --- what patches call --------------------------------------------------------------------

    def set(self, name: str, place: MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """An entry of a dictionary, remembered."""
        self._changes.append(_Change(name, place, key, place.get(key, _MISSING), value))
        place[key] = value

    def take(self, other: Handle, prefix: str) -> None:
        """The changes of another handle, under a name; this one undoes them."""
        names = [f"{prefix}.{row.name}".strip(".") for row in other.rows]
        self.rows += [replace(row, name=n) for n, row in zip(names, other.rows, strict=True)]
        self._changes += other._changes
        self._frozen += other._frozen
        self._afterwards += other._afterwards

    def forward(
        self, name: str, module: nn.Module, kind: str, function: FunctionType, why: str
    ) -> None:
        """Another forward for one module; its class stays as it is."""
        self.set(f"{name}.forward", vars(module), "forward", MethodType(function, module))
        self.rows.append(Row(name, kind, True, why))

    def left(self, name: str, kind: str, why: str) -> None:
        """Notes a module that stays as it is, and why."""
        self.rows.append(Row(name, kind, False, why))

    def afterwards(self, step: Callable[[], None]) -> None:
        """A last step of `undo`."""
        self._afterwards.append(step)

    def freeze(self, parameters: Iterable[nn.Parameter]) -> None:
        """No gradients for these until the patch is undone."""
        trained = [one for one in parameters if one.requires_grad]
        self._frozen += trained
        for parameter in trained:
            parameter.requires_grad_(False)


def patched(module: nn.Module) -> bool:
    """Whether a module has a forward of ours already."""
    held = vars(module).get("forward")
    return isinstance(held, MethodType) and held.__func__.__module__.startswith(__package__)


def foreign(module: nn.Module) -> str | None:
    """Why a module's forward is not its class's, where somebody replaced it; None otherwise."""
    held = vars(module).get("forward")
    if held is None or getattr(held, "__func__", None) is type(module).forward:
        return None
    return f"its forward was replaced by {getattr(held, '__qualname__', held)!s}"
