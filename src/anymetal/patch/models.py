"""A model of transformers with our operators in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping
from typing import Any

from torch import nn

from anymetal.patch import adapters, attention, formula, layers, loss, rotary
from anymetal.patch.formula import Unreadable
from anymetal.patch.handle import Handle, foreign, patched

GROUPS = ("attention", "rotary", "norms", "mlp", "activations", "loss")


def transformers(
    model: nn.Module,
    *,
    skip: Collection[str] = (),
    lora: int | Mapping[str, Any] | None = None,
    quantise: int | str | None = None,
    linear_loss_from: int = loss.LINEAR_FROM,
) -> Handle:
    """Gives a model of transformers our operators, in place; `handle.undo()` takes them back.

    Replaced is what is understood: norms, gated MLPs, activations and rotations by what their
    forwards compute, attention where it goes through transformers' registry, and in training the
    loss. `handle.report()` says what was left and why. `skip` names groups to leave alone, of
    attention, rotary, norms, mlp, activations and loss. `lora` is a rank, or a dictionary of rank,
    alpha and targets (names of linear layers); all other weights are frozen. `quantise` is 4, 8 or
    the name of a scheme of `ops.quantize`. `linear_loss_from`: bytes of float32 logits from which
    on the loss of a training step is computed without them (0 is always), which takes less memory
    and more time; below, it is the cross entropy of the logits.
    """
    require("transformers", "transformers>=5")
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"transformers: argument 'model' expects an nn.Module, got {type(model).__name__}"
        )
    unknown = sorted(set(skip) - set(GROUPS))
    if unknown:
        raise ValueError(
            f"transformers: argument 'skip' expects groups of {', '.join(GROUPS)}, got"
            f" {', '.join(map(repr, unknown))}"
        )
    handle = Handle()
    try:
        _patch(handle, model, skip, lora, quantise, linear_loss_from)
    except BaseException:
        handle.undo()
        raise
    return handle


def _patch(
    handle: Handle,
    model: nn.Module,
    skip: Collection[str],
    lora: int | Mapping[str, Any] | None,
    quantise: int | str | None,
    linear_loss_from: int,
) -> None:
    if quantise is not None:
        adapters.patch_weights(handle, model, quantise)
    if lora is not None:
        adapters.patch_lora(handle, model, lora)
    patch_layers(handle, model, [step for name, step in STEPS.items() if name not in skip])
    if "rotary" not in skip:
        rotary.patch_rotary(handle, model)
    if "attention" not in skip:
        attention.patch_attention(handle, model)
    if "loss" not in skip:
        loss.patch_loss(handle, model, linear_loss_from)


Step = Callable[[Handle, str, nn.Module], bool]

STEPS: dict[str, Step] = {
    "norms": layers.patch_norm,
    "mlp": layers.patch_gated,
    "activations": layers.patch_activation,
}


# Modules that a reader of the report looks for, beside the norms.
_PARTS = ("MLP", "Experts", "Mixer", "FeedForward")


def patch_layers(handle: Handle, model: nn.Module, steps: list[Step]) -> None:
    """Each module by the first step that knows it; the activation inside a gated MLP with it."""
    done: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in done:
            continue
        kind = type(module).__name__
        why = "patched already" if patched(module) else foreign(module)
        try:
            known = why is None and any(step(handle, name, module) for step in steps)
            if known or patched(module):
                done.update(one for one in module.children() if layers.activation_of(one))
            if why is not None:
                raise Unreadable(why)
            if not known and kind.endswith(_PARTS):
                computed = formula.words(formula.forward_of(type(module)))
                raise Unreadable(f"no operator computes {computed}; its parts are looked at")
        except Unreadable as error:
            handle.left(name, kind, str(error))


def require(package: str, install: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"patch.{package} needs the package {package}: pip install '{install}'")
