"""Which kernel an operator chose, as a key such as `rms_norm/bf16/looped/vec4`.

The parts are operator, dtype, strategy and width. The last key is kept for whoever called, and each
is logged at DEBUG under "anymetal.ops".
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import torch

DTYPE_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}

_log = logging.getLogger("anymetal.ops")
_last: str | None = None
_listeners: list[list[str]] = []


def record(operator: str, dtype: torch.dtype, strategy: str, width: int) -> str:
    """Notes the kernel that is about to run; `width` is the number of elements of one access."""
    global _last  # noqa: PLW0603  (one process, one last launch)
    key = f"{operator}/{DTYPE_NAMES[dtype]}/{strategy}/{'scalar' if width == 1 else f'vec{width}'}"
    _last = key
    for keys in _listeners:
        keys.append(key)
    _log.debug("%s", key)
    return key


def last() -> str | None:
    """The key of the kernel that was launched last, by any thread: autograd has its own."""
    return _last


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """The keys of all kernels launched inside the block, in order."""
    keys: list[str] = []
    _listeners.append(keys)
    try:
        yield keys
    finally:
        # By identity: two lists with the same keys are equal.
        _listeners[:] = [other for other in _listeners if other is not keys]
