"""The structures and functions that Python and the stand-ins share: services.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as address

BUFFERS = 31


class PipelineFacts(ctypes.Structure):
    """A pipeline's limits, and what it does with its arguments."""

    _fields_ = [
        ("max_threads", c_uint64),
        ("width", c_uint64),
        ("static_memory", c_uint64),
        ("used", c_uint32),
        ("written", c_uint32),
        ("threadgroup", c_uint32),
        ("least_bytes", c_uint64 * BUFFERS),
    ]


class LaunchRecord(ctypes.Structure):
    """One launch. The first field is the table of addresses that kernels are given."""

    _fields_ = [
        ("addresses", c_uint64 * BUFFERS),
        ("sizes", c_uint64 * BUFFERS),
        ("extents", c_uint64 * BUFFERS),
        ("lengths", c_uint64 * BUFFERS),
        ("grid", c_uint64 * 3),
        ("group", c_uint64 * 3),
        ("reachable", POINTER(c_uint64)),
        ("reachable_count", c_uint64),
    ]


Compile = CFUNCTYPE(c_int64, address, c_size_t, c_char_p, c_int, c_int, address)
FunctionNames = CFUNCTYPE(None, c_int64, address)
Pipeline = CFUNCTYPE(c_int64, c_int64, c_char_p, c_char_p, POINTER(PipelineFacts), address)
Launch = CFUNCTYPE(c_int, c_int64, POINTER(LaunchRecord), address)
Submit = CFUNCTYPE(c_int, c_uint64, address)
Synchronize = CFUNCTYPE(None, address)
Report = CFUNCTYPE(
    *(None, c_char_p, c_char_p, c_char_p, c_char_p, c_char_p),
    *(POINTER(address), c_int, address),
)


class Services(ctypes.Structure):
    """Functions of the virtual device's library, then Python's."""

    _fields_ = [
        *((name, address) for name in ("hold", "let_go", "is_freed")),
        *((name, address) for name in ("known", "containing", "set_encoding")),
        ("compile", Compile),
        ("function_names", FunctionNames),
        ("pipeline", Pipeline),
        ("launch", Launch),
        ("submit", Submit),
        ("synchronize", Synchronize),
        ("report", Report),
    ]


HOOKS = (
    *("before_operator", "allocating", "synchronizing"),
    *("command_buffer", "dispatch_queue", "commit"),
)


class ExtensionHooks(ctypes.Structure):
    """What the virtual device calls: functions of the stand-ins."""

    _fields_ = [(name, address) for name in HOOKS]
