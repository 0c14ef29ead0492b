"""What is replaced: a row for each of torch's functions, found by its name under `torch`.

A row's `ours` takes torch's own arguments and gives the result, or a text: why it does not take
this call. Arguments that it has no names for, and those that our operators refuse, go to torch too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

GROUPS = (
    "activations",
    "norm",
    "softmax",
    "attention",
    "embedding",
    "losses",
    "indexing",
    "linalg",
    "optim",
    "matmul",
    "quantised",
)
ALL = "all"

Ours = Callable[..., Any]
Kinds = dict[str, int]  # kinds of devices, with the least elements of a call that is taken there
F = TypeVar("F", bound=Ours)


@dataclass(frozen=True)
class Row:
    """One function of torch with ours: when ours applies, and why it does not elsewhere.

    `places` are the names under `torch` where this function is found with these arguments, methods
    among them. `operators` are those whose measured times decide whether it is on by default.
    """

    group: str
    places: tuple[str, ...]
    ours: Ours
    operators: tuple[str, ...]
    applies: str
    elsewhere: str
    integers: tuple[torch.dtype, ...] = ()  # dtypes of indices, targets and masks
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float16, torch.bfloat16)
    autocast: bool = True  # ours does what torch's does under torch.autocast
    compiled: bool = True  # ours can be traced by torch.compile
    in_place: bool = False  # what an error leaves half written cannot be taken back
    # How the replacement is made, where it is no plain function: of row, place, original, kinds.
    make: Callable[[Row, str, Any, Kinds], Any] | None = None

    @property
    def name(self) -> str:
        return f"torch.{self.places[0]}"


@dataclass
class Table:
    """The rows, in the order of their groups' declaration."""

    rows: list[Row] = field(default_factory=list)

    def row(
        self, group: str, *places: str, operators: tuple[str, ...], **words: Any
    ) -> Callable[[F], F]:
        """Declares the function below as ours for torch's functions at `places`."""

        def declare(ours: F) -> F:
            self.rows.append(Row(group, places, ours, operators, **words))
            return ours

        return declare

    def of(self, group: str) -> list[Row]:
        return [row for row in self.rows if group in (ALL, row.group)]


TABLE = Table()
row = TABLE.row


def check_groups(names: tuple[str, ...]) -> None:
    """ValueError for a group that is not there."""
    for name in names:
        if name not in (*GROUPS, ALL):
            known = ", ".join((*GROUPS, ALL))
            raise ValueError(f"overrides: unknown group {name!r}; the groups are {known}")


def as_markdown() -> str:
    """The table, as the document has it; neighbours with the same words share a line."""
    lines = ["| group | torch's function | ours takes | torch keeps |", "|---|---|---|---|"]
    merged: dict[tuple[str, str, str], list[str]] = {}
    for one in TABLE.rows:
        names = merged.setdefault((one.group, one.applies, one.elsewhere), [])
        names += [f"`{path}`" for path in one.places]
    for (group, applies, elsewhere), names in merged.items():
        lines.append(f"| {group} | {', '.join(names)} | {applies} | {elsewhere} |")
    return "\n".join(lines)
