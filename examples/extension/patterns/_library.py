"""Loads the operators: what was built on a Mac, or on Linux what anymetal builds."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

if sys.platform != "darwin":
    from anymetal import extension


def load() -> None:
    package = Path(__file__).parent
    if sys.platform != "darwin":
        extension.load(package.parent)
        return
    built = sorted(package.glob("_C*.so"))
    if not built:
        raise ImportError(f"{package} has no library: pip install it, or anymetal extension build")
    torch.ops.load_library(str(built[-1]))
