"""os_log messages of a finished launch go to Python's logging, under "anymetal.kernel", and to
stderr where a program has no logging. Assertions that do not hold come the same way."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator

from anymetal.engines.contract import Sizes
from anymetal.engines.cpu.layout import FAILED, LogRecord, LogSink
from anymetal.engines.cpu.log_format import LEVELS, format_message, read_values
from anymetal.engines.cpu.runtime import Runtime
from anymetal.errors import FailedAssertion
from anymetal.machine.layout import LogValue
from anymetal.nouns import Position

logger = logging.getLogger("anymetal.kernel")


class _OnStderr(logging.Handler):
    """Shows messages where the program has set up no logging of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            print(record.getMessage(), file=sys.stderr, flush=True)


# A program that wants less sets another level: logging.getLogger("anymetal.kernel").setLevel(...).
logger.addHandler(_OnStderr())
if logger.level == logging.NOTSET:
    logger.setLevel(logging.DEBUG)


def deliver(sink: LogSink, kernel: str, runtime: Runtime) -> tuple[FailedAssertion, ...]:
    """Hands the messages of one launch to `logging` and frees the sink's memory; returns the
    assertions that did not hold."""
    raw = ctypes.string_at(sink.data, sink.size) if sink.data else b""
    dropped = int(sink.dropped)
    runtime.free_log(ctypes.byref(sink))
    failures: list[FailedAssertion] = []
    for record, values in _records(raw):
        if record.level == FAILED:
            failures.append(_failure(record, values))
        else:
            texts = _text(record.subsystem), _text(record.category), _text(record.format)
            x, y, z = record.thread
            log(kernel, record.level, texts, values, (x, y, z))
    tell_dropped(kernel, dropped)
    return tuple(failures)


def log(kernel: str, level: int, texts: tuple[str, str, str], values: bytes, thread: Sizes) -> None:
    """One message: `texts` are its subsystem, category and format."""
    *names, form = texts
    source = "/".join(part for part in names if part)
    x, y, z = thread
    logger.log(
        LEVELS[level] if 0 <= level < len(LEVELS) else logging.INFO,
        "%s thread %s: %s%s",
        kernel,
        f"({x}, {y}, {z})" if y or z else str(x),
        f"[{source}] " if source else "",
        format_message(form, read_values(values)),
    )


def tell_dropped(kernel: str, dropped: int) -> None:
    if dropped:
        logger.warning("%s: %d messages were dropped: too many in one launch", kernel, dropped)


def _failure(record: LogRecord, values: bytes) -> FailedAssertion:
    (line,) = read_values(values)
    position = Position(_text(record.subsystem), int(line.number(line.data)), 1)
    x, y, z = record.thread
    return FailedAssertion(_text(record.format), position, (x, y, z))


def _records(raw: bytes) -> Iterator[tuple[LogRecord, bytes]]:
    start = 0
    while start < len(raw):
        record = LogRecord.from_buffer_copy(raw, start)
        start += ctypes.sizeof(LogRecord)
        end = start + record.count * ctypes.sizeof(LogValue)
        yield record, raw[start:end]
        start = end


def _text(address: int) -> str:
    return ctypes.string_at(address).decode(errors="replace") if address else ""
