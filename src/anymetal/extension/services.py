"""What the stand-ins ask of Python: kernels to compile and launch, a queue, findings to note."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

from anymetal.checker.context import active
from anymetal.checker.finding import Finding, Launched, Place
from anymetal.checker.paths import shown_path
from anymetal.extension import records
from anymetal.extension.kernels import Kernels
from anymetal.extension.symbols import Symbols, excerpt
from anymetal.launch.virtual import command_queue

T = TypeVar("T")


class Bridge:
    """The functions of the stand-ins' library and ours, each given to the other."""

    def __init__(self, runtime: ctypes.CDLL, device: Any) -> None:
        self.kernels = Kernels()
        self.symbols = Symbols()
        self._runtime = runtime
        for name in ("set_text", "delete_text"):
            getattr(runtime, f"anymetal_extension_{name}").restype = None
        runtime.anymetal_extension_new_text.restype = ctypes.c_void_p
        runtime.anymetal_extension_text.restype = ctypes.c_char_p
        runtime.anymetal_extension_set_text.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
        runtime.anymetal_extension_text.argtypes = [ctypes.c_void_p]
        runtime.anymetal_extension_delete_text.argtypes = [ctypes.c_void_p]
        runtime.anymetal_extension_run.argtypes = [ctypes.c_uint64, ctypes.c_void_p]
        # Kept: the stand-ins call them as long as the process lives.
        self._services = records.Services(
            *(_address(device, name) for name in ("hold", "let_go", "is_freed")),
            *(_address(device, name) for name in ("known", "containing", "set_encoding")),
            records.Compile(self._compile),
            records.FunctionNames(self._function_names),
            records.Pipeline(self._pipeline),
            records.Launch(self._launch),
            records.Submit(self._submit),
            records.Synchronize(self._synchronize),
            records.Report(self._report),
        )
        hooks = records.ExtensionHooks(
            *(
                ctypes.cast(getattr(runtime, f"anymetal_extension_{name}"), ctypes.c_void_p)
                for name in records.HOOKS
            )
        )
        runtime.anymetal_extension_install(ctypes.byref(self._services))
        runtime.anymetal_extension_watch_operators()
        device.anymetal_device_set_extension(ctypes.byref(hooks))

    def _answer(self, place: int, text: str) -> None:
        self._runtime.anymetal_extension_set_text(place, text.encode())

    def _guarded(self, place: int, function: Callable[[], T], failed: T) -> T:
        """The result, or what stands for a failure with its words: nothing is raised into C++."""
        try:
            return function()
        except Exception as error:
            self._answer(place, f"{error}")
            return failed

    def _compile(
        self, text: int, length: int, macros: bytes, fast_math: int, is_data: int, answer: int
    ) -> int:
        data = ctypes.string_at(text, length)
        return self._guarded(
            answer,
            lambda: self.kernels.compile(data, macros.decode(), bool(fast_math), bool(is_data)),
            0,
        )

    def _function_names(self, library: int, answer: int) -> None:
        self._answer(answer, "\n".join(self.kernels.names(library)))

    def _pipeline(
        self, library: int, name: bytes, constants: bytes, facts: Any, answer: int
    ) -> int:
        return self._guarded(
            answer,
            lambda: self.kernels.pipeline(
                library, name.decode(), constants.decode(), facts.contents
            ),
            0,
        )

    def _launch(self, pipeline: int, record: Any, answer: int) -> int:
        def launch() -> int:
            table = ctypes.addressof(record.contents)
            self.kernels.launch(pipeline, record.contents, table)
            return 1

        return self._guarded(answer, launch, 0)

    def _submit(self, work: int, answer: int) -> int:
        queue = command_queue()
        if queue is None or not queue.asynchronous:
            return int(self._runtime.anymetal_extension_run(work, answer))
        queue.submit(lambda: self._run_later(work))
        return 1

    def _run_later(self, work: int) -> None:
        text = self._runtime.anymetal_extension_new_text()
        try:
            if not self._runtime.anymetal_extension_run(work, text):
                raise RuntimeError(self._runtime.anymetal_extension_text(text).decode())
        finally:
            self._runtime.anymetal_extension_delete_text(text)

    def _synchronize(self, answer: int) -> None:
        queue = command_queue()
        if queue is not None:
            queue.wait()

    def _report(
        self,
        kind: bytes,
        severity: bytes,
        call: bytes,
        operation: bytes,
        message: bytes,
        frames: Any,
        count: int,
        answer: int,
    ) -> None:
        position = self.symbols.position(frames[i] or 0 for i in range(count))
        where = f"{shown_path(position.file)}:{position.line}: " if position else ""
        what = f"{call.decode()}: {message.decode()}"
        self._answer(answer, f"{where}{what}")
        check = active()
        if check is None:
            return
        check = check.called_here()
        place = Place(position, excerpt(position), call.decode(), None, None, None)
        check.report.add(
            Finding(
                kind=kind.decode(),
                severity="error" if severity == b"error" else "warning",
                kernel=operation.decode() or "an extension",
                message=what,
                place=place,
                launch=Launched(sum(check.report.launches.values()), check.caller, check.test),
            )
        )


def _address(device: Any, name: str) -> ctypes.c_void_p:
    return ctypes.cast(getattr(device, f"anymetal_device_{name}"), ctypes.c_void_p)
