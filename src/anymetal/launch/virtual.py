"""What the virtual mps device needs of the rooms above it: it asks for `services()` by name."""

from __future__ import annotations

from anymetal.device.services import Services
from anymetal.launch.shader import compile_shader
from anymetal.store.cache import default_store


def services() -> Services:
    """Shaders are compiled by our engines; the device's library is kept beside their code."""
    store = default_store()
    return Services(
        compile_shader=compile_shader,
        keep_file=lambda key, build: store.file("device", key, build),
        lock_directory=store.directory,
    )
