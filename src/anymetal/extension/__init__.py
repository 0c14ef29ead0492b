"""Objective-C++ extensions for torch's MPS backend, built, run and checked on Linux.

`load` builds what has changed in a project's folder; then `torch.ops` has its operators.
`anymetal extension new` makes a project: docs/extension.md.
"""

from __future__ import annotations

from anymetal.extension.loading import load

__all__ = ["load"]
