"""MLX's kernels for a GPU, with what Apple's compiler made of them gives on a CPU (parity/).

    python -m tests.cuda.mlx --shard 1/2 --sample 300 mlx.bundle mlx.launches
    ANYMETAL_BUNDLE=mlx.bundle python tests/cuda/replay.py mlx.launches

The first compiles the kernels' source and runs Apple's code, on any machine; the second runs ours
on a GPU and compares.
"""

from __future__ import annotations

import argparse
import logging
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from parity import mlx
from parity.__main__ import of_family, shard
from parity.fences import fenced_copy
from parity.inputs import Inputs, NoValue, dtype_of, make_inputs, type_of_elements
from parity.launches import Undefined
from parity.results import known_values, ordinary_pair
from tests.cuda.recording import packed
from tests.cuda.simulator.mlx import KEEPS_SMALL_BFLOATS

from anymetal.engines.ahead import Request, compile_bundle
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.errors import AnymetalError
from anymetal.machine.processor import code_for
from anymetal.store.bundle import write_bundle

TARGET = "cuda-sm90"
_BLOCK = 0  # the one storage of a launch


def recorded(one: mlx.Noted, compiler: Compiler) -> tuple[Request, list[dict[str, Any]]]:
    """A kernel, and its launches as recording.py has them."""
    tables = [noted.argument for noted in one.notes.parameters]
    source, constants = compiler.source, known_values(one, compiler)
    apples, _ = ordinary_pair(one, compiler)
    launches = []
    for launch in one.launches:
        inputs = make_inputs(one.name, tables, launch)
        after = fenced_copy(inputs.block)
        apples(inputs.arguments(after), launch)
        launches.append(
            {
                "source": (source.text, source.defines, source.fast_math, source.language),
                "kernel": one.name,
                "constants": constants,
                "arguments": ("list", _described(inputs)),
                "keywords": {"threads": launch.threads, "group_size": launch.group},
                "before": packed({_BLOCK: inputs.block}),
                "after": packed({_BLOCK: after}),
            }
        )
    return (source, one.name, constants), launches


def _described(inputs: Inputs) -> list[Any]:
    """Arguments by index, as tensors of their elements' types; what is not bound has none."""
    count = max((place.argument.index or 0 for place in inputs.places), default=-1) + 1
    rows: list[Any] = [("tensor", _BLOCK, "uint8", 0, (0,), (1,)) for _ in range(count)]
    for place in inputs.places:
        dtype = dtype_of(type_of_elements(place.argument))
        row = (str(dtype).removeprefix("torch."), place.start // dtype.itemsize)
        size = place.size // dtype.itemsize
        rows[place.argument.index or 0] = ("tensor", _BLOCK, *row, (size,), (1,))
    return rows


def every(names: Iterable[str]) -> Iterator[tuple[Request, list[dict[str, Any]]]]:
    """Those that are launched in a way that somebody has described, and that Apple's code runs."""
    for group in mlx.batches(names):
        compiler = Compiler(mlx.source_of(group))
        for one in group:
            try:
                found = recorded(one, compiler)
                compiler.compile(one.name, found[0][2], PLAIN, TARGET)
            except (mlx.NoDescription, NoValue, Undefined):
                continue
            except AnymetalError as error:
                print(f"{one.name}: {str(error)[:160]}", flush=True)
                continue
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--family", metavar="PATTERN", help="only kernels of such a template")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("launches", type=Path)
    options = parser.parse_args()
    logging.getLogger("anymetal.kernel").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    known = [name for name in mlx.kernels() if mlx.has_source(name)]
    with code_for(KEEPS_SMALL_BFLOATS):
        names = shard(of_family(known, options.family), options.shard, options.sample)
        found = list(every(names))
    write_bundle(options.bundle, compile_bundle(TARGET, [request for request, _ in found]))
    launches = [launch for _, launches in found for launch in launches]
    options.launches.write_bytes(pickle.dumps(launches))
    print(f"{len(found)} kernels, {len(launches)} launches")


if __name__ == "__main__":
    main()
