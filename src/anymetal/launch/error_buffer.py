"""The buffer that `TORCH_REPORT_ERROR` writes to: memory goes in, an exception comes out.

The layout is that of `c10/metal/error.h` in the torch wheel; a test reads it back from a kernel.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator

import torch

_MESSAGES = 30
# torch names a fault on an accelerator so since 2.8; it is a RuntimeError.
_Error: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)


class _Message(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char * 128),
        ("function", ctypes.c_char * 128),
        ("text", ctypes.c_char * 250),
        ("line", ctypes.c_uint32),
    )


class ErrorBuffer(ctypes.Structure):
    """Counts every report, and holds the first thirty."""

    _fields_ = (("count", ctypes.c_uint32), ("messages", _Message * _MESSAGES))

    def raise_reported(self, kernel: str) -> None:
        """Raise what the kernel reported, if anything.

        torch raises the first message at the next synchronisation; here the kernel has ended, so
        it is raised at once.
        """
        message = self.message(kernel)
        if message is not None:
            raise _Error(message)

    def message(self, kernel: str) -> str | None:
        """The first report and where it came from, or None."""
        count = self.count
        if count == 0:
            return None
        first = self.messages[0]
        more = f", and {count - 1} more" if count > 1 else ""
        return (
            f"{_decode(first.text)}\n{kernel}: reported by {_decode(first.function)} at"
            f" {_decode(first.file)}:{first.line}{more}"
        )


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


_waiting = threading.local()


@contextlib.contextmanager
def checked_at_the_end() -> Iterator[None]:
    """Where a launch is only queued, what it reports is looked at when the block ends: launches
    that follow are queued behind it, and nothing waits in between."""
    _waiting.checks = checks = list[Callable[[], None]]()
    try:
        yield
    finally:
        _waiting.checks = None
    for check in checks:
        check()


def check_soon(check: Callable[[], None]) -> None:
    """Looks at reports at the end of the block that says so; without one, at once."""
    checks = getattr(_waiting, "checks", None)
    if checks is None:
        check()
    else:
        checks.append(check)
