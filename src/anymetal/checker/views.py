"""The memory a launch may touch, as the launch room describes it to the checker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BufferView:
    """A bound buffer, or one tensor of a list (then `index` is None).

    `extent` is the bytes of the tensor itself, `size` those up to the end of its storage.
    """

    index: int | None
    name: str
    address: int
    extent: int
    size: int
    element_size: int
    tensor: Any = None
