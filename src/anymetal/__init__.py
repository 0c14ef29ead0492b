"""Write a Metal kernel for PyTorch once; run it, check it, tune it and ship it from any machine."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anymetal import (
        device,
        extension,
        hub,
        linalg,
        mlx,
        ops,
        optim,
        overrides,
        patch,
        testing,
        weights,
    )
    from anymetal.checker.context import check
    from anymetal.evidence.autotuning import autotune
    from anymetal.launch.declared import struct
    from anymetal.launch.kernel import Kernel
    from anymetal.launch.metallib import load_metallib
    from anymetal.launch.shader import ShaderLibrary, compile_shader, load_library
    from anymetal.msl.with_constants import with_constants
    from anymetal.profiler.collect import profile

__version__ = "0.1.0"

__all__ = [
    "Kernel",
    "ShaderLibrary",
    "__version__",
    "autotune",
    "check",
    "compile_shader",
    "device",
    "extension",
    "hub",
    "linalg",
    "load_library",
    "load_metallib",
    "mlx",
    "ops",
    "optim",
    "overrides",
    "patch",
    "profile",
    "struct",
    "testing",
    "weights",
    "with_constants",
]

# Where each public name is; None is a module itself.
_PLACES = {
    "Kernel": "anymetal.launch.shader",
    "ShaderLibrary": "anymetal.launch.shader",
    "autotune": "anymetal.evidence.autotuning",
    "check": "anymetal.checker.context",
    "compile_shader": "anymetal.launch.shader",
    "device": None,
    "extension": None,
    "hub": None,
    "linalg": None,
    "load_library": "anymetal.launch.shader",
    "load_metallib": "anymetal.launch.metallib",
    "mlx": None,
    "ops": None,
    "optim": None,
    "overrides": None,
    "patch": None,
    "profile": "anymetal.profiler.collect",
    "struct": "anymetal.launch.declared",
    "testing": None,
    "weights": None,
    "with_constants": "anymetal.msl.with_constants",
}


def __getattr__(name: str) -> object:
    """Import torch and LLVM when they are asked for: the command's help needs neither."""
    if name not in _PLACES:
        raise AttributeError(f"module 'anymetal' has no attribute {name!r}")
    place = _PLACES[name]
    value = getattr(import_module(place), name) if place else import_module(f"anymetal.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


# With torch there already, waiting saves little, and the first compile_shader would pay for it. But
# torch imports this package itself, at the end of its own import, to ask for the virtual device.
if "torch" in sys.modules and not getattr(sys.modules["torch"].__spec__, "_initializing", False):
    __getattr__("compile_shader")
