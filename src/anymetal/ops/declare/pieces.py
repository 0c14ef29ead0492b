"""How much of a row one of several threadgroups takes that share it."""

from __future__ import annotations

from anymetal.policy.policy import Choice


def piece_of(choice: Choice, name: str, length: int, rows: int) -> int:
    """The policy's value of that name; where rows of this length then give fewer threadgroups than
    `wanted_groups`, half of it, and half of that, as long as it is at least `least_piece`."""
    size = choice.values[name]
    wanted, least = choice.values.get("wanted_groups", 0), choice.values.get("least_piece", size)
    while size // 2 >= least and rows * -(-length // size) < wanted:
        size //= 2
    return size
