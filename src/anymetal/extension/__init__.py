"""Objective-C++ extensions for torch's MPS backend, built, run and checked on Linux.

from anymetal import extension

extension.load("path/of/the/project")  # builds what has changed, then torch.ops has it
"""

from __future__ import annotations

from anymetal.extension.loading import load

__all__ = ["load"]
