"""What torch calls at the end of its import, through the entry point group `torch.backends`.

It is called in every process of the environment that imports torch, so it looks at one variable and
imports the rest only where the device is asked for.
"""

from __future__ import annotations

import os

# Spelled out: anymetal.settings has the same name, but every `import torch` would pay for it.
VARIABLE = "ANYMETAL_DEVICE"


def autoload() -> None:
    """Enable the device where ANYMETAL_DEVICE=1 asks for it."""
    if os.environ.get(VARIABLE, "0") in ("", "0"):
        return
    from anymetal.device.enabling import enable_from_environment  # noqa: PLC0415

    enable_from_environment()
