"""os_log messages of a finished launch go to Python's logging, under "anymetal.kernel", and to
stderr where a program has no logging. Assertions that do not hold come the same way."""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Iterator

from anymetal.engines.cpu.layout import FAILED, LogRecord, LogSink
from anymetal.engines.cpu.log_format import LEVELS, format_message, read_values
from anymetal.engines.cpu.runtime import runtime
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


def deliver(sink: LogSink, kernel: str) -> tuple[FailedAssertion, ...]:
    """Hands the messages of one launch to `logging` and frees the sink's memory; returns the
    assertions that did not hold."""
    raw = ctypes.string_at(sink.data, sink.size) if sink.data else b""
    dropped = int(sink.dropped)
    runtime().free_log(ctypes.byref(sink))
    failures: list[FailedAssertion] = []
    for record, values in _records(raw):
        if record.level == FAILED:
            failures.append(_failure(record, values))
        else:
            _log(record, values, kernel)
    if dropped:
        logger.warning("%s: %d messages were dropped: too many in one launch", kernel, dropped)
    return tuple(failures)


def _log(record: LogRecord, values: bytes, kernel: str) -> None:
    text = format_message(_text(record.format), read_values(values))
    source = "/".join(part for part in (_text(record.subsystem), _text(record.category)) if part)
    level = LEVELS[record.level] if 0 <= record.level < len(LEVELS) else logging.INFO
    x, y, z = record.thread
    thread = f"({x}, {y}, {z})" if y or z else str(x)
    logger.log(level, "%s thread %s: %s%s", kernel, thread, f"[{source}] " if source else "", text)


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
