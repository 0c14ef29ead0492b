"""The runtime in C++ (runtime.cpp): built once, linked into this process, called from here."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from pathlib import Path

from anymetal.engines.cpu import jit, layout
from anymetal.engines.cpu.shared import SharedCode
from anymetal.engines.cpu.target import HOST
from anymetal.errors import ToolchainError
from anymetal.machine import layout as machine
from anymetal.msl import clang
from anymetal.nouns import Target
from anymetal.store.cache import default_store
from anymetal.store.fingerprint import fingerprint

_FOLDER = Path(__file__).parent
_SOURCES = (
    "runtime.cpp",
    "faults.h",
    "fenced.h",
    "layout.h",
    "log_sink.h",
    "run_listener.h",
    "scheduler.h",
    "stack.h",
    "system.h",
)


@functools.cache
def _faults(size: int) -> ctypes.Array[ctypes.c_char]:
    """What the runtimes of this process share about signals; never freed, as handlers use it."""
    return ctypes.create_string_buffer(size)


class Runtime:
    """Entry points of the runtime: one instance for plain runs, another for checked ones."""

    def __init__(self, code: jit.LoadedCode | SharedCode) -> None:
        self._code = code
        self.address = self._code.address
        self.run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(self._code.address("am_run"))
        self.frame_size = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)(
            self._code.address("am_frame_size")
        )
        self.free_log = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("am_free_log"))
        size = ctypes.CFUNCTYPE(ctypes.c_ulong)(self._code.address("am_faults_size"))()
        share = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("am_share_faults"))
        share(ctypes.addressof(_faults(size)))
        reset = ctypes.CFUNCTYPE(None)(self._code.address("am_runtime_reset"))
        reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=reset)


def start_runtime(include_dirs: tuple[Path, ...] = ()) -> Runtime:
    """Builds a runtime, or takes it from the store; headers in `include_dirs` stand before ours."""
    machine.HEADER.check()
    layout.HEADER.check()
    store = default_store()
    sources = [_FOLDER / name for name in _SOURCES]
    headers = (clang.INCLUDE_DIR, *HOST.include_dirs, *include_dirs)
    key = fingerprint("tools", "processor", *headers, *sources)
    entry = store.get("runtime", key)
    if entry is not None:
        return Runtime(jit.LoadedCode(entry.payload))
    code = jit.object_code(compile_runtime(HOST, include_dirs), level=2)
    store.put("runtime", key, {}, code)
    return Runtime(jit.LoadedCode(code))


def compile_runtime(target: Target, include_dirs: tuple[Path, ...] = ()) -> str:
    """LLVM IR of the runtime."""
    return clang.compile_support(_FOLDER / "runtime.cpp", target, include_dirs)


_start_lock = threading.Lock()


@functools.cache
def _start() -> Runtime:
    runtime = start_runtime()
    for symbol in ("am_log", "__truncsfbf2"):
        jit.provide_symbol(symbol, runtime.address(symbol))
    return runtime


def runtime() -> Runtime:
    """The runtime of this process, built and started at its first use."""
    with _start_lock:
        return _start()


def start_early() -> None:
    """Builds and starts the runtime beside whatever the caller does next, if it is not there
    yet."""
    if _start.cache_info().currsize == 0:
        threading.Thread(target=_start_quietly, name="anymetal-runtime").start()


def _start_quietly() -> None:
    # Whoever needs the runtime meets the same error again, in a place where it can be handled.
    with contextlib.suppress(ToolchainError):
        runtime()
