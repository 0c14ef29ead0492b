"""Enabling the device: options in, a process whose torch has `mps`."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from anymetal import settings
from anymetal.errors import AnymetalError
from anymetal.settings import Missing

if TYPE_CHECKING:
    from anymetal.device.queue import CommandQueue

# (major, minor) of the torch versions this has been tried with.
TRIED = ((2, 13),)

# Reentrant: importing torch below may enable the device through the environment.
_lock = threading.RLock()


class DeviceError(AnymetalError, RuntimeError):
    """The virtual device cannot be enabled in this process."""


class _State:
    """What is enabled: the loaded library and its queue."""

    native: Any = None
    queue: CommandQueue | None = None


_state = _State()


def enable(*, missing: Missing | None = None, asynchronous: bool | None = None) -> None:
    """Give this process's torch an `mps` device whose memory and kernels are the host's.

    `missing`: what an operator does that MPS lacks in this torch: "error" raises as a Mac does,
    "warn" (the default) runs it and says so once, "run" runs it.
    `asynchronous`: kernels are queued, and results reach the host only where a Mac waits for the
    GPU, so that a program which reads too early is found out.

    Enabling twice changes the options. Raises DeviceError where torch has a real MPS.
    """
    missing = missing if missing is not None else settings.DEVICE_MISSING.value()
    if missing not in get_args(Missing):
        raise ValueError(f"missing={missing!r}: expected 'run', 'warn' or 'error'")
    if asynchronous is None:
        asynchronous = settings.DEVICE_ASYNC.value()
    with _lock:
        if _state.native is None:
            _install()
        policy = "warn" if missing == "error" and _falls_back() else missing
        _state.native.anymetal_device_set_missing(get_args(Missing).index(policy))
        assert _state.queue is not None
        _state.queue.configure(asynchronous=asynchronous)


def is_enabled() -> bool:
    """Whether `mps` is the virtual device in this process."""
    return _state.native is not None


def native() -> Any:
    """The device's loaded library, for what is built on it; None before it is enabled."""
    return _state.native


def enable_from_environment() -> None:
    """Enable as the environment says; what torch calls when it is imported with ANYMETAL_DEVICE."""
    if settings.DEVICE.value():
        enable()


def _falls_back() -> bool:
    """What a Mac looks at: with it a missing operator runs on the CPU, with a warning."""
    return os.environ.get("PYTORCH_ENABLE_MPS_FALLBACK", "0") not in ("", "0")


def _install() -> None:
    was_imported = _is_imported("torch")
    import torch  # noqa: PLC0415  (the command's help must not import it)

    if _state.native is not None:  # importing torch has enabled it, through the environment
        return
    _check_torch(torch)
    from anymetal.device import building, missing, patches  # noqa: PLC0415
    from anymetal.device.queue import CommandQueue  # noqa: PLC0415
    from anymetal.device.shader import compile_shader  # noqa: PLC0415
    from anymetal.launch.metallib import load_metallib  # noqa: PLC0415
    from anymetal.launch.virtual import use_queue  # noqa: PLC0415
    from anymetal.store.cache import default_store  # noqa: PLC0415

    native = _load(building.library(default_store()))
    names = missing.missing_operators()
    if not names:
        warnings.warn(
            "this torch comes without its table of operators (torchgen): all operators count as"
            " implemented for MPS",
            RuntimeWarning,
            stacklevel=3,
        )
    lines = "\n".join(
        f"{name} {reported} {int(reported in missing.FALLS_BACK)}"
        for name, reported in names.items()
    )
    _call(native.anymetal_device_install, lines.encode())
    if was_imported:
        # A backward pass may have run already; torch then starts no thread for a new device.
        _call(native.anymetal_device_start_autograd)
    patches.apply(compile_shader, load_metallib)
    _state.queue = CommandQueue(native)
    use_queue(_state.queue)
    _state.native = native
    atexit.register(_settle)


def _settle() -> None:
    """Before Python ends: queued kernels, then the thread of backward passes, which may need it."""
    if _state.queue is not None:
        _state.queue.wait()
    _state.native.anymetal_device_settle_autograd()


def _is_imported(name: str) -> bool:
    """Whether a module is there and complete; torch enables us at the end of its own import."""
    module = sys.modules.get(name)
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def _check_torch(torch: Any) -> None:
    if torch._C._has_mps:
        raise DeviceError(
            "This torch has a real MPS backend. The virtual device is for machines without one;"
            " programs for mps run here as they are."
        )
    if not sys.platform.startswith("linux"):
        raise DeviceError(f"The virtual mps device runs on Linux, not on {sys.platform}.")
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    if version not in TRIED or torch.version.cuda or torch.version.hip:
        tried = ", ".join(f"{major}.{minor}" for major, minor in TRIED)
        warnings.warn(
            f"the virtual mps device has been tried with CPU builds of torch {tried}, not with"
            f" {torch.__version__}",
            RuntimeWarning,
            stacklevel=4,
        )


def _load(path: Path) -> ctypes.CDLL:
    try:
        native = ctypes.CDLL(str(path))
    except OSError as error:
        raise DeviceError(f"the library of the virtual mps device does not load: {error}") from None
    native.anymetal_device_install.restype = ctypes.c_char_p
    native.anymetal_device_install.argtypes = [ctypes.c_char_p]
    native.anymetal_device_start_autograd.restype = ctypes.c_char_p
    native.anymetal_device_settle_autograd.restype = ctypes.c_char_p
    return native


def _call(function: Any, *arguments: object) -> None:
    message = function(*arguments)
    if message:
        raise DeviceError(
            f"the virtual mps device cannot be installed in this torch: {message.decode()}"
        )
