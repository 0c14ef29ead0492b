"""os_log messages of a finished launch go to Python's logging, under "anymetal.kernel"."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator

from anymetal.engines.cpu.layout import LogRecord, LogSink
from anymetal.engines.cpu.log_format import LEVELS, format_message, read_values
from anymetal.engines.cpu.runtime import runtime
from anymetal.machine.layout import LogValue

logger = logging.getLogger("anymetal.kernel")


def deliver(sink: LogSink, kernel: str) -> None:
    """Hands the messages of one launch to `logging` and frees the sink's memory."""
    raw = ctypes.string_at(sink.data, sink.size) if sink.data else b""
    dropped = int(sink.dropped)
    runtime().free_log(ctypes.byref(sink))
    for record, values in _records(raw):
        text = format_message(_text(record.format), read_values(values))
        source = "/".join(
            part for part in (_text(record.subsystem), _text(record.category)) if part
        )
        level = LEVELS[record.level] if 0 <= record.level < len(LEVELS) else logging.INFO
        logger.log(level, "%s: %s%s", kernel, f"[{source}] " if source else "", text)
    if dropped:
        logger.warning("%s: %d messages were dropped: too many in one launch", kernel, dropped)


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
