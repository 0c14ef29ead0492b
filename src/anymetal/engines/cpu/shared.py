"""Machine code as a shared library: the system's own loader links it into this process."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

from anymetal.errors import EngineError


class SharedCode:
    """A library that is linked into this process, and stays there."""

    def __init__(self, library: bytes, *, for_all: bool = False) -> None:
        """`for_all`: libraries that are loaded later find its functions."""
        mode = ctypes.RTLD_GLOBAL if for_all else ctypes.RTLD_LOCAL
        # The loader wants a file, and knows it by its name: no two have the same.
        with tempfile.TemporaryDirectory(prefix="anymetal-") as folder:
            path = Path(folder) / "kernel.so"
            path.write_bytes(library)
            try:
                self._library = ctypes.CDLL(str(path), mode)
            except OSError as error:
                raise EngineError(f"code from a bundle cannot be loaded: {error}") from None

    def address(self, symbol: str) -> int:
        found = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        assert found is not None
        return found
