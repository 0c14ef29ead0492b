"""Launches on tensors of the virtual mps device: the device hands in its queue when it is enabled.

The device stands above this room: it compiles shaders with it, and this room never asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from anymetal.checker.context import wait_before_leaving


class Queue(Protocol):
    """What a launch needs of the device's command queue."""

    asynchronous: bool

    def submit(self, work: Callable[[], None]) -> None:
        """Run `work` after all that was submitted before it."""

    def wait(self) -> None:
        """Return when everything submitted has run."""

    def report(self, message: str) -> None:
        """An error to raise at the next synchronisation."""


_queue: Queue | None = None


def use_queue(queue: Queue) -> None:
    """From now on tensors on `mps` are host memory, and their launches go through this queue."""
    global _queue  # noqa: PLW0603  (the device is enabled for the whole process)
    _queue = queue
    wait_before_leaving(queue.wait)


def command_queue() -> Queue | None:
    """The queue of the enabled device, or None."""
    return _queue


def is_enabled() -> bool:
    """Whether `mps` is the virtual device in this process."""
    return _queue is not None
