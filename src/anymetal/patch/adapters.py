"""Linear layers of a model with LoRA beside them, or with weights of 4 or 8 bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from anymetal.ops.modules import LoRALinear, PackedLinear, QuantizedLinear
from anymetal.ops.quantised.schemes import scheme_named
from anymetal.patch.handle import Handle, Row

# The linear layers of attention, which LoRA stands beside where nothing else is said.
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "query", "key", "value", "out_proj")
_BITS = {4: "int4", 8: "int8"}


def patch_weights(handle: Handle, model: nn.Module, quantise: int | str) -> None:
    """Weights of 4 or 8 bits, or in a named scheme, but for the layer that gives the logits."""
    if isinstance(quantise, int) and quantise not in _BITS:
        raise ValueError(
            f"transformers: argument 'quantise' expects 4, 8 or a scheme, got {quantise}"
        )
    scheme = scheme_named(
        _BITS[quantise] if isinstance(quantise, int) else quantise, "transformers"
    )
    kept = _shared(model)
    for name, parent, key, layer in _linears(model):
        kind = f"Linear ({scheme.name})"
        if layer in kept:
            handle.left(name, kind, "it gives the logits, or shares its weight")
        elif layer.in_features % scheme.default_group_size:
            groups = f"groups of {scheme.default_group_size}"
            handle.left(name, kind, f"its {layer.in_features} inputs are no whole {groups}")
        else:
            made = QuantizedLinear.from_float(layer, scheme.name)
            _replace(handle, name, parent, key, made, kind, "ops.quantized_linear")


def patch_lora(handle: Handle, model: nn.Module, lora: int | Mapping[str, Any]) -> None:
    """LoRA beside the linear layers of attention, or of `targets`; all else is frozen."""
    options: dict[str, Any] = {"rank": lora} if isinstance(lora, int) else dict(lora)
    rank, alpha = options.pop("rank", 8), options.pop("alpha", None)
    targets: Collection[str] = options.pop("targets", TARGETS)
    if options:
        raise ValueError(
            "transformers: argument 'lora' expects a rank or a dictionary of rank, alpha and"
            f" targets, got {', '.join(options)}"
        )
    found = [one for one in _layers(model) if one[2] in targets]
    adapted = {name: one for name, one in model.named_modules() if isinstance(one, LoRALinear)}
    again = [name for name in adapted if name.rpartition(".")[2] in targets]
    for name in again:
        handle.left(name, "Linear (LoRA)", "patched already")
    if not found and not again:
        names = sorted({key for _, _, key, _ in _layers(model)})
        raise ValueError(
            f"transformers: no linear layer is called {', '.join(targets)}; this model has"
            f" {', '.join(names) or 'none'}. Name them in lora={{'targets': [...]}}"
        )
    own = {id(weight) for one in adapted.values() for weight in (one.a, one.b)}
    handle.freeze(weight for weight in model.parameters() if id(weight) not in own)
    dtype = next((one.dtype for one in model.parameters() if one.is_floating_point()), None)
    for name, parent, key, layer in found:
        made = LoRALinear(layer, rank, alpha, None if type(layer) is nn.Linear else dtype)
        _replace(handle, name, parent, key, made, "Linear (LoRA)", "ops.lora_linear")


def _replace(
    handle: Handle, name: str, parent: nn.Module, key: str, made: nn.Module, kind: str, why: str
) -> None:
    handle.set(name, parent._modules, key, made.train(parent.training))
    handle.rows.append(Row(name, kind, True, why))


Found = tuple[str, nn.Module, str, Any]


def _layers(model: nn.Module) -> list[Found]:
    """Linear and quantised layers with where they stand; those below LoRA have it already."""
    return [
        (f"{name}.{key}" if name else key, parent, key, layer)
        for name, parent in model.named_modules()
        for key, layer in parent.named_children()
        if type(layer) in (nn.Linear, QuantizedLinear, PackedLinear)
        and not isinstance(parent, LoRALinear)
    ]


def _linears(model: nn.Module) -> list[Found]:
    return [one for one in _layers(model) if type(one[3]) is nn.Linear]


def _shared(model: nn.Module) -> list[nn.Module | None]:
    """Layers whose weight another module has too, and the one that gives the logits."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    holders: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        weight = module._parameters.get("weight")
        if weight is not None:
            holders.setdefault(id(weight), []).append(module)
    return [output, *(one for group in holders.values() if len(group) > 1 for one in group)]
