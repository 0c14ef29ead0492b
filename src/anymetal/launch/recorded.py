"""Launches that a CUDA graph records run again for as long as the process does: what they read must
stay, and what they report is found later.

Constants that are too large for a launch's arguments are copied to memory of their own, which is
never given back; two launches with the same bytes share it. A buffer for errors is looked at when
the next kernel with one is launched.
"""

from __future__ import annotations

import threading

import torch

from anymetal.engines.cuda import driver
from anymetal.launch.error_buffer import ErrorBuffer

_constants: dict[tuple[int, bytes], int] = {}
_errors: list[tuple[str, torch.Tensor]] = []
_lock = threading.Lock()

is_recording = torch.cuda.is_current_stream_capturing


def constant(device: int, data: bytes) -> int:
    """The address of bytes that stay on the device."""
    with _lock:
        if (device, data) not in _constants:
            _constants[device, data] = driver.placed(device, data)
        return _constants[device, data]


def keep_errors(kernel: str, errors: torch.Tensor) -> None:
    _errors.append((kernel, errors))


def raise_reported() -> None:
    """The first report of a recorded launch that has run since; the others are told later."""
    for kernel, errors in _errors:
        found = ErrorBuffer.from_address(errors.data_ptr())
        if found.count:
            found = ErrorBuffer.from_buffer_copy(found)
            errors.zero_()
            found.raise_reported(f"{kernel}, recorded in a CUDA graph")
