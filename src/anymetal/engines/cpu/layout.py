"""What Python and the CPU runtime (runtime.cpp) hand to each other -> engines/cpu/layout.h."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.machine.table import Enum, Enumeration, Header, Structure, member, packer, table

FAILED = 5  # behind the levels of metal::log_type: an assert that does not hold
STACK_BYTES = 64 << 20  # of each worker: simdgroups keep what 32 threads declare in one frame
MAX_PRIVATE_BYTES = 512 << 10


class Outcome(Enumeration):
    """How a run ended."""

    FINISHED = 0
    INTERRUPTED = 1
    TIMED_OUT = 2
    NO_MEMORY = 3
    FAULTED = 4
    STACK_OVERFLOW = 5
    ENOUGH = 6, "its listener has seen what it wanted"
    BESIDE_MEMORY = 7, "the kernel wrote where its threadgroup memory has ended"


@table("LogSink")
class LogSink(Structure):
    """Where os_log messages of a launch are collected until Python formats them."""

    data: int = member("char*")
    size: int = member("unsigned long")
    capacity: int = member("unsigned long")
    dropped: int = member("unsigned long", note="messages beyond kLogLimit")
    locked: int = member("unsigned")


@table("LogRecord")
class LogRecord(Structure):
    """One message in a LogSink; `count` values of type am_log_value follow it."""

    subsystem: int = member("const char*", note="null for os_log_default")
    category: int = member("const char*", note="likewise")
    format: int = member("const char*", note="a literal of the kernel: lives as long as its code")
    level: int = member("int", note="metal::log_type, or AM_LOG_FAILED for an assert")
    count: int = member("unsigned")
    thread: Any = member("unsigned", 3, note="thread_position_in_grid")


@table("Launch")
class Launch(Structure):
    """One launch: what changes with each call first, then what the kernel fixes."""

    buffers = member("void* const*")
    threads = member("unsigned", 3)
    group_size = member("unsigned", 3)
    workers = member("unsigned")
    on_main_thread = member("unsigned", note="1: Ctrl-C is delivered to the calling thread")
    time_limit = member("double", note="seconds without a finished threadgroup; 0: none")
    log = member("LogSink*")
    listener_data = member("void*")
    kernel = member("void*", note="am_coroutine, am_group_main or am_thread_main")
    frame_size = member("unsigned long", note="0: the kernel never stops")
    by_simdgroup = member("unsigned long", note="1: the kernel runs a simdgroup at a time")
    edge_kernel = member(
        "void*", note="by_simdgroup: for threadgroups cut by the grid's edge; may be the same"
    )
    edge_frame_size = member("unsigned long")
    static_memory = member("unsigned long")
    dynamic_memory = member("unsigned long", THREADGROUP_ARGUMENTS)


BUFFERS_PART = packer(Launch, "buffers", "buffers")
CALL_PART = packer(Launch, "threads", "listener_data")
KERNEL_PART = packer(Launch, "kernel", "dynamic_memory")

HEADER = Header(
    Path(__file__).with_name("layout.h"),
    "engines/cpu/layout.py",
    constants={"AM_STACK_BYTES": STACK_BYTES},
    enums=(Enum.of(Outcome, "am_outcome", "AM_RUN_"),),
    structures=(LogSink, LogRecord, Launch),
)
