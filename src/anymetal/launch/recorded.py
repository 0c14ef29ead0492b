"""Launches that a CUDA graph records run later, and often: what they report is found then."""

from __future__ import annotations

import atexit
import logging

import torch

from anymetal.launch.error_buffer import ErrorBuffer

_log = logging.getLogger("anymetal.launch")
_errors: list[tuple[str, torch.Tensor]] = []

is_recording = torch.cuda.is_current_stream_capturing


def keep_errors(kernel: str, errors: torch.Tensor) -> None:
    """The buffer for errors of a recorded launch, which is looked at when the next kernel that can
    report any is launched, and at the end of the process."""
    if not _errors:
        atexit.register(tell_the_rest)
    _errors.append((f"{kernel}, recorded in a CUDA graph", errors))


def raise_reported() -> None:
    """The first report of a recorded launch that has run since; the others are told later."""
    for kernel, errors in _errors:
        found = ErrorBuffer.from_address(errors.data_ptr())
        if found.count:
            found = ErrorBuffer.from_buffer_copy(found)
            errors.zero_()
            found.raise_reported(kernel)


def tell_the_rest() -> None:
    """Reports of recorded launches that no later one raised."""
    for kernel, errors in _errors:
        message = ErrorBuffer.from_address(errors.data_ptr()).message(kernel)
        if message is not None:
            _log.error("%s", message)
