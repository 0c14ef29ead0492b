"""How launches are queued: by NVIDIA's cuda-bindings where they are installed, by ctypes elsewhere.

Numbers become the driver's structures once, when a launch is prepared, and not at each launch.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

Queue = Callable[[], int]
"""Queues a launch; returns the driver's status, 0 where all is well."""


class Launch(NamedTuple):
    """One launch: `arguments` is the address of the kernel's one argument. `early`: the kernel may
    be started before the one in front of it has ended (early.py)."""

    function: int
    groups: tuple[int, int, int]
    width: int
    memory: int
    stream: int
    arguments: int
    early: bool


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is a union of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_uint),
        ("_padding", ctypes.c_uint),
        ("value", ctypes.c_int),
        ("_rest", ctypes.c_char * 60),
    )


_MAY_START_EARLY = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Configuration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((f"grid_{axis}", ctypes.c_uint) for axis in "xyz"),
        *((f"block_{axis}", ctypes.c_uint) for axis in "xyz"),
        ("memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@functools.cache
def bindings() -> Any:
    """NVIDIA's package of the driver's functions; None where it is not installed."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError:
        return None


def by_ctypes(launch: Launch, library: ctypes.CDLL) -> Queue:
    where = _Configuration(*launch.groups, launch.width, 1, 1, launch.memory, launch.stream)
    if launch.early:
        where.attributes = ctypes.pointer(_Attribute(id=_MAY_START_EARLY, value=1))
        where.attribute_count = 1
    arguments = (
        ctypes.byref(where),
        ctypes.c_void_p(launch.function),
        ctypes.byref(ctypes.c_uint64(launch.arguments)),
        None,
    )
    return functools.partial(library.cuLaunchKernelEx, *arguments)


def by_bindings(launch: Launch, driver: Any) -> Queue:
    where = driver.CUlaunchConfig()
    where.gridDimX, where.gridDimY, where.gridDimZ = launch.groups
    where.blockDimX, where.blockDimY, where.blockDimZ = launch.width, 1, 1
    where.sharedMemBytes = launch.memory
    where.hStream = driver.CUstream(launch.stream)
    if launch.early:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID(_MAY_START_EARLY)
        attribute.value.programmaticStreamSerializationAllowed = 1
        where.attrs, where.numAttrs = [attribute], 1
    function, queue = driver.CUfunction(launch.function), driver.cuLaunchKernelEx
    place = ctypes.c_uint64(launch.arguments)

    def run(address: int = ctypes.addressof(place), kept: Any = place) -> int:
        status: int = queue(where, function, address, 0)[0]
        return status

    return run
