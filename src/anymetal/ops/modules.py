"""The operators as modules of torch.nn, each in the folder of its family.

Where torch has the module, ours is a subclass of it: same arguments, same parameters, same
state_dict, another forward. The imports below are for type checkers and editors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anymetal.ops.families import families, modules_of, public_names

if TYPE_CHECKING:
    from anymetal.ops.activations.modules import *  # noqa: F403
    from anymetal.ops.dropout.modules import *  # noqa: F403
    from anymetal.ops.indexing.modules import *  # noqa: F403
    from anymetal.ops.lora.modules import *  # noqa: F403
    from anymetal.ops.losses.modules import *  # noqa: F403
    from anymetal.ops.norms.modules import *  # noqa: F403
    from anymetal.ops.quantised.modules import *  # noqa: F403
    from anymetal.ops.rope.modules import *  # noqa: F403
    from anymetal.ops.softmax.modules import *  # noqa: F403

    def __getattr__(name: str) -> Any: ...  # what a folder that is not listed here declares


_public = {
    name: value
    for family in families()
    for module in [modules_of(family)]
    if module is not None
    for name, value in public_names(module).items()
}
globals().update(_public)

__all__ = [*_public]  # noqa: PLE0604
