"""The Python side of torch that a Linux build leaves out, put in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.backends.mps
import torch.mps

NAME = "anymetal virtual GPU"


def apply(compile_shader: Callable[[str], Any], load_metallib: Callable[[Any], Any]) -> None:
    """Make torch say that it has MPS, and answer what only an MPS build answers."""
    core: Any = torch._C
    core._has_mps = True
    core._mps_compileShader = compile_shader
    core._mps_get_name = lambda: NAME
    core._mps_get_core_count = lambda: os.cpu_count() or 1
    core._mps_isCaptureEnabled = lambda: False
    core._mps_isCapturing = lambda: False
    core._mps_startCapture = _no_capture
    core._mps_stopCapture = _no_capture
    core._mps_loadMetalllib = load_metallib  # the name is torch's
    core._mps_loadMetallibFromPath = load_metallib
    core._mps_host_alias_storage = _host_alias_storage
    # torch's own would paste its headers into the source first; messages would name those lines.
    module: Any = torch.mps
    module.compile_shader = compile_shader
    _forget_answers()
    _allow_storages()


def _forget_answers() -> None:
    """torch remembers whether there is MPS; it may have been asked before there was."""
    mps: Any = torch.backends.mps
    for question in (
        mps.is_available,
        mps.is_macos_or_newer,
        mps.is_macos13_or_newer,
        mps.get_name,
        mps.get_core_count,
    ):
        if hasattr(question, "cache_clear"):
            question.cache_clear()


def _allow_storages() -> None:
    """torch.load makes `UntypedStorage(..., device="mps")`, which a Linux build refuses."""
    storage: Any = torch.UntypedStorage
    original = storage.__new__

    def new_storage(cls: type, *args: Any, **keywords: Any) -> Any:
        device = keywords.get("device")
        if device is None or torch.device(device).type != "mps":
            return original(cls, *args, **keywords)
        contents = args[0] if args else 0
        if isinstance(contents, int):
            made = torch.empty(contents, dtype=torch.uint8, device="mps")
        else:
            made = torch.tensor(list(contents), dtype=torch.uint8, device="mps")
        return made.untyped_storage()

    storage.__new__ = staticmethod(new_storage)


def _host_alias_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The bytes of a storage as the host sees them."""
    if storage.device.type != "mps":
        raise RuntimeError(f"expected a storage on mps, got one on {storage.device}")
    data = torch.empty(0, dtype=torch.uint8, device="mps").set_(storage)
    alias: torch.Tensor = torch.ops.anymetal_device.see_from_host(data)
    return alias.untyped_storage()


def _no_capture(*_: object) -> NoReturn:
    raise RuntimeError("the virtual mps device cannot write a Metal capture: that needs Xcode")
