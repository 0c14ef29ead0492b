"""NVIDIA's driver: PTX goes in, a function that can be launched comes out.

torch has made a context for each device it uses, and the driver is in the process by then: a
machine with torch and a GPU runs kernels without further packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
from collections.abc import Callable, Iterator

import torch

from anymetal import settings
from anymetal.engines.contract import Sizes
from anymetal.engines.cuda import launcher
from anymetal.engines.cuda.early import WAIT
from anymetal.errors import EngineError, KernelTimeout, LimitError

_log = logging.getLogger("anymetal.engines")

# CU_FUNC_ATTRIBUTE_...
_MAX_THREADS_PER_BLOCK, _STATIC_MEMORY, _LOCAL_BYTES, _REGISTERS = 0, 1, 3, 4
_MAX_DYNAMIC_MEMORY = 8
_MEMORY_OF_ALL = 48 * 1024  # that a launch may have without a word
# CU_JIT_...
_JIT_MAX_REGISTERS, _JIT_ERROR_LOG, _JIT_ERROR_LOG_BYTES, _JIT_OPTIMISATION = 0, 5, 6, 7
REGISTERS = 65536  # of a multiprocessor, and so of a block
_LOG_BYTES = 8192
_EARLY_IN_GRAPHS = 12030  # CUDA 12.3
_NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_ASSERTED = 710  # CUDA_ERROR_ASSERT
_NO_CONTEXT = (201, 3)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_INITIALIZED


def write(address: int, data: bytes) -> None:
    """Bytes to a place in this process's memory."""
    ctypes.memmove(address, data, len(data))


@functools.cache
def _library() -> ctypes.CDLL:
    names = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise EngineError(f"NVIDIA's driver is not here: none of {', '.join(names)} can be loaded")


def _no_stream(device: int) -> int:
    raise EngineError(f"this build of torch has no CUDA, and no stream of device {device}")


# torch's current stream on a device: its own function, since every launch asks.
current: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _no_stream)


def enter(device: int) -> None:
    """Makes the device's context the thread's own: a new thread, such as one of autograd's, has
    none until it calls CUDA's runtime."""
    library, context = _library(), ctypes.c_void_p()
    _check(library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(library.cuCtxSetCurrent(context))


@contextlib.contextmanager
def outside_recordings() -> Iterator[None]:
    """In it may be done what a CUDA graph that is being recorded forbids: to load code, to set
    memory aside, to wait. None of it becomes a part of the graph."""
    library, mode = _library(), ctypes.c_int(_RELAXED)
    _check(library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    try:
        yield
    finally:
        _check(library.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))


class Function:
    """A kernel on one device."""

    def __init__(
        self,
        module: ctypes.c_void_p,
        handle: ctypes.c_void_p,
        device: int,
        name: str,
        *,
        early: bool,
    ) -> None:
        self._module = module
        self._handle = handle
        self._device = device
        self._name = name
        self._early = early
        self.max_threads = self._attribute(_MAX_THREADS_PER_BLOCK)
        self.registers = self._attribute(_REGISTERS)
        self.local_bytes = self._attribute(_LOCAL_BYTES)  # of a thread: arrays and what is spilled
        self._allowed_memory = _MEMORY_OF_ALL - self._attribute(_STATIC_MEMORY)

    def prepared(
        self, groups: Sizes, width: int, memory: int, stream: int, block: int
    ) -> launcher.Queue:
        """What queues a launch; `block` is the address of its one argument. A status that is not 0
        goes to `again`."""
        self._allow_memory(memory)
        found, library = launcher.bindings(), _library()
        handle = int(self._handle.value or 0)
        launch = launcher.Launch(handle, groups, width, memory, stream, block, self._early)
        return launcher.by_bindings(launch, found) if found else launcher.by_ctypes(launch, library)

    def _allow_memory(self, size: int) -> None:
        """A launch may set aside so many bytes of threadgroup memory."""
        if size <= self._allowed_memory:
            return
        status = _library().cuFuncSetAttribute(self._handle, _MAX_DYNAMIC_MEMORY, size)
        if status:
            raise LimitError(
                f"kernel '{self._name}' needs {size} bytes of threadgroup memory, more than device"
                f" {self._device} has: {_message(status)}"
            )
        self._allowed_memory = size

    def again(self, status: int, put: launcher.Queue) -> None:
        """A launch that was refused, once more where the thread had no context."""
        if status in _NO_CONTEXT:
            enter(self._device)
            status = put()
        if status:
            why = _message(status)
            if status == _ASSERTED:
                why += " before, as stderr says; no kernel runs on the GPU in this process any more"
            raise EngineError(f"kernel '{self._name}' was not launched: {why}")

    def variable(self, name: str) -> tuple[int, int]:
        """Address and size of a variable of the kernel's module, on the device."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        with outside_recordings():
            found = _library().cuModuleGetGlobal_v2(
                ctypes.byref(address), ctypes.byref(size), self._module, name.encode()
            )
        _check(found)
        return address.value, size.value

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        _check(_library().cuFuncGetAttribute(ctypes.byref(value), number, self._handle))
        return value.value


def _can_start_early() -> bool:
    """Whether launches that may start early can be part of a CUDA graph, as torch records them."""
    version = ctypes.c_int()
    _check(_library().cuDriverGetVersion(ctypes.byref(version)))
    return version.value >= _EARLY_IN_GRAPHS


def registers_of(threads: int) -> int:
    """How many a thread can have where so many are on a multiprocessor, which deals in eights."""
    return REGISTERS // threads // 8 * 8


def load(ptx: str, name: str, device: int, *, threads: int = 0) -> Function:
    """The kernel of a PTX module, on a device. With `threads`, so few registers that a
    threadgroup can have that many."""
    enter(device)
    limits = {_JIT_MAX_REGISTERS: registers_of(threads)} if threads else {}
    with outside_recordings():
        return _loaded(ptx, name, device, limits)


def _loaded(ptx: str, name: str, device: int, limits: dict[int, int]) -> Function:
    status, module, said = _assembled(ptx, limits)
    if status:
        # Optimising, the assembler runs out of predicates for some texts, and gives up.
        _log.warning("kernel '%s' is assembled with less optimisation: %s", name, said)
        status, module, _ = _assembled(ptx, {**limits, _JIT_OPTIMISATION: 1})
    if status:
        raise EngineError(f"kernel '{name}' was not assembled: {_message(status)}\n{said}")
    handle = ctypes.c_void_p()
    _check(_library().cuModuleGetFunction(ctypes.byref(handle), module, b"am_entry"))
    return Function(module, handle, device, name, early=WAIT in ptx and _can_start_early())


def _assembled(ptx: str, limits: dict[int, int]) -> tuple[int, ctypes.c_void_p, str]:
    """The driver's status, the module, and what its assembler complained of."""
    log, module = ctypes.create_string_buffer(_LOG_BYTES), ctypes.c_void_p()
    place = ctypes.cast(log, ctypes.c_void_p).value
    options = {_JIT_ERROR_LOG: place, _JIT_ERROR_LOG_BYTES: _LOG_BYTES, **limits}
    keys = (ctypes.c_int * len(options))(*options)
    values = (ctypes.c_void_p * len(options))(*options.values())
    status = _library().cuModuleLoadDataEx(
        ctypes.byref(module), ptx.encode(), len(options), keys, values
    )
    return status, module, log.value.decode(errors="replace")


def fill(address: int, size: int, stream: int) -> None:
    """Zeros to the device, behind what a stream has."""
    _check(
        _library().cuMemsetD8Async(ctypes.c_uint64(address), 0, ctypes.c_size_t(size), _on(stream))
    )


def store(address: int, data: bytes) -> None:
    """Bytes to the device, now."""
    library, stream = _library(), ctypes.c_void_p()
    with outside_recordings():
        _check(library.cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING))
        try:
            size = ctypes.c_size_t(len(data))
            _check(library.cuMemcpyHtoDAsync_v2(ctypes.c_uint64(address), data, size, stream))
            _check(library.cuStreamSynchronize(stream))
        finally:
            library.cuStreamDestroy_v2(stream)


def send(address: int, data: bytes, stream: int, device: int) -> None:
    """Bytes to the device, behind what a stream has; they may change as soon as this returns."""
    arguments = (ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)), _on(stream))
    status = _library().cuMemcpyHtoDAsync_v2(*arguments)
    if status in _NO_CONTEXT:
        enter(device)
        status = _library().cuMemcpyHtoDAsync_v2(*arguments)
    _check(status)


def memory(device: int, size: int) -> int:
    """The address of memory on a device that is never given back."""
    enter(device)
    address = ctypes.c_uint64()
    with outside_recordings():
        _check(_library().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(size, 1))))
    return address.value


def fetch(address: int, size: int) -> bytes:
    """Bytes from the device; nothing writes them any more."""
    data = ctypes.create_string_buffer(size)
    _check(_library().cuMemcpyDtoH_v2(data, ctypes.c_uint64(address), ctypes.c_size_t(size)))
    return data.raw


class Mark:
    """A place in a stream of the current device, until which one can wait."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        _check(_library().cuEventCreate(ctypes.byref(self._handle), _NO_TIMING))

    def set(self, stream: int) -> None:
        _check(_library().cuEventRecord(self._handle, _on(stream)))

    def wait(self, name: str) -> None:
        """Until all is done that came before, a launch of kernel `name` last."""
        _check_kernel(_library().cuEventSynchronize(self._handle), name)


def wait(stream: int, name: str) -> None:
    """Until all is done that a stream has, a launch of kernel `name` last."""
    _check_kernel(_library().cuStreamSynchronize(_on(stream)), name)


def _check_kernel(status: int, name: str) -> None:
    if status == _ASSERTED:
        raise KernelTimeout(
            f"kernel '{name}', or one before it on the stream, took longer than"
            f" {settings.TIME_LIMIT.variable} and was stopped; stderr has its name. No kernel can"
            " run on the GPU in this process any more"
        )
    if status:
        raise EngineError(f"kernel '{name}' failed: {_message(status)}")


def _on(stream: int) -> ctypes.c_void_p:
    return ctypes.c_void_p(stream)


def _check(status: int) -> None:
    if status:
        raise EngineError(f"NVIDIA's driver: {_message(status)}")


def _message(status: int) -> str:
    text = ctypes.c_char_p()
    _library().cuGetErrorString(status, ctypes.byref(text))
    return (text.value or b"unknown error").decode()
