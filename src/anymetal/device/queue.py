"""Kernel launches that run later, and the errors that kernels report.

By default a launch runs when it is called, and only its errors wait: a Mac raises them at the next
synchronisation. With `asynchronous` a worker runs launches in their order while the program goes
on. Operators of torch wait for it, through the callback that the C++ library is given.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

Work = Callable[[], None]
_RETURNED = 0.01  # seconds after which a callback has surely returned to Python
DrainFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)


class CommandQueue:
    """The one queue of the device."""

    def __init__(self, native: Any) -> None:
        self.asynchronous = False
        self._native = native
        self._work: deque[Work] = deque()
        self._errors: list[str] = []
        self._reported: Any = None
        self._changed = threading.Condition()
        self._busy = False
        self._interrupted = False
        self._worker: threading.Thread | None = None
        self.callback = DrainFunction(self._drain)
        os.register_at_fork(after_in_child=self._forget)

    def configure(self, *, asynchronous: bool) -> None:
        """Finish what is queued, then go on in this way."""
        self.wait()
        self.asynchronous = asynchronous
        self._native.anymetal_device_configure(int(asynchronous), self.callback)

    def submit(self, work: Work) -> None:
        """Run `work` after all that was submitted before it."""
        self._native.anymetal_device_copy_to_device()
        with self._changed:
            self._work.append(work)
            self._native.anymetal_device_set_queued(1)
            if self._worker is None:
                self._worker = threading.Thread(target=self._run, name="mps-queue", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    def report(self, message: str) -> None:
        """An error to raise at the next synchronisation."""
        with self._changed:
            self._errors.append(message)
            self._native.anymetal_device_set_queued(1)

    def wait(self) -> None:
        """Return when everything submitted has run."""
        with self._changed:
            self._changed.wait_for(lambda: not self._work and not self._busy)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work)
                work = self._work.popleft()
                self._busy = True
            try:
                work()
            except Exception as error:
                self._errors.append(f"{type(error).__name__}: {error}")
            del work
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _drain(self, synchronize: int) -> int | None:
        """Called by C++: wait, and when it synchronises, hand over the first error."""
        if self._interrupted:
            return None
        try:
            self.wait()
        except KeyboardInterrupt:
            # Nothing can be raised through C++: it is raised when Python goes on.
            self._interrupted = True
            threading.Timer(_RETURNED, self._interrupt).start()
            return None
        with self._changed:
            if synchronize and self._errors:
                self._reported = ctypes.create_string_buffer(self._errors[0].encode())
                self._errors.clear()
                self._native.anymetal_device_set_queued(int(bool(self._work)))
                return ctypes.addressof(self._reported)
            if not self._errors and not self._work:
                self._native.anymetal_device_set_queued(0)
            return None

    def _interrupt(self) -> None:
        self._interrupted = False
        _thread.interrupt_main()

    def _forget(self) -> None:
        """A forked child has no worker, and its parent's launches are not its own."""
        self._changed = threading.Condition()
        self._work.clear()
        self._errors.clear()
        self._busy = False
        self._worker = None
        self._native.anymetal_device_set_queued(0)
