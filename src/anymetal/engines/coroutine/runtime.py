"""The runtime in C++ (runtime.cpp): built once, linked into this process, called from here."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from pathlib import Path

from anymetal.engines.coroutine import jit
from anymetal.msl import clang
from anymetal.msl.cache import default_store, digest_of

_SOURCES = ("runtime.cpp", "scheduler.h", "system.h", "log_sink.h", "run_listener.h")


class LogSink(ctypes.Structure):
    """log_sink.h's LogSink."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_ulong),
        ("capacity", ctypes.c_ulong),
        ("dropped", ctypes.c_ulong),
        ("locked", ctypes.c_uint),
    )


class LogRecord(ctypes.Structure):
    """log_sink.h's LogRecord; its values follow it."""

    _fields_ = (
        ("subsystem", ctypes.c_char_p),
        ("category", ctypes.c_char_p),
        ("format", ctypes.c_char_p),
        ("level", ctypes.c_int),
        ("count", ctypes.c_uint),
    )


class Runtime:
    """Entry points of the runtime. There is one in a process."""

    def __init__(self, code: bytes) -> None:
        self._code = jit.LoadedCode(code)
        self.run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)(self._code.address("am_run"))
        self.frame_size = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)(
            self._code.address("am_frame_size")
        )
        self.free_log = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._code.address("am_free_log"))
        reset = ctypes.CFUNCTYPE(None)(self._code.address("am_runtime_reset"))
        reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=reset)
        for symbol in ("am_log", "__truncsfbf2"):
            jit.provide_symbol(symbol, self._code.address(symbol))


def source_digest() -> str:
    """Digest of the runtime's own sources: part of every key that depends on them."""
    folder = Path(__file__).parent
    return digest_of(*((folder / name).read_bytes() for name in _SOURCES))


_start_lock = threading.Lock()


@functools.cache
def _start() -> Runtime:
    store = default_store()
    key = digest_of(source_digest(), clang.toolchain_key())
    entry = store.get("runtime", key)
    if entry is not None:
        return Runtime(entry.payload)
    ir = clang.compile_support(Path(__file__).parent / "runtime.cpp")
    code = jit.object_code(ir, level=2)
    store.put("runtime", key, {}, code)
    return Runtime(code)


def runtime() -> Runtime:
    """The runtime of this process, built and started at its first use."""
    with _start_lock:
        return _start()
