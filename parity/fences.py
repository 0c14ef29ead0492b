"""The memory of a launch between fences: a write past it is a fault of the kernel.

Buffers have room between them, and a stray write there is a difference. One that goes further would
reach the judge's own memory: the same from AIR and from source, so that nothing differs, and the
judge dies a thousand kernels later.
"""

from __future__ import annotations

import ctypes
import mmap

import torch

_FENCE = 16 << 20  # bytes on either side
_ALIGNED = 256
_NO_ACCESS = 0


def fenced_copy(block: torch.Tensor) -> torch.Tensor:
    """The same bytes, up to where nobody may touch anything."""
    size = block.numel()
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = mmap.mmap(-1, whole + 2 * _FENCE, flags=flags)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (start, start + _FENCE + whole):
        _forbid(fence, _FENCE)
    offset = _FENCE + (whole - size) // _ALIGNED * _ALIGNED
    copy = torch.frombuffer(memory, dtype=block.dtype, count=size, offset=offset)
    return copy.copy_(block)


def _forbid(address: int, size: int) -> None:
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(size), _NO_ACCESS) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
