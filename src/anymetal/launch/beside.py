"""Launches on CPU tensors that run beside the code that prepares the next ones.

Most kernels wait for memory, which one processor nearly uses up: while it works, what another one
does costs little. A step of an optimizer over large tensors has much that stands between two
launches. docs/training.md has what this gains, which has been nothing where it was timed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import torch


class Launches:
    """The launches of a block in their order, on a thread of their own."""

    asynchronous = True

    def __init__(self) -> None:
        self._submitted: list[Future[None]] = []

    def submit(self, work: Callable[[], None]) -> None:
        self._submitted.append(_thread().submit(work))

    def wait(self) -> None:
        """Return when all have run; raise what the first of those that failed has raised."""
        submitted, self._submitted = self._submitted, []
        failed = [error for launch in submitted if (error := launch.exception()) is not None]
        if failed:
            raise failed[0]


class _OfThread(threading.local):
    launches: Launches | None = None


_current = _OfThread()


@functools.cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="anymetal-launches")


os.register_at_fork(after_in_child=_thread.cache_clear)


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Launches of the block run in their order beside its code; they have run when it ends.

    Only launches may look at what they write, until `wait_for_launches` or the end.
    """
    if _current.launches is not None or torch.get_num_threads() == 1:
        yield
        return
    launches = _current.launches = Launches()
    try:
        yield
    finally:
        _current.launches = None
        launches.wait()


def launches_beside() -> Launches | None:
    """Where a launch of this thread goes, if not to where it is called."""
    return _current.launches


def wait_for_launches() -> None:
    """Return when everything has run that the block has launched so far."""
    if _current.launches is not None:
        _current.launches.wait()


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Launches run where they are called, inside of `beside` too."""
    wait_for_launches()
    launches, _current.launches = _current.launches, None
    try:
        yield
    finally:
        _current.launches = launches
