"""Launches of the tests, with what went in and what came out, for a machine with a GPU.

`pytest -p tests.cuda.recording --record FILE tests/msl` runs tests as ever and writes a sample of
their launches to a file. replay.py runs them on a GPU, where no compiler is needed, and compares.
"""

from __future__ import annotations

import pickle
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from anymetal.launch.kernel import Kernel

MOST_BYTES = 64 * 1024 * 1024  # of one launch
MOST_LAUNCHES = 4  # of one kernel

Storages = dict[int, torch.Tensor]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="write the tests' launches to this file")


class Recorder:
    """Stands before Kernel.__call__."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self._counts: Counter[Any] = Counter()
        self._run = Kernel.__call__

    def call(self, kernel: Kernel, *args: Any, **keywords: Any) -> None:
        source = kernel._compiler.source
        key = (source, kernel.name, tuple(sorted(kernel.constants.items())))
        tensors = list(_tensors(args))
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        wanted = (
            self._counts[key] < MOST_LAUNCHES
            and size <= MOST_BYTES
            and all(tensor.is_cpu for tensor in tensors)
            and not source.include_dirs
        )
        if not wanted:
            self._run(kernel, *args, **keywords)
            return
        self._counts[key] += 1
        before = _contents(tensors)
        described = _described(args)
        self._run(kernel, *args, **keywords)
        self.launches.append(
            {
                "source": (source.text, source.defines, source.fast_math, source.language),
                "kernel": kernel.name,
                "constants": dict(kernel.constants),
                "arguments": described,
                "keywords": keywords,
                "before": packed(before),
                "after": packed(_contents(tensors)),
            }
        )


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def _contents(tensors: list[torch.Tensor]) -> Storages:
    found: Storages = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in found:
            found[storage.data_ptr()] = torch.tensor([], dtype=torch.uint8).set_(storage).clone()
    return found


def packed(storages: Storages) -> dict[int, bytes]:
    return {key: zlib.compress(bytes(data.numpy()), 1) for key, data in storages.items()}


def _described(value: Any) -> Any:
    """Arguments with a tuple in the place of each tensor."""
    if isinstance(value, torch.Tensor):
        place = value.untyped_storage().data_ptr()
        dtype = str(value.dtype).removeprefix("torch.")
        return ("tensor", place, dtype, value.storage_offset(), tuple(value.shape), value.stride())
    if isinstance(value, list | tuple):
        return ("list", [_described(part) for part in value])
    return ("value", value)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record") is None:
        return
    recorder = config.anymetal_recorder = Recorder()  # type: ignore[attr-defined]

    def call(kernel: Kernel, *args: Any, **keywords: Any) -> None:
        recorder.call(kernel, *args, **keywords)

    Kernel.__call__ = call  # type: ignore[method-assign]


def pytest_unconfigure(config: pytest.Config) -> None:
    recorder = getattr(config, "anymetal_recorder", None)
    if recorder is not None:
        config.getoption("--record").write_bytes(pickle.dumps(recorder.launches))
