"""An extension's project goes in; afterwards torch.ops has its operators, on any machine."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path

from anymetal.extension.building import extension_library
from anymetal.extension.compiling import ExtensionError
from anymetal.extension.native import native_library
from anymetal.extension.project import Project, read_project
from anymetal.extension.services import Bridge
from anymetal.store.cache import default_store

_lock = threading.RLock()
_loaded: dict[Path, Path] = {}
_bridges: list[Bridge] = []


def load(place: str | os.PathLike[str]) -> Path:
    """Build the extension if its files have changed, and load it; returns its library.

    `place` is the project's folder or a single `.mm`. On Linux the virtual mps device is enabled
    for the process. An extension is loaded once.
    """
    project = read_project(Path(place))
    with _lock:
        if project.folder not in _loaded:
            _loaded[project.folder] = _load(project)
        return _loaded[project.folder]


def _load(project: Project) -> Path:
    import torch  # noqa: PLC0415  (the command's help must not import it)

    if sys.platform == "darwin":
        library = native_library(project)
    else:
        runtime, library = extension_library(default_store(), project)
        bridge = prepare(runtime)
        bridge.symbols.add(library, project.folder)
        for kernel in project.kernels:
            bridge.kernels.add_file(kernel)
    try:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise ExtensionError(f"{project.name} does not load: {error}") from None
    return library


def prepare(runtime: Path) -> Bridge:
    """The stand-ins, loaded and connected to the virtual device; once a process."""
    if not _bridges:
        from anymetal.device import enabling  # noqa: PLC0415

        if not enabling.is_enabled():
            enabling.enable()
        library = ctypes.CDLL(str(runtime), ctypes.RTLD_GLOBAL)
        _bridges.append(Bridge(library, enabling.native()))
    return _bridges[0]
