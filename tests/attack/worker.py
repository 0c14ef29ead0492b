"""A process that runs cases: its death, or its silence, is the answer to the case it had."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .cases import Hostile

ROOT = Path(__file__).parent.parent.parent
# Beyond the limit of compilation: the start of the process, the launch, and a slow machine.
SLACK = 60


class Worker:
    """Runs one case at a time; after a death the next case gets a new process. With `apart` each
    gets one: a copy of a process that has imported torch."""

    def __init__(self, *, apart: bool = False) -> None:
        self._apart = apart
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, case: Hostile | Path, way: str) -> str:
        """How a case ends: `runs`, `finds KINDS`, `refused: ...`, `raises NAMES: ...`, or that the
        process died or hung."""
        process = self._process = self._process or _start(self._apart)
        limit = 60
        if isinstance(case, Hostile):
            question: dict[str, Any] = asdict(case)
            limit = case.limit
        else:
            question = {"file": str(case)}
        assert process.stdin is not None
        process.stdin.write(json.dumps(question | {"way": way}).encode() + b"\n")
        process.stdin.flush()
        line = _line(process, time.monotonic() + limit + SLACK)
        if line is None:
            os.killpg(process.pid, signal.SIGKILL)
            self.close()
            return f"hangs: no answer after {limit + SLACK} s"
        if not line.endswith(b"\n"):
            status = process.wait()
            self._process = None
            return f"dies: status {status}"
        return str(json.loads(line))

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(apart: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.attack.serve", *(["--apart"] if apart else [])],
        start_new_session=True,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _line(process: subprocess.Popen[bytes], until: float) -> bytes | None:
    """What the process writes up to the end of the line or of its life; None when time is up."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0, until - time.monotonic()))
        if not ready:
            return None
        part = os.read(process.stdout.fileno(), 1 << 16)
        if not part:
            return line
        line += part
    return line
