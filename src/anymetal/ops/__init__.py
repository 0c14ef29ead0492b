"""The operators: torch's own names and signatures where torch has them, Metal kernels behind.

`ops.variants.last()` says which kernel ran. Operators are found by their folders: a new one is
there without a line in this file. The imports below are for type checkers and editors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anymetal.ops.declare import variants
from anymetal.ops.families import families, public_names

if TYPE_CHECKING:
    from anymetal.ops import modules
    from anymetal.ops.activations import *  # noqa: F403
    from anymetal.ops.attention import *  # noqa: F403
    from anymetal.ops.basics import *  # noqa: F403
    from anymetal.ops.dropout import *  # noqa: F403
    from anymetal.ops.indexing import *  # noqa: F403
    from anymetal.ops.lora import *  # noqa: F403
    from anymetal.ops.losses import *  # noqa: F403
    from anymetal.ops.matmul import *  # noqa: F403
    from anymetal.ops.norms import *  # noqa: F403
    from anymetal.ops.optimizers import *  # noqa: F403
    from anymetal.ops.paged import *  # noqa: F403
    from anymetal.ops.quantised import *  # noqa: F403
    from anymetal.ops.rope import *  # noqa: F403
    from anymetal.ops.softmax import *  # noqa: F403

    def __getattr__(name: str) -> Any: ...  # what a folder that is not listed here declares


_public = {name: value for family in families() for name, value in public_names(family).items()}
globals().update(_public)

if not TYPE_CHECKING:
    from anymetal.ops import modules

__all__ = ["modules", "variants", *_public]  # noqa: PLE0604
