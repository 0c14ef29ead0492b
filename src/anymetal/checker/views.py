"""The memory a launch may touch, as the launch room describes it to the checker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anymetal.nouns import Argument


@dataclass(frozen=True)
class BufferView:
    """A bound buffer, or one tensor of a list (then `index` is None).

    `extent` is the bytes of the tensor itself, `size` those up to the end of its storage.
    `tensor` is what was bound as memory, `value` what was copied: a number, a list of numbers or
    of tensors, or a tensor of no dimensions. `words` are the integers of a struct that was passed
    by the names of its fields. `declared` is the parameter; None where the kernel has none.
    """

    index: int | None
    name: str
    address: int
    extent: int
    size: int
    element_size: int
    tensor: Any = None
    value: Any = None
    cast: str | None = None
    words: tuple[int, ...] = ()
    declared: Argument | None = None
