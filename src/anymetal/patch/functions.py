"""Programs that call torch.nn.functional themselves, as ComfyUI does: no module to find, no class
to replace, so torch's functions are replaced."""

from __future__ import annotations

from contextlib import ExitStack

from anymetal import overrides
from anymetal.overrides.switch import PLACES
from anymetal.patch.handle import Handle, Row

# What such programs spend their time in; products of matrices stay torch's unless they are named.
USUAL = ("activations", "norm", "softmax", "attention", "embedding")


def functional(*groups: str, devices: tuple[str, ...] | None = ("mps", "virtual-mps")) -> Handle:
    """torch's functions with our kernels, for calls on the GPU, until `undo()`.

    Groups are those of `anymetal.overrides`; without any, activations, norms, softmax, attention
    and embedding. `overrides.report()` says what became of the calls. Two patches hold until both
    are undone.
    """
    handle, before, held = Handle(), overrides.active(), ExitStack()
    held.enter_context(overrides.enabled(*(groups or USUAL), devices=devices))
    for name, kinds in overrides.active().items():
        row = PLACES[name.removeprefix("torch.")].row
        if before.get(name) == kinds:
            handle.left(name, row.group, "replaced already")
        else:
            handle.rows.append(Row(name, row.group, True, f"ours, for {row.applies}"))
    handle.afterwards(held.close)
    return handle
