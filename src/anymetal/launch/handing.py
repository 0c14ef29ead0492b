"""Who runs the launches of a block of code instead of the kernels themselves: a count, a profile.

A launch belongs to the runner that was entered last, whichever thread makes it: gradients are
computed in threads of autograd's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from anymetal.engines.counted import Counts

if TYPE_CHECKING:
    from anymetal.launch.kernel import Kernel


class Runner(Protocol):
    """Runs one launch its own way; the kernel's results must be there when it returns."""

    def run(self, kernel: Kernel, args: tuple[Any, ...], keywords: dict[str, Any]) -> None: ...


entered: list[Runner] = []


def runner() -> Runner | None:
    return entered[-1] if entered else None


@contextlib.contextmanager
def handed_to(one: Runner) -> Iterator[None]:
    """Launches inside the block are run by `one`."""
    entered.append(one)
    try:
        yield
    finally:
        entered.remove(one)


@contextlib.contextmanager
def handed_to_nobody() -> Iterator[None]:
    """Launches inside the block are ordinary ones: for a runner that only looks."""
    kept = entered[:]
    entered.clear()
    try:
        yield
    finally:
        entered[:] = kept


class Sources:
    """Notes the sources of the kernels that a block launches, and lets them run."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}  # by the kernel's name

    def run(self, kernel: Kernel, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.texts[kernel.name] = kernel.source_text
        with handed_to_nobody():
            kernel(*args, **keywords)


class Tally:
    """Counts what the launches of a block do; each runs on one processor."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, Any, Any, Counts]] = []

    def run(self, kernel: Kernel, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        counts = kernel.count(*args, **keywords)
        shape = (keywords.get("threads"), keywords.get("group_size"))
        self.launches.append((kernel.name, *shape, counts))

    @property
    def moved_bytes(self) -> int | None:
        """Bytes of buffers that were asked for; None where nothing was launched."""
        if not self.launches:
            return None
        counted = (counts for *_, counts in self.launches)
        return sum(c.device_bytes_read + c.device_bytes_written for c in counted)
