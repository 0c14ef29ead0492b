"""Kernels and the name of an engine in, the contents of their buffers and how they differ out."""

from __future__ import annotations

import os
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch

import anymetal
from anymetal import settings
from anymetal.errors import EngineError

from .memory import Contents, contents, numpy_type
from .model import Expected
from .printer import source
from .scalars import Array, dtype, element, width
from .tree import Kernel, Memory

VARIABLE = "ANYMETAL_ENGINE"
REFERENCE = "coroutine"
CHECKED = "checked"
"""Not an engine to choose, but a run under the checker, which must find nothing."""
NAME = "fuzzed"
WRITTEN = ("output", "atomic")
"""The spaces whose contents are compared after a run."""


def engine_names() -> list[str]:
    """The engines to compare: those the setting can choose from, where there is one."""
    if not any(setting.variable == VARIABLE for setting in settings.ALL):
        return [REFERENCE]
    return [REFERENCE, "simdgroup"]


@dataclass(frozen=True)
class Difference:
    """Where an engine's result is not the expected one; or the error it raised instead."""

    engine: str
    what: str
    kind: str = "differs"
    """Or the name of the exception: shrinking must not turn one failure into another."""

    def __str__(self) -> str:
        return f"{self.engine}: {self.what}"


def run_on(engine: str, kernel: Kernel) -> dict[str, Contents] | Exception:
    """The buffers after the kernel, or what it raised."""
    # One kernel a source: clang reads all of a source for each of its kernels.
    text = source([(NAME, kernel)])
    try:
        if engine == CHECKED:
            return launch_checked(anymetal.compile_shader(text), kernel)
        with mock.patch.dict(os.environ, {VARIABLE: engine}):
            return launch(anymetal.compile_shader(text), NAME, kernel)
    except Exception as error:
        return error


class FalseFinding(Exception):
    """The checker finds fault with a kernel that has none."""


def launch_checked(library: anymetal.ShaderLibrary, kernel: Kernel) -> dict[str, Contents]:
    """Some lanes going another way, or home, is what these kernels are about, and what is read of
    such lanes; nothing else is."""
    with anymetal.check(outputs=()) as report:
        result = launch(library, NAME, kernel)
    for finding in report.findings:
        if finding.kind not in ("collective_divergence", "barrier_divergence", "shuffle"):
            raise FalseFinding(f"line {finding.line}: {finding.kind}: {finding.message}")
    return result


def launch(library: anymetal.ShaderLibrary, name: str, kernel: Kernel) -> dict[str, Contents]:
    buffers = [memory for memory in kernel.memories if memory.space != "threadgroup"]
    packed = {memory.name: pack(kernel, memory) for memory in buffers}
    arguments = [
        packed[m.name].item() if m.space == "scalar" else as_tensor(m, packed[m.name])
        for m in buffers
    ]
    getattr(library, name)(*arguments, threads=tuple(kernel.grid), group_size=tuple(kernel.group))
    return {m.name: {"": unpack(m, packed[m.name])} for m in buffers if m.space in WRITTEN}


def pack(kernel: Kernel, memory: Memory) -> Array:
    """The buffer as it lies in memory."""
    start = contents(kernel, memory)
    if element(memory.type) == "bfloat":
        return (start[""].view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if "" in start:
        return start[""].copy()
    array = np.zeros(memory.size, numpy_type(kernel, memory))
    for name, values in start.items():
        array[name] = values
    return array


def unpack(memory: Memory, array: Array) -> Array:
    if element(memory.type) == "bfloat":
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array


def as_tensor(memory: Memory, array: Array) -> torch.Tensor:
    """Over the same memory; types that torch lacks go in as integers of their size."""
    if array.dtype.names:
        return torch.from_numpy(array.view(np.uint8))
    flat = array.reshape(-1)
    if element(memory.type) == "bfloat":
        return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(flat.view(f"i{flat.itemsize}") if flat.dtype.kind == "u" else flat)


# ---- Comparison ----------------------------------------------------------------------------------


def compare(
    kernel: Kernel, expected: Expected, engine: str, result: dict[str, Contents] | Exception
) -> Difference | None:
    """Integers bit by bit; floating point by value, sums of open order within their tolerance."""
    if refused(engine, result):
        return None
    if isinstance(result, Exception):
        kind = type(result).__name__
        return Difference(engine, f"{kind}: {result}", kind)
    for name, wanted in expected.contents.items():
        want, got = wanted[""], result[name][""]
        memory = kernel.memory(name)
        assert want.dtype == got.dtype == dtype(memory.type) and want.shape == got.shape
        wrong = _wrong(want, got, expected.tolerance.get(name))
        if wrong.any():
            place = int(np.flatnonzero(wrong.reshape(memory.size, width(memory.type)).any(1))[0])
            count = int(wrong.sum())
            what = f"{name}[{place}] is {got[place]}, expected {want[place]}"
            return Difference(engine, f"{what} ({count} of {wrong.size} elements differ)")
    return None


def _wrong(want: Array, got: Array, tolerance: Array | None) -> Array:
    if tolerance is None:
        return want != got
    difference = np.abs(want.astype(np.float64) - got.astype(np.float64))
    return ~(difference <= tolerance)


def refused(engine: str, result: dict[str, Contents] | Exception) -> bool:
    """Whether a fast engine leaves the kernel to the reference engine, which takes all of them."""
    return engine != REFERENCE and isinstance(result, EngineError)
