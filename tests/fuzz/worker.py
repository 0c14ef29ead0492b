"""A process that runs kernels: an engine's crash or endless loop is a finding, and not our end."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType

from . import tree
from .driver import Difference, compare, refused, run_on
from .model import run
from .tree import Kernel

SECONDS = 150
"""After this long without an answer a kernel counts as one that never ends."""


def _serve(pipe: Connection) -> None:
    while True:
        try:
            text, engine = pipe.recv()
        except EOFError:
            return
        kernel = tree.from_json(text)
        result = run_on(engine, kernel)
        refusal = refused(engine, result)
        pipe.send(refusal or compare(kernel, run(kernel), engine, result))


class Worker:
    """Checks kernels one by one; after a crash the next one gets a new process."""

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def check(self, kernel: Kernel, engines: Sequence[str]) -> list[Difference]:
        """What is wrong with the kernel, by all engines."""
        text = tree.to_json(kernel)
        found = [self._ask(text, engine) for engine in engines]
        self.refusals.update(e for e, f in zip(engines, found, strict=True) if f is True)
        return [difference for difference in found if isinstance(difference, Difference)]

    def refuses(self, kernel: Kernel, engine: str) -> bool:
        return self._ask(tree.to_json(kernel), engine) is True

    def _ask(self, text: str, engine: str) -> Difference | bool | None:
        """What is wrong, if anything; True where the engine refuses the kernel."""
        try:
            self._pipe.send((text, engine))
            if self._pipe.poll(SECONDS):
                answer = self._pipe.recv()
                assert answer is None or isinstance(answer, (Difference, bool))
                return answer
            what, kind = f"no end after {SECONDS} seconds", "endless"
        except (EOFError, ConnectionError):
            self._process.join()
            what, kind = f"the process ended with {self._process.exitcode}", "crash"
        self.close()
        self._start()
        return Difference(engine, what, kind)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
