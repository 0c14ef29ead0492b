"""nn.Linear with quantised weights, and whole models with theirs replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from anymetal.ops.declare import FLOATS
from anymetal.ops.quantised.linear import ACTIVATIONS, quantized_linear
from anymetal.ops.quantised.packed import PackedWeight, packed_linear
from anymetal.ops.quantised.quantize import Quantized, quantize
from anymetal.ops.quantised.schemes import (
    AFFINE,
    SYMMETRIC,
    ZERO_POINT,
    Scheme,
    check_group_size,
    row_words,
    scheme_named,
)

__all__ = ["PackedLinear", "QuantizedLinear", "quantize_model"]

Tensor = torch.Tensor
Filter = Callable[[str, nn.Linear], bool]


class QuantizedLinear(nn.Module):
    """y = activation(x W^T + bias) with quantised W, which has no gradient; x and the bias have.

    A new one is all zeros, to load a state_dict into; `from_float` makes one from an nn.Linear. The
    state_dict has `words`, `scales`, `offsets` (zero points or MLX's biases, where the scheme has
    them), `bias`, and as `layout` the numbers that say how words are read: bits of a code, group
    size, and whether groups have nothing (0), zero points (1) or biases (2).
    """

    words: Tensor
    scales: Tensor
    offsets: Tensor | None
    layout: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        scheme: str = "int4",
        group_size: int | None = None,
        activation: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        kind = scheme_named(scheme, "QuantizedLinear")
        size = kind.default_group_size if group_size is None else group_size
        check_group_size("QuantizedLinear", kind, size)
        if in_features % size:
            raise ValueError(
                f"QuantizedLinear: in_features {in_features} are no whole groups of {size}. Choose"
                f" a group_size that divides it, of {kind.group_sizes}"
            )
        dtype = dtype or torch.get_default_dtype()
        words = torch.zeros(
            out_features, row_words(in_features, kind.bits), dtype=torch.int32, device=device
        )
        shape = (out_features, in_features // size)
        scales = torch.zeros(shape, dtype=kind.scale_dtype or dtype, device=device)
        offsets = None
        if kind.kind != SYMMETRIC:
            offset_dtype = torch.uint8 if kind.kind == ZERO_POINT else dtype
            offsets = torch.zeros(shape, dtype=offset_dtype, device=device)
        add = nn.Parameter(torch.zeros(out_features, dtype=dtype, device=device)) if bias else None
        self._hold(Quantized(words, scales, offsets, kind, size), add, activation)

    @classmethod
    def from_float(
        cls,
        linear: nn.Linear,
        scheme: str = "int4",
        *,
        group_size: int | None = None,
        activation: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> QuantizedLinear:
        """The same layer with its weight quantised; the bias is shared, not copied.

        `dtype` is that of the scales, else the weight's; it must be the dtype of the inputs.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(
                f"from_float: argument 'linear' expects an nn.Linear, got {type(linear).__name__}"
            )
        return cls.from_quantized(
            quantize(linear.weight, scheme, group_size, dtype), linear.bias, activation=activation
        ).train(linear.training)

    @classmethod
    def from_quantized(
        cls, weight: Quantized, bias: nn.Parameter | None = None, *, activation: str | None = None
    ) -> QuantizedLinear:
        """A layer of a matrix that is quantised already, from a GGUF file for example."""
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made._hold(weight, bias, activation)
        return made

    def _hold(self, weight: Quantized, bias: nn.Parameter | None, activation: str | None) -> None:
        if activation not in ACTIVATIONS:
            known = ", ".join(repr(one) for one in ACTIVATIONS)
            raise ValueError(
                f"QuantizedLinear: argument 'activation' expects {known}, got {activation!r}"
            )
        self.out_features, self.in_features = weight.shape
        self.scheme = weight.scheme.name
        self.group_size = weight.group_size
        self.activation = activation
        self.register_buffer("words", weight.words)
        self.register_buffer("scales", weight.scales)
        self.register_buffer("offsets", weight.offsets)
        self.register_buffer("layout", torch.tensor(self._numbers, dtype=torch.int32))
        self.bias = bias

    @property
    def kind(self) -> Scheme:
        """The scheme its weight is stored in."""
        return scheme_named(self.scheme, "QuantizedLinear")

    @property
    def _numbers(self) -> list[int]:
        kinds = (SYMMETRIC, ZERO_POINT, AFFINE)
        return [self.kind.bits, self.group_size, kinds.index(self.kind.kind)]

    @property
    def quantized(self) -> Quantized:
        """The weights, to convert or dequantise."""
        return Quantized(self.words, self.scales, self.offsets, self.kind, self.group_size)

    def forward(self, input: Tensor) -> Tensor:
        return quantized_linear(input, self.quantized, self.bias, activation=self.activation)

    def extra_repr(self) -> str:
        words = f"in_features={self.in_features}, out_features={self.out_features}"
        words += f", bias={self.bias is not None}, scheme={self.scheme}"
        words += f", group_size={self.group_size}"
        return words + (f", activation={self.activation}" if self.activation is not None else "")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> QuantizedLinear:
        """.to(), .half() and so on; ggml's scales are halves whatever the dtype of the model."""
        scales = self.scales
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.kind.is_ggml and self.scales.dtype != scales.dtype:
            self.scales = scales.to(self.scales.device)
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Words of another scheme may have the same shape: they would be read wrong, unnoticed."""
        loaded = state_dict.get(prefix + "layout")
        if loaded is not None and not loaded.is_meta and loaded.tolist() != self._numbers:
            error_msgs.append(
                f"{prefix}layout: bits, group size and kind of scheme {self.scheme!r} are"
                f" {self._numbers}, but {loaded.tolist()} in the state_dict."
            )
            return
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )


class PackedLinear(nn.Module):
    """y = x W^T + bias with W in q4_K, q6_K or nf4 blocks, which have no gradient; x and bias do.

    Activations may have any dtype; .half() and the like leave blocks and scales as they are. The
    state_dict has `blocks`, `scales` (nf4) and `bias`.
    """

    blocks: Tensor
    scales: Tensor | None

    def __init__(self, weight: PackedWeight, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        weight.check()
        self.out_features, self.in_features = weight.shape
        self.format, self.block_size = weight.format, weight.block_size
        self.register_buffer("blocks", weight.blocks)
        self.register_buffer("scales", weight.scales)
        self.bias = bias

    @property
    def weight(self) -> PackedWeight:
        """The weights, to dequantise."""
        shape = (self.out_features, self.in_features)
        return PackedWeight(self.blocks, self.format, shape, self.scales, self.block_size)

    def forward(self, input: Tensor) -> Tensor:
        return packed_linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        words = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{words}, bias={self.bias is not None}, format={self.format}"

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PackedLinear:
        scales = self.scales
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if scales is not None and self.scales is not None:
            self.scales = scales.to(self.scales.device)
        return self


def quantize_model(
    model: nn.Module,
    scheme: str,
    *,
    group_size: int | None = None,
    filter: Filter | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Replaces every nn.Linear of a model by a QuantizedLinear, and returns the model.

    `filter(name, linear)` says which to replace, all without it. Subclasses of nn.Linear are left
    alone, since their owners may use the weight in other ways. Nothing is changed when one layer
    cannot be quantised. A layer that stands in several places stays one; a weight that an embedding
    shares stays with the embedding, and the layer gets quantised codes of its own. `dtype` is that
    of the scales, else each weight's.
    """
    kind = scheme_named(scheme, "quantize_model")
    size = kind.default_group_size if group_size is None else group_size
    check_group_size("quantize_model", kind, size)
    found = _linears(model, filter)
    _check_layers(found, kind, size)
    made: dict[nn.Module, QuantizedLinear] = {}
    for _, linear in found:
        if linear not in made:
            made[linear] = QuantizedLinear.from_float(linear, scheme, group_size=size, dtype=dtype)
    if model in made:
        return made[model]
    for name, linear in found:
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, made[linear])
    return model


def _linears(model: nn.Module, filter: Filter | None) -> list[tuple[str, nn.Linear]]:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"quantize_model: argument 'model' expects an nn.Module, got {type(model).__name__}"
        )
    every = [
        (name, module)
        for name, module in model.named_modules(remove_duplicate=False)
        if type(module) is nn.Linear
    ]
    found = [(name, linear) for name, linear in every if filter is None or filter(name, linear)]
    if not found:
        refused = f"the filter refused all {len(every)}" if every else "it has none"
        raise ValueError(f"quantize_model: no nn.Linear of the model to quantise: {refused}")
    return found


def _check_layers(found: list[tuple[str, nn.Linear]], kind: Scheme, group_size: int) -> None:
    wrong = []
    for name, linear in found:
        if linear.weight.is_meta:
            wrong.append(f"{name!r} has no weights yet (device meta)")
        elif linear.weight.dtype not in FLOATS:
            wrong.append(f"{name!r} is {linear.weight.dtype}")
        elif linear.in_features % group_size:
            wrong.append(f"{name!r} has in_features {linear.in_features}")
    if wrong:
        raise ValueError(
            f"quantize_model: scheme {kind.name!r} takes float32, float16 or bfloat16 weights with"
            f" rows of whole groups of {group_size}, but {'; '.join(wrong)}. Choose another"
            " group_size, or leave these out with filter"
        )
