"""A model and the tensors of a file for its parameters go in; the model comes out filled.

Everything is checked before the first parameter is written: a file that does not fit is one error,
and leaves the model as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from anymetal.errors import WeightsError

Tensor = torch.Tensor
Layer = Callable[[nn.Linear], nn.Module]


@dataclass(frozen=True)
class Loaded:
    """What was loaded: formats by the parameters' names, the tensors no one asked for, and the
    linear layers whose weights stay packed."""

    formats: Mapping[str, str]
    unused: tuple[str, ...]
    packed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The weights of one parameter in a file.

    `read` unpacks them. `layer` makes a linear layer that keeps them packed, where there are
    kernels for the format; `names` are the tensors that are used.
    """

    name: str
    format: str
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    layer: Layer | None = None
    names: tuple[str, ...] = ()


def fill(
    path: Any,
    model: nn.Module,
    sources: Mapping[str, Source],
    every: Collection[str],
    packed: bool,
) -> Loaded:
    """Fills each parameter from its source; with `packed`, linear layers keep blocks instead."""
    kept = _layers(model, sources) if packed else {}
    for name, parameter in model.named_parameters():
        _check(path, name, parameter, sources[name], name in kept)
    made = {name: _layer(path, sources[name], linear) for name, linear in kept.items()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in made:
                parameter.copy_(sources[name].read())
    for name, layer in made.items():
        parent, _, key = name.removesuffix(".weight").rpartition(".")
        setattr(model.get_submodule(parent), key, layer)
    used = {one for source in sources.values() for one in source.names or (source.name,)}
    return Loaded(
        {name: source.format for name, source in sources.items()},
        tuple(sorted(set(every) - used)),
        tuple(name.removesuffix(".weight") for name in made),
    )


def _check(path: Any, name: str, parameter: Tensor, source: Source, stays_packed: bool) -> None:
    if source.shape != tuple(parameter.shape):
        raise WeightsError(
            f"{path}: tensor {source.name!r} has shape {list(source.shape)}, but parameter"
            f" {name!r} has {list(parameter.shape)}"
        )
    if parameter.is_meta and not stays_packed:
        raise WeightsError(
            f"{path}: parameter {name!r} has no memory to be filled (device meta). Make it with"
            " model.to_empty(device=...)"
        )


def _layers(model: nn.Module, sources: Mapping[str, Source]) -> dict[str, nn.Linear]:
    """Linear layers by the names of their weights: such that no other module uses them."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return {
        f"{name}.weight": module
        for name, module in model.named_modules()
        if name and type(module) is nn.Linear and holders[id(module.weight)] == 1
        if sources[f"{name}.weight"].layer is not None
    }


def _layer(path: Any, source: Source, linear: nn.Linear) -> nn.Module:
    assert source.layer is not None
    try:
        return source.layer(linear).train(linear.training)
    except (TypeError, ValueError) as error:
        raise WeightsError(f"{path}: tensor {source.name!r}: {error}") from None
