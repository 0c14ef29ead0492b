"""Stands in for NVIDIA's driver: kernels run here, at once, and CPU tensors pass as `cuda`."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
from tests.cuda.pretended import Replacement, cuda_tensors
from tests.cuda.simulator.ptx import parse
from tests.cuda.simulator.translate import SHARED_BASE, shared_layout, translate, variable_name

from anymetal.engines.contract import Sizes
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.target import HOST
from anymetal.engines.cuda import driver
from anymetal.errors import EngineError
from anymetal.launch import cuda
from anymetal.launch.error_buffer import ErrorBuffer
from anymetal.msl import clang
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

_FOLDER = Path(__file__).parent
_MESSAGE_BYTES = 1024
_PROPERTIES = SimpleNamespace(
    multi_processor_count=132, shared_memory_per_multiprocessor=228 * 1024
)  # an H200's
_SEEDS = itertools.count(1)


class Failure(EngineError):
    """A kernel did what hardware does not do, or not always."""


@functools.cache
def _machine() -> jit.LoadedCode:
    """What runs threads; kernels call it."""
    code = _compiled((_FOLDER / "machine.cpp").read_text())
    for symbol in ("now", "arrive", "add_copy", "note_written", "was_written"):
        jit.provide_symbol(symbol, code.address(symbol))
    return code


def _compiled(text: str) -> jit.LoadedCode:
    """C++ that may include the simulator's headers, as machine code; kept in the store."""
    key = digest_of(fingerprint("tools", "processor", _FOLDER), text)
    store = default_store()
    entry = store.get("simulated", key)
    if entry is not None:
        return jit.LoadedCode(entry.payload)
    with tempfile.TemporaryDirectory(prefix="anymetal-") as folder:
        path = Path(folder) / "simulated.cpp"
        path.write_text(text)
        ir = clang.compile_support(path, HOST, [_FOLDER], level=1)
    code = jit.object_code(ir, level=0)
    store.put("simulated", key, {}, code)
    return jit.LoadedCode(code)


class _Code:
    """A kernel's PTX as code that the simulator runs."""

    def __init__(self, text: str) -> None:
        kernel = parse(text)
        self._machine = _machine()
        self._code = _compiled(translate(kernel))
        self.static = shared_layout(kernel).end - SHARED_BASE
        self._sizes = {one.name: one.size for one in kernel.variables}

    def run(self, groups: Sizes, width: int, memory: int, block: int) -> str:
        """Runs a grid; what went wrong, or nothing."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        size = ctypes.CFUNCTYPE(ctypes.c_uint64)(self._code.address("registers_size"))()
        run = ctypes.CFUNCTYPE(ctypes.c_bool)(self._machine.address("simulate"))
        good = run(
            ctypes.c_void_p(self._code.address("step")),
            ctypes.c_uint64(size),
            (ctypes.c_uint32 * 3)(*groups),
            ctypes.c_uint32(width),
            ctypes.c_uint32(SHARED_BASE),
            ctypes.c_uint32(self.static + memory),
            ctypes.c_void_p(block),
            ctypes.c_uint64(next(_SEEDS) * 0x9E3779B97F4A7C15 % 2**64),
            message,
            ctypes.c_uint64(_MESSAGE_BYTES),
        )
        return "" if good else message.value.decode()

    def variable(self, name: str) -> tuple[int, int]:
        place = self._code.address(f"address_of_{variable_name(name)}")
        return ctypes.CFUNCTYPE(ctypes.c_uint64)(place)(), self._sizes[name]


@functools.cache
def _code_of(text: str) -> _Code:
    return _Code(text)


def as_loaded(text: str) -> str:
    """What runs in the place of a PTX text; tests plant mistakes here."""
    return text


class Function:
    """A kernel as the driver has it (driver.Function)."""

    max_threads = 1024
    registers = 32
    local_bytes = 0

    def __init__(self, text: str, name: str) -> None:
        self._text, self._name = text, name

    def prepared(
        self, groups: Sizes, width: int, memory: int, stream: int, block: int
    ) -> Callable[[], int]:
        return functools.partial(self._run, groups, width, memory, block)

    def _run(self, groups: Sizes, width: int, memory: int, block: int) -> int:
        text = as_loaded(self._text)
        message = _code_of(text).run(groups, width, memory, block)
        if message:
            raise Failure(f"{self._name}: {_with_lines(message, text)}")
        return 0

    def again(self, status: int, put: Callable[[], int]) -> None:
        raise AssertionError(f"status {status}")

    def variable(self, name: str) -> tuple[int, int]:
        return _code_of(self._text).variable(name)


def _with_lines(message: str, text: str) -> str:
    """A message that names lines of the PTX says what stands there."""
    lines = text.split("\n")
    places = [int(number) for number in re.findall(r"\bline (\d+)", message)]
    return "\n".join([message, *(f"  {place}: {lines[place - 1].strip()}" for place in places)])


class _Mark:
    def set(self, stream: int) -> None: ...

    def wait(self, name: str) -> None: ...


def _send(address: int, data: bytes, *_: object) -> None:
    ctypes.memmove(address, data, len(data))


def _new_errors() -> torch.Tensor:
    return torch.zeros(ctypes.sizeof(ErrorBuffer), dtype=torch.uint8)


_kept: list[ctypes.Array[ctypes.c_char]] = []


def _memory(device: int, size: int) -> int:
    _kept.append(ctypes.create_string_buffer(size))
    return ctypes.addressof(_kept[-1])


def _replaced() -> Iterator[Replacement]:
    """What stands in for what, beside what lets tensors pass as `cuda`."""
    yield torch.Tensor, "cuda", lambda self: self.clone()
    yield torch.cuda, "synchronize", lambda *_: None
    yield torch.cuda, "get_device_properties", lambda *_: _PROPERTIES
    yield torch.cuda, "is_current_stream_capturing", lambda: False
    yield cuda, "_new_errors", _new_errors
    yield driver, "Mark", _Mark
    yield driver, "current", lambda device: 0
    yield driver, "load", lambda text, name, device, threads=0: Function(text, name)
    yield driver, "memory", _memory
    yield driver, "send", _send
    yield driver, "store", _send
    yield driver, "fill", lambda address, size, stream: ctypes.memset(address, 0, size)
    yield driver, "fetch", lambda address, size: ctypes.string_at(address, size)
    yield driver, "wait", lambda *_: None


@contextlib.contextmanager
def simulated_gpu(capability: tuple[int, int] = (9, 0)) -> Iterator[None]:
    """In it all CPU tensors are those of a GPU, and kernels run on the simulator."""
    with contextlib.ExitStack() as stack:
        for owner, name, value in (*cuda_tensors(capability), *_replaced()):
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        yield
