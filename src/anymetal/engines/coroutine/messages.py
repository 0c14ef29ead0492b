"""os_log messages of a finished launch go to Python's logging, under "anymetal.kernel"."""

from __future__ import annotations

import ctypes
import logging

from anymetal.engines.coroutine.log_format import LogValue, format_message, logging_level
from anymetal.engines.coroutine.runtime import LogRecord, LogSink

logger = logging.getLogger("anymetal.kernel")
