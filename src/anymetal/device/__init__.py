"""A virtual `mps` device for Linux: programs written for PyTorch on a Mac run unchanged.

```python
import anymetal

anymetal.device.enable()  # best before the first `import torch`

import torch

x = torch.ones(3, device="mps")
```

Enabling holds for the process. `ANYMETAL_DEVICE=1` in the environment does it when torch is
imported, and `anymetal run SCRIPT` for one program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anymetal.device.enabling import DeviceError, enable, is_enabled

__all__ = ["DeviceError", "enable", "is_enabled"]


def __getattr__(name: str) -> object:
    """Every `import torch` of the environment imports this package: it must cost nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'anymetal.device' has no attribute {name!r}")
    from anymetal.device import enabling  # noqa: PLC0415

    return getattr(enabling, name)
