"""llvmlite, imported when it is first used: kernels from a bundle run without it."""

from __future__ import annotations

import importlib
from typing import Any


class _Late:
    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module("llvmlite.binding"), name)
        setattr(self, name, value)
        return value


llvm: Any = _Late()
