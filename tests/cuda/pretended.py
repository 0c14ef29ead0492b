"""Tensors of the CPU pass as those of one `cuda` device: what stands in for what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from anymetal.launch import constants, cuda, recorded

Replacement = tuple[Any, str, Any]  # an object, a name that it has, a value


def cuda_tensors(capability: tuple[int, int]) -> Iterator[Replacement]:
    for kind in (torch.Tensor, torch.nn.Parameter):
        yield kind, "is_cuda", torch._C.TensorBase.is_cpu
    yield torch.Tensor, "get_device", lambda self: 0
    yield torch.cuda, "device_count", lambda: 1
    yield torch.cuda, "current_device", lambda: 0
    yield torch.cuda, "get_device_capability", lambda *_: capability
    yield torch._C, "_cuda_getDevice", lambda: 0
    yield recorded, "is_recording", lambda: False
    yield constants, "_rings", {}
    yield cuda, "_copied", lambda data, *_: torch.frombuffer(bytearray(data), dtype=torch.uint8)
