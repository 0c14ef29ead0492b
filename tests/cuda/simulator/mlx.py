"""MLX's kernels on the simulator, against what Apple's compiler made of them.

The PTX of a kernel's source runs beside the AIR of MLX's wheel, which runs on the CPU (parity/).
Bit by bit, but for NaNs; code for the CPU keeps small bfloats, as GPUs of NVIDIA do.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator

import torch
from parity import mlx, results
from parity.__main__ import shard
from parity.inputs import Inputs, NoValue, make_inputs
from parity.launches import Launch, Undefined
from tests.cuda.simulator.device import simulated_gpu

from anymetal.engines.compiler import Compiler
from anymetal.errors import AnymetalError
from anymetal.machine.processor import code_for

KEEPS_SMALL_BFLOATS = "x86-64-v3"
_EQUAL = ("equal", "NaN signs", "equal, nothing written")


def judge(one: mlx.Noted, compiler: Compiler) -> str:
    """What came of a kernel's launches, in words."""
    tables = [noted.argument for noted in one.notes.parameters]
    launches = [(launch, make_inputs(one.name, tables, launch)) for launch in one.launches]
    apples, ours = results.ordinary_pair(one, compiler)

    def on_gpu(arguments: list[torch.Tensor], launch: Launch) -> None:
        with simulated_gpu():
            ours(arguments, launch)

    def word(launch: Launch, inputs: Inputs) -> str:
        return results.compared([apples, on_gpu], launch, inputs)

    return results.worst([word(*each) for each in launches])


def judged(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Kernels and what came of them; those whose launches nobody has described are left out."""
    for group in mlx.batches(names):
        compiler = Compiler(mlx.source_of(group))
        for one in group:
            try:
                yield one.name, judge(one, compiler)
            except (mlx.NoDescription, NoValue, Undefined):
                continue
            except AnymetalError as error:
                yield one.name, f"refused: {str(error)[:160]}"


def main(which: str, sample: int) -> int:
    """Prints what differs; returns how many kernels do."""
    logging.getLogger("anymetal.kernel").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    names = shard([name for name in mlx.kernels() if mlx.has_source(name)], which, sample)
    counts: Counter[str] = Counter()
    with code_for(KEEPS_SMALL_BFLOATS):
        for name, word in judged(names):
            counts[word if word in _EQUAL else "different"] += 1
            if word not in _EQUAL:
                print(f"{name}: {word}", flush=True)
    print(dict(counts))
    return counts["different"]
