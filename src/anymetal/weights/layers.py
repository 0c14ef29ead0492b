"""Checkpoints of MLX, GPTQ, AWQ and bitsandbytes go in; models come out filled with their weights.

Each has a reader: the name of a parameter goes in, and out come its weights, checked by what the
files' headers say, or None where the checkpoint does not have them packed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import torch
from torch import nn

from anymetal.errors import WeightsError
from anymetal.ops.modules import PackedLinear, QuantizedLinear
from anymetal.ops.quantised import PackedWeight, Quantized
from anymetal.ops.quantised.blocks import FORMATS, NF4
from anymetal.ops.quantised.schemes import GROUP_SIZES, scheme_named, words_of
from anymetal.weights.checkpoint import FLOATS, WORDS, Checkpoint, open_checkpoint
from anymetal.weights.filling import Loaded, Source, fill
from anymetal.weights.packed import (
    GPTQ_BITS,
    MLX_BITS,
    dequantize_awq,
    dequantize_gptq,
    dequantize_mlx,
    dequantize_nf4,
    fields,
    gptq_zeros,
    in_awq_order,
)

Tensor = torch.Tensor
Path = str | PathLike[str]
Names = Mapping[str, str] | None
_WORD = 32


def load_mlx(path: Path, model: nn.Module, *, names: Names = None, packed: bool = False) -> Loaded:
    """Fills a model with an MLX checkpoint: affine weights of 2, 3, 4, 6 and 8 bits, and floats.

    `path` is a folder with config.json, or a safetensors file or index in one. Names are those of
    transformers' models, as mlx_lm keeps them; `names` says which tensor is which parameter
    elsewhere. With `packed`, linear layers of 4 and 8 bits in groups of 32, 64 or 128 become
    QuantizedLinear; all else is unpacked. A file that does not fit leaves the model untouched.
    """
    return _load("load_mlx", path, model, names, packed, _mlx)


def load_gptq(path: Path, model: nn.Module, *, names: Names = None, packed: bool = False) -> Loaded:
    """Fills a model with a GPTQ checkpoint: 2, 4 and 8 bits, both kinds of zeros, any order.

    As load_mlx; config.json or quantize_config.json says how weights are packed. With `packed`,
    layers of 4 and 8 bits whose groups lie in order become QuantizedLinear.
    """
    return _load("load_gptq", path, model, names, packed, _gptq)


def load_awq(path: Path, model: nn.Module, *, names: Names = None, packed: bool = False) -> Loaded:
    """Fills a model with an AWQ checkpoint: 4 bits, in the order that AWQ calls gemm.

    As load_mlx. With `packed`, linear layers become QuantizedLinear.
    """
    return _load("load_awq", path, model, names, packed, _awq)


def load_nf4(path: Path, model: nn.Module, *, names: Names = None, packed: bool = False) -> Loaded:
    """Fills a model with a checkpoint of bitsandbytes' nf4, absmax quantised once more or not.

    As load_mlx. With `packed`, linear layers become PackedLinear, on the bytes of the file.
    """
    return _load("load_nf4", path, model, names, packed, _nf4)


Reader = Callable[[Checkpoint, str], Source | None]


def _load(
    who: str, path: Path, model: nn.Module, names: Names, packed: bool, read: Reader
) -> Loaded:
    checkpoint = open_checkpoint(path, who, ("quantize_config.json", "config.json"))
    sources = {}
    for name, _ in model.named_parameters():
        tensor = (names or {}).get(name, name)
        sources[name] = read(checkpoint, tensor) or _plain(checkpoint, tensor, name)
    return fill(path, model, sources, checkpoint.entries, packed)


def _plain(checkpoint: Checkpoint, tensor: str, name: str) -> Source:
    if tensor not in checkpoint:
        raise WeightsError(f"{checkpoint.path}: no tensor {tensor!r} for parameter {name!r}")
    shape = checkpoint.shape(tensor, FLOATS)
    form = checkpoint.entries[tensor].dtype
    return Source(tensor, form, shape, lambda: checkpoint.tensor(tensor))


def _settings(checkpoint: Checkpoint, key: str, *needed: str) -> dict[str, Any]:
    """How weights are packed, by the configuration; a file of its own has no key around them."""
    found = checkpoint.config.get(key, checkpoint.config)
    missing = [one for one in needed if not isinstance(found, dict) or one not in found]
    if missing:
        raise WeightsError(
            f"{checkpoint.path}: the configuration has no {missing[0]!r} under {key!r}"
        )
    return dict(found)


def _known(checkpoint: Checkpoint, what: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        words = ", ".join(map(repr, known))
        raise WeightsError(f"{checkpoint.path}: {what} {value!r} is not known, only {words}")


# --- MLX ------------------------------------------------------------------------------------------


def _mlx(checkpoint: Checkpoint, tensor: str) -> Source | None:
    layer = tensor.removesuffix(".weight")
    scales, biases = f"{layer}.scales", f"{layer}.biases"
    if scales not in checkpoint:
        return None
    settings = _settings(checkpoint, "quantization", "bits", "group_size")
    own = settings.get(layer)
    settings |= own if isinstance(own, dict) else {}
    bits, size = settings["bits"], settings["group_size"]
    _known(checkpoint, f"{layer}: bits", bits, MLX_BITS)
    _known(checkpoint, f"{layer}: mode", settings.get("mode", "affine"), ("affine",))
    rows, groups = checkpoint.shape(scales, FLOATS, 2)
    columns = groups * size
    checkpoint.check(biases, FLOATS, (rows, groups))
    checkpoint.check(tensor, WORDS, (rows, columns * bits // _WORD))

    def read() -> Tensor:
        parts = (checkpoint.tensor(name) for name in (tensor, scales, biases))
        return dequantize_mlx(*parts, bits=bits, group_size=size)

    def packed(linear: nn.Linear) -> nn.Module:
        like = linear.weight
        scale, bias = (checkpoint.tensor(name).to(like.dtype) for name in (scales, biases))
        made = Quantized.from_mlx(checkpoint.tensor(tensor), scale, bias, size, bits)
        return QuantizedLinear.from_quantized(made.to(like.device), linear.bias)

    can = bits in (4, 8) and size in GROUP_SIZES
    names = (tensor, scales, biases)
    return Source(tensor, f"mlx_{bits}bit", (rows, columns), read, packed if can else None, names)


# --- GPTQ and AWQ ---------------------------------------------------------------------------------


def _gptq(checkpoint: Checkpoint, tensor: str) -> Source | None:
    layer = tensor.removesuffix(".weight")
    qweight, qzeros, scales = (f"{layer}.{part}" for part in ("qweight", "qzeros", "scales"))
    if qweight not in checkpoint:
        return None
    settings = _settings(checkpoint, "quantization_config", "bits", "group_size")
    bits = settings["bits"]
    _known(checkpoint, "GPTQ's bits", bits, GPTQ_BITS)
    kinds = ("gptq", "gptq_v2")
    kind = settings.get("checkpoint_format", "gptq")
    _known(checkpoint, "checkpoint_format", kind, kinds)
    height, outputs = checkpoint.shape(qweight, WORDS, 2)
    groups = checkpoint.shape(scales, FLOATS, 2)[0]
    inputs = height * _WORD // bits
    size = inputs if settings["group_size"] == -1 else settings["group_size"]
    checkpoint.check(scales, FLOATS, (groups, outputs))
    checkpoint.check(qzeros, WORDS, (groups, outputs * bits // _WORD))
    group = _groups(checkpoint, f"{layer}.g_idx", inputs, size, groups)

    def read() -> Tensor:
        codes, zeros, scale = (checkpoint.tensor(name) for name in (qweight, qzeros, scales))
        return dequantize_gptq(
            codes, zeros, scale, group, bits=bits, group_size=size, zeros_less_one=kind == "gptq"
        )

    def packed(linear: nn.Linear) -> nn.Module:
        codes = fields(checkpoint.tensor(qweight).t().contiguous(), bits)
        zeros = gptq_zeros(checkpoint.tensor(qzeros), bits, kind == "gptq")
        return _with_zeros(linear, codes, zeros.t(), checkpoint.tensor(scales).t(), bits, size)

    ordered = torch.equal(group, torch.arange(inputs) // size)
    can = bits in (4, 8) and size in GROUP_SIZES and ordered
    names = (qweight, qzeros, scales, f"{layer}.g_idx")
    format = f"gptq_{bits}bit"
    return Source(qweight, format, (outputs, inputs), read, packed if can else None, names)


def _groups(checkpoint: Checkpoint, name: str, inputs: int, size: int, groups: int) -> Tensor:
    """The group of each input, which must be there."""
    if name in checkpoint:
        checkpoint.check(name, ("I32", "I64"), (inputs,))
        found = checkpoint.tensor(name).long()
    else:
        found = torch.arange(inputs) // size
    if inputs and not (int(found.min()) >= 0 and int(found.max()) < groups):
        raise WeightsError(
            f"{checkpoint.path}: {name!r} has groups from {int(found.min())} to"
            f" {int(found.max())}, but there are {groups}"
        )
    return found


def _awq(checkpoint: Checkpoint, tensor: str) -> Source | None:
    layer = tensor.removesuffix(".weight")
    qweight, qzeros, scales = (f"{layer}.{part}" for part in ("qweight", "qzeros", "scales"))
    if qweight not in checkpoint:
        return None
    settings = _settings(checkpoint, "quantization_config", "bits", "group_size")
    _known(checkpoint, "AWQ's bits", settings["bits"], (4,))
    _known(checkpoint, "AWQ's version", str(settings.get("version", "gemm")).lower(), ("gemm",))
    inputs, width = checkpoint.shape(qweight, WORDS, 2)
    outputs = width * 8
    size = inputs if settings["group_size"] == -1 else settings["group_size"]
    groups = -(-inputs // size)
    checkpoint.check(qzeros, WORDS, (groups, width))
    checkpoint.check(scales, FLOATS, (groups, outputs))
    names = (qweight, qzeros, scales)

    def read() -> Tensor:
        return dequantize_awq(*(checkpoint.tensor(name) for name in names), group_size=size)

    def packed(linear: nn.Linear) -> nn.Module:
        codes, zeros = (in_awq_order(checkpoint.tensor(name)).t() for name in (qweight, qzeros))
        return _with_zeros(linear, codes, zeros, checkpoint.tensor(scales).t(), 4, size)

    can = size in GROUP_SIZES
    return Source(qweight, "awq_4bit", (outputs, inputs), read, packed if can else None, names)


def _with_zeros(
    linear: nn.Linear, codes: Tensor, zeros: Tensor, scales: Tensor, bits: int, size: int
) -> nn.Module:
    """A layer of codes [out, in] with zeros and scales [out, groups]: scale * (code - zero)."""
    scheme = scheme_named(f"int{bits}_zero_point", "with_zeros")
    like = linear.weight
    words, scales = words_of(codes.contiguous(), bits), scales.to(like.dtype).contiguous()
    made = Quantized(words, scales, zeros.to(torch.uint8).contiguous(), scheme, size)
    return QuantizedLinear.from_quantized(made.to(like.device), linear.bias)


# --- bitsandbytes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _State:
    """What bitsandbytes writes beside a tensor, as JSON in bytes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    block_size: int
    nested_block_size: int = 0
    nested_offset: float = 0.0


_STATE = "quant_state.bitsandbytes__"


def _nf4(checkpoint: Checkpoint, tensor: str) -> Source | None:
    named = [name for name in checkpoint.entries if name.startswith(f"{tensor}.{_STATE}")]
    if not named:
        return None
    _known(checkpoint, f"{tensor}: type", named[0].rpartition("__")[2], ("nf4",))
    state = _state(checkpoint, named[0])
    count = torch.Size(state.shape).numel()
    packed_bytes = checkpoint.shape(tensor, ("U8",))
    if torch.Size(packed_bytes).numel() != (count + 1) // 2:
        raise WeightsError(
            f"{checkpoint.path}: tensor {tensor!r} has shape {list(packed_bytes)}; expected"
            f" {(count + 1) // 2} bytes for {list(state.shape)}"
        )
    blocks = -(-count // state.block_size)
    parts = [f"{tensor}.absmax", f"{tensor}.quant_map"]
    checkpoint.check(parts[0], ("U8",) if state.nested_block_size else ("F32",), (blocks,))
    checkpoint.check(parts[1], ("F32",), (16,))
    if not torch.equal(checkpoint.tensor(parts[1]), torch.tensor(NF4)):
        raise WeightsError(f"{checkpoint.path}: {parts[1]!r} is not the table of nf4")
    if state.nested_block_size:
        parts += [f"{tensor}.nested_absmax", f"{tensor}.nested_quant_map"]
        checkpoint.check(parts[2], ("F32",), (-(-blocks // state.nested_block_size),))
        checkpoint.check(parts[3], ("F32",), (256,))
    absmax = functools.partial(_absmax, checkpoint, tensor, state)

    def read() -> Tensor:
        return dequantize_nf4(
            checkpoint.tensor(tensor), absmax(), state.shape,
            block_size=state.block_size, dtype=state.dtype,
        )  # fmt: skip

    def packed(linear: nn.Linear) -> nn.Module:
        rows, columns = state.shape
        device = linear.weight.device
        data = checkpoint.tensor(tensor).view(rows, columns // 2)
        weight = PackedWeight(
            data.to(device), "nf4", (rows, columns), absmax().to(device), state.block_size
        )
        return PackedLinear(weight, linear.bias)

    chunk = FORMATS["nf4"].chunk
    can = len(state.shape) == 2 and state.shape[1] % chunk == 0 and state.block_size >= chunk
    names = (tensor, named[0], *parts)
    return Source(tensor, "nf4", state.shape, read, packed if can else None, names)


def _state(checkpoint: Checkpoint, name: str) -> _State:
    checkpoint.shape(name, ("U8",), 1)
    try:
        found = json.loads(bytes(checkpoint.tensor(name).tolist()))
        dtype = getattr(torch, found["dtype"])
        nested = found.get("nested_blocksize", 0)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype {found['dtype']!r}")
        return _State(
            tuple(int(one) for one in found["shape"]), dtype, int(found["blocksize"]),
            int(nested), float(found.get("nested_offset", 0.0)),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{checkpoint.path}: tensor {name!r} is no state of bitsandbytes: {error}"
        ) from None


def _absmax(checkpoint: Checkpoint, tensor: str, state: _State) -> Tensor:
    """The largest weight of each block; quantised once more, a table's value by 256 of them."""
    found = checkpoint.tensor(f"{tensor}.absmax")
    if not state.nested_block_size:
        return found
    table = checkpoint.tensor(f"{tensor}.nested_quant_map")
    largest = checkpoint.tensor(f"{tensor}.nested_absmax")
    spread = largest.repeat_interleave(state.nested_block_size)[: len(found)]
    return table[found.long()] * spread + state.nested_offset
