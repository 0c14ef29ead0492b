"""A command in, what it printed out: within a time, a memory and an amount of output.

A source can make the compiler run for ever, or print until memory is full. Then the process is
ended, and Exceeded says what there was too much of.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_MOST_OUTPUT = 256 << 20
_MOST_MEMORY = 8 << 30


class Exceeded(Exception):
    """The command was ended; the text says why."""


@dataclass(frozen=True)
class Finished:
    """How a command ended, and what it printed."""

    status: int
    output: bytes
    messages: bytes


def run_bounded(
    command: Sequence[str],
    text: bytes,
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float | None,
) -> Finished:
    """Runs a command over a text; `seconds` None is for commands that are our own."""
    with tempfile.TemporaryFile() as given:
        given.write(text)
        given.seek(0)
        process = subprocess.Popen(
            command,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=environment,
        )
    with process:
        _limit_memory(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [_Reader(process, process.stdout), _Reader(process, process.stderr)]
        try:
            _wait(process, readers, seconds)
        except subprocess.TimeoutExpired:
            raise Exceeded(f"takes longer than {seconds:g} s") from None
        finally:
            process.kill()  # nothing happens where it has ended
            output, messages = (reader.finish() for reader in readers)
    if any(reader.overflowed for reader in readers):
        raise Exceeded(f"expands to more than {_MOST_OUTPUT >> 20} MiB")
    return Finished(process.returncode, output, messages)


def _wait(
    process: subprocess.Popen[bytes], readers: Sequence[_Reader], seconds: float | None
) -> None:
    """Waits for the end of what it prints first: Popen.wait looks every 50 ms at most."""
    if seconds is None:
        process.wait()
        return
    until = time.monotonic() + seconds
    for reader in readers:
        reader.wait(max(0.0, until - time.monotonic()))
    process.wait(max(0.0, until - time.monotonic()))


class _Reader:
    """Collects what a process prints, beside whoever waits for it."""

    def __init__(self, process: subprocess.Popen[bytes], stream: IO[bytes]) -> None:
        self.overflowed = False
        self._process = process
        self._stream = stream
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        size = 0
        while part := self._stream.read(1 << 16):
            size += len(part)
            if size > _MOST_OUTPUT:
                self.overflowed = True
                self._process.kill()
                return
            self._parts.append(part)

    def wait(self, seconds: float) -> None:
        """Returns at the end of the stream, or after so many seconds."""
        self._thread.join(seconds)

    def finish(self) -> bytes:
        self._thread.join()
        return b"".join(self._parts)


def _limit_memory(process: int) -> None:
    if sys.platform == "linux":
        import resource  # noqa: PLC0415  (not on every system)

        try:
            resource.prlimit(process, resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        except (PermissionError, ProcessLookupError):
            return  # a lower limit is in force, or it has ended already
