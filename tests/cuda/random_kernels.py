"""The fuzzer's kernels on a GPU, against its exact model.

    python -m tests.cuda.random_kernels --count 300 --compile kernels.bundle
    ANYMETAL_BUNDLE=kernels.bundle python -m tests.cuda.random_kernels --count 300

The first compiles them on any machine; the second runs them and names the seeds that differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tests.fuzz.driver import NAME, WRITTEN, as_tensor, compare, pack, unpack
from tests.fuzz.generate import generate
from tests.fuzz.memory import Contents
from tests.fuzz.model import run
from tests.fuzz.printer import source
from tests.fuzz.tree import Kernel

import anymetal
from anymetal.engines.ahead import compile_bundle
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.errors import AnymetalError, EngineError
from anymetal.nouns import Source
from anymetal.store.bundle import write_bundle

TARGET = "cuda-sm90"


def requests(seeds: range) -> Iterator[tuple[Source, str, dict[str, bool]]]:
    for seed in seeds:
        text = Source(source([(NAME, generate(seed, small=True)[0])]))
        try:
            Compiler(text).compile(NAME, {}, PLAIN, TARGET)
        except EngineError as error:
            print(f"seed {seed}: {error}")
            continue
        yield text, NAME, {}


def launch(kernel: Kernel) -> dict[str, Contents]:
    """The written buffers after a run on the GPU."""
    library = anymetal.compile_shader(source([(NAME, kernel)]))
    buffers = [memory for memory in kernel.memories if memory.space != "threadgroup"]
    packed = {memory.name: pack(kernel, memory) for memory in buffers}
    moved = {m.name: as_tensor(m, packed[m.name]).cuda() for m in buffers if m.space != "scalar"}
    arguments = [packed[m.name].item() if m.space == "scalar" else moved[m.name] for m in buffers]
    getattr(library, NAME)(*arguments, threads=tuple(kernel.grid), group_size=tuple(kernel.group))
    torch.cuda.synchronize()
    for m in buffers:
        if m.name in moved:
            as_tensor(m, packed[m.name]).copy_(moved[m.name].cpu())
    return {m.name: {"": unpack(m, packed[m.name])} for m in buffers if m.space in WRITTEN}


def compare_all(seeds: range) -> int:
    """The number of kernels that differ from the model, or do not run."""
    differing = refused = 0
    for seed in seeds:
        kernel = generate(seed, small=True)[0]
        try:
            result = launch(kernel)
        except AnymetalError as error:
            refused += 1
            print(f"seed {seed}: {str(error)[:200]}", flush=True)
            continue
        difference = compare(kernel, run(kernel), TARGET, result)
        if difference is not None:
            differing += 1
            print(f"seed {seed}: {difference}", flush=True)
    print(f"{len(seeds)} kernels: {differing} differ from the model, {refused} refused")
    return differing + refused


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=9_000_000)
    parser.add_argument("--compile", type=Path)
    options = parser.parse_args()
    chosen = range(options.seed, options.seed + options.count)
    if options.compile:
        made = compile_bundle(TARGET, requests(chosen))
        write_bundle(options.compile, made)
        print(f"{len(made.executables)} kernels")
    else:
        sys.exit(compare_all(chosen) > 0)
