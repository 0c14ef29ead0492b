"""A GGUF file and a model go in; the model's parameters come out filled, or untouched and an error.

The `gguf` package reads the container and maps it into memory. Names, shapes, formats and sizes are
checked before the first parameter is written, and weights are unpacked a tensor at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from anymetal.errors import WeightsError
from anymetal.ops.modules import PackedLinear, QuantizedLinear
from anymetal.ops.quantised import PackedWeight, Quantized
from anymetal.weights.filling import Loaded, Source, fill
from anymetal.weights.ggml import FORMATS, dequantize_ggml

Tensor = torch.Tensor
# Formats whose blocks our products read, by our names.
_PACKED = {"Q4_K": "q4_K", "Q6_K": "q6_K"}
_ELEMENTS = 1 << 24  # that are unpacked at a time


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]  # torch's order, the rows first
    format: str
    data: Any  # bytes in memory

    def blocks(self) -> Tensor:
        """The bytes of each row, where the file is mapped."""
        flat = torch.from_numpy(self.data.view("uint8").reshape(-1))
        columns = self.shape[-1] if self.shape else 1
        known = FORMATS[self.format]
        return flat.view(-1, columns // known.weights * known.size)

    def weights(self) -> Tensor:
        """Unpacked, some rows at a time."""
        by_row = self.blocks()
        columns = self.shape[-1] if self.shape else 1
        parts = torch.split(by_row, max(1, _ELEMENTS // columns))
        return torch.cat([dequantize_ggml(part, self.format) for part in parts]).view(self.shape)


# --- what architectures do to weights on their way into a file -----------------------------------


def _in_halves(heads: int) -> Callable[[Tensor], Tensor]:
    """Rows of rotated heads: llama.cpp has the two of a pair side by side, transformers apart."""

    def turned(weight: Tensor) -> Tensor:
        pairs = weight.view(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
        return pairs.transpose(1, 2).reshape(weight.shape)

    return turned


def _less_one(weight: Tensor) -> Tensor:
    """Gemma's norms, which transformers keeps minus 1."""
    return weight - 1


def _change_of(architecture: str, name: str, field: Callable[[str], int]) -> Any:
    """What a tensor of the file is turned by, or None."""
    if architecture == "llama" and ".attn_q." in name:
        return _in_halves(field("attention.head_count"))
    if architecture == "llama" and ".attn_k." in name:
        return _in_halves(field("attention.head_count_kv"))
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return _less_one
    return None


ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3")


# --- reading ----------------------------------------------------------------------------------


def load_gguf(
    path: str | PathLike[str],
    model: nn.Module,
    *,
    names: Mapping[str, str] | None = None,
    packed: bool = False,
) -> Loaded:
    """Fills a model's parameters with the weights of a GGUF file, in the parameters' dtypes.

    The names are those of transformers' models, for the architectures llama (Mistral too), qwen2,
    qwen3, gemma, gemma2 and gemma3. For others `names` says which tensor of the file belongs to
    which parameter, and weights are taken as they are. Formats: q4_0, q4_1, q5_0, q5_1, q8_0, q4_K,
    q6_K, f16, bf16 and f32. With `packed`, linear layers in q4_K and q6_K become PackedLinear, on
    the bytes of the file where they are mapped, and those in q4_0 and q8_0 QuantizedLinear; all
    else is unpacked. A file that does not fit leaves the model untouched.
    """
    file = _opened(Path(path))
    tensors = {one.name: one for one in file.tensors()}
    wanted = _wanted(file, model, names)
    sources = {}
    for name, _ in model.named_parameters():
        found = _checked(path, name, tensors.get(wanted[name]), wanted[name])
        sources[name] = _source(found, None if names else file.change(found.name))
    return fill(path, model, sources, tensors, packed)


def _source(tensor: _Tensor, change: Callable[[Tensor], Tensor] | None) -> Source:
    """Changes of rows are made to rows of blocks, too."""

    def changed(rows: Tensor) -> Tensor:
        return rows if change is None else change(rows)

    def kept(linear: nn.Linear) -> nn.Module:
        device, shape = linear.weight.device, (tensor.shape[0], tensor.shape[1])
        weight = PackedWeight(changed(tensor.blocks()).to(device), _PACKED[tensor.format], shape)
        return PackedLinear(weight, linear.bias)

    def repacked(linear: nn.Linear) -> nn.Module:
        weight = Quantized.from_ggml(changed(tensor.blocks()), tensor.format.lower())
        return QuantizedLinear.from_quantized(weight.to(linear.weight.device), linear.bias)

    def read() -> Tensor:
        return changed(tensor.weights())

    layer = kept if tensor.format in _PACKED else None
    layer = repacked if tensor.format in ("Q4_0", "Q8_0") else layer
    return Source(tensor.name, tensor.format, tensor.shape, read, layer)


@dataclass(frozen=True)
class _File:
    path: Path
    reader: Any

    @property
    def architecture(self) -> str:
        return str(self._content("general.architecture"))

    def _content(self, key: str) -> Any:
        field = self.reader.get_field(key)
        if field is None:
            raise WeightsError(f"{self.path}: the file has no field {key!r}")
        return field.contents()

    def change(self, name: str) -> Any:
        architecture = self.architecture
        return _change_of(
            architecture, name, lambda key: int(self._content(f"{architecture}.{key}"))
        )

    def tensors(self) -> Iterator[_Tensor]:
        for tensor in self.reader.tensors:
            shape = tuple(int(size) for size in reversed(tensor.shape))
            yield _Tensor(tensor.name, shape, tensor.tensor_type.name, tensor.data)


def _opened(path: Path) -> _File:
    try:
        from gguf import GGUFReader  # noqa: PLC0415  (only who loads such files needs it)
    except ImportError:
        raise WeightsError("load_gguf: needs the package `gguf`: pip install gguf") from None
    if not path.is_file():
        raise WeightsError(f"{path}: no such file")
    try:
        return _File(path, GGUFReader(path, "c"))  # what torch maps must be writable
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError) as error:
        raise WeightsError(f"{path}: no whole GGUF file: {error}") from None


def _wanted(file: _File, model: nn.Module, names: Mapping[str, str] | None) -> dict[str, str]:
    """The tensors of the file that a model's parameters are, by the parameters' names."""
    parameters = [name for name, _ in model.named_parameters()]
    if names is not None:
        return {name: names.get(name, name) for name in parameters}
    architecture = file.architecture
    if architecture not in ARCHITECTURES:
        raise WeightsError(
            f"{file.path}: architecture {architecture!r} is not known here, only"
            f" {', '.join(ARCHITECTURES)}. Say with names= which tensor is which parameter"
        )
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map  # noqa: PLC0415

    kind = next(one for one, name in MODEL_ARCH_NAMES.items() if name == architecture)
    known = get_tensor_name_map(kind, int(file._content(f"{architecture}.block_count")))
    found = {name: known.get_name(name, try_suffixes=(".weight", ".bias")) for name in parameters}
    strangers = [name for name, tensor in found.items() if tensor is None]
    if strangers:
        raise WeightsError(
            f"{file.path}: a {architecture} has no parameters such as {strangers[0]!r}"
            f" ({len(strangers)} of {len(parameters)})"
        )
    return {name: str(tensor) for name, tensor in found.items()}


def _checked(path: Any, name: str, tensor: _Tensor | None, wanted: str) -> _Tensor:
    """The tensor for a parameter, which must be there and of a known format."""
    if tensor is None:
        raise WeightsError(f"{path}: no tensor {wanted!r} for parameter {name!r}")
    if tensor.format not in FORMATS:
        raise WeightsError(
            f"{path}: tensor {tensor.name!r} is of type {tensor.format}; known are"
            f" {', '.join(FORMATS)}"
        )
    return tensor
