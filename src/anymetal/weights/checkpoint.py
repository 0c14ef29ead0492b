"""A checkpoint of safetensors files, one or several with an index: names, shapes, tensors, config.

Opening it looks at every file's header, so that what is missing or cut off is known at once.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from anymetal.errors import WeightsError

Tensor = torch.Tensor
FLOATS = ("F64", "F32", "F16", "BF16")
WORDS = ("I32", "U32")
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Entry:
    """A tensor by what a file's header says of it."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors calls it: F16, I32
    file: Any  # open, with get_tensor


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    entries: dict[str, Entry]
    config: dict[str, Any]

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def shape(self, name: str, dtypes: Collection[str], dimensions: int = 0) -> tuple[int, ...]:
        """Of a tensor that must be there, in one of the dtypes; of any dimensions where 0."""
        if name not in self.entries:
            raise WeightsError(f"{self.path}: no tensor {name!r}")
        entry = self.entries[name]
        if entry.dtype not in dtypes:
            known = ", ".join(dtypes)
            raise WeightsError(
                f"{self.path}: tensor {name!r} is of type {entry.dtype}; expected {known}"
            )
        if dimensions and len(entry.shape) != dimensions:
            raise WeightsError(
                f"{self.path}: tensor {name!r} has shape {list(entry.shape)}; expected"
                f" {dimensions} dimensions"
            )
        return entry.shape

    def check(self, name: str, dtypes: Collection[str], shape: tuple[int, ...]) -> None:
        found = self.shape(name, dtypes)
        if found != shape:
            raise WeightsError(
                f"{self.path}: tensor {name!r} has shape {list(found)}; expected {list(shape)}"
            )

    def tensor(self, name: str) -> Tensor:
        found: Tensor = self.entries[name].file.get_tensor(name)
        return found


def open_checkpoint(path: str | Any, who: str, configs: tuple[str, ...]) -> Checkpoint:
    """The checkpoint at a folder, a safetensors file or an index; `configs` are read beside it."""
    try:
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415  (who loads needs it)
    except ImportError:
        raise WeightsError(
            f"{who}: needs the package `safetensors`: pip install safetensors"
        ) from None
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    entries: dict[str, Entry] = {}
    index = _index_of(place)
    for name in sorted(set(index.values())) if index else [_single(place)]:
        file = folder / name
        if not file.is_file():
            raise WeightsError(f"{file}: no such file")
        try:
            opened: Any = safe_open(str(file), framework="pt")
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file}: no whole safetensors file: {error}") from None
        for one in opened.keys():  # noqa: SIM118  (no mapping)
            part = opened.get_slice(one)
            entries[one] = Entry(tuple(part.get_shape()), part.get_dtype(), opened)
    missing = sorted(set(index) - entries.keys())
    if missing:
        raise WeightsError(
            f"{place}: the index names {missing[0]!r}, which {index[missing[0]]} has not"
        )
    return Checkpoint(place, entries, _config(folder, configs))


def _single(place: Path) -> str:
    return _WHOLE if place.is_dir() else place.name


def _index_of(place: Path) -> dict[str, str]:
    """Files by the names of tensors, where there is an index."""
    file = place / _INDEX if place.is_dir() else place
    if place.is_dir() and ((place / _WHOLE).is_file() or not file.is_file()):
        return {}
    if file.suffix != ".json":
        return {}
    found = _json(file).get("weight_map")
    if not isinstance(found, dict):
        raise WeightsError(f"{file}: no index of a checkpoint: it has no weight_map")
    return {str(name): str(held) for name, held in found.items()}


def _config(folder: Path, names: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        if (folder / name).is_file():
            found |= _json(folder / name)
    return found


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{file}: no JSON file: {error}") from None
    if not isinstance(found, dict):
        raise WeightsError(f"{file}: expected a JSON object, got {type(found).__name__}")
    return found
