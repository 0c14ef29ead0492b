"""Launches that a CUDA graph records run later, and often: what they report is found then."""

from __future__ import annotations

import torch

from anymetal.launch.error_buffer import ErrorBuffer

_errors: list[tuple[str, torch.Tensor]] = []

is_recording = torch.cuda.is_current_stream_capturing


def keep_errors(kernel: str, errors: torch.Tensor) -> None:
    """The buffer for errors of a recorded launch, which is looked at when the next kernel that can
    report any is launched."""
    _errors.append((kernel, errors))


def raise_reported() -> None:
    """The first report of a recorded launch that has run since; the others are told later."""
    for kernel, errors in _errors:
        found = ErrorBuffer.from_address(errors.data_ptr())
        if found.count:
            found = ErrorBuffer.from_buffer_copy(found)
            errors.zero_()
            found.raise_reported(f"{kernel}, recorded in a CUDA graph")
