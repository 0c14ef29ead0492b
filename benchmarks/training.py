"""Parts of a training step beside torch's on the CPU: `python benchmarks/training.py [--json F]`.

Ratios of minima, with the two taking turns in one run. Traffic is what our kernels ask of memory,
over the least that the step needs; memory is the virtual device's, over that of the logits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

from anymetal import ops, optim
from anymetal.evidence.machine import describe
from anymetal.evidence.timing import LONG, measure
from anymetal.launch.guarded import Launched, watched
from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import OPERATORS
from anymetal.ops.indexing.places import add_into

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One step: minima in milliseconds, by contender; ours is the first."""

    step: str
    milliseconds: dict[str, float]
    traffic: float | None = None
    memory: float | None = None  # the device's peak over that of the logits
    goals: dict[str, float] = field(default_factory=dict)  # of `ratio`, `traffic`, `memory`

    @property
    def ratio(self) -> float:
        """Our time over that of the fastest of the others."""
        ours, *others = self.milliseconds.values()
        return ours / min(others)

    def missed(self) -> list[str]:
        return [name for name, goal in self.goals.items() if (getattr(self, name) or 0) > goal]


class Step(ABC):
    """A part of a training step that is timed: one class each."""

    title: str
    goals: ClassVar[dict[str, float]] = {}

    @abstractmethod
    def contenders(self) -> dict[str, Call]:
        """What takes turns; ours is the first."""

    def least_bytes(self) -> int | None:
        """The least memory traffic, where it is compared."""
        return None

    def memory(self) -> float | None:
        """The device's peak over that of the logits, where it is compared."""
        return None

    def row(self, rounds: int) -> Row:
        calls = self.contenders()
        times = measure(calls, rounds=rounds, **LONG)
        milliseconds = {name: each.minimum / 1e3 for name, each in times.items()}
        return Row(self.title, milliseconds, self.traffic(calls), self.memory(), self.goals)

    def moved(self, launch: Launched) -> int:
        """The bytes of a launch that are compared with the least."""
        return launch.moved_bytes or 0

    def traffic(self, calls: dict[str, Call]) -> float | None:
        least = self.least_bytes()
        if least is None:
            return None
        with watched(counting=True) as launches:
            next(iter(calls.values()))()
        return sum(self.moved(launch) for launch in launches) / least


class CrossEntropy(Step):
    title = "cross_entropy 4096 x 32000, forward and backward"
    goals: ClassVar = {"ratio": 1.0, "traffic": 1.1}

    def __init__(self, rows: int = 4096, classes: int = 32000) -> None:
        generator = torch.Generator().manual_seed(0)
        self.logits = torch.randn(rows, classes, generator=generator).requires_grad_()
        self.target = torch.randint(0, classes, (rows,), generator=generator)

    def contenders(self) -> dict[str, Call]:
        def step(loss: Callable[[Tensor, Tensor], Tensor]) -> Call:
            return lambda: torch.autograd.grad(loss(self.logits, self.target), self.logits)

        return {"ours": step(ops.cross_entropy), "torch": step(F.cross_entropy)}

    def least_bytes(self) -> int:
        """Read for the loss; read and written for the gradient."""
        return 3 * self.logits.nbytes


class LinearCrossEntropy(Step):
    title = "linear_cross_entropy 2048 x 1024 x 32000, forward and backward"
    goals: ClassVar = {"memory": 0.1, "traffic": 1.1}

    def __init__(self, rows: int = 2048, columns: int = 1024, classes: int = 32000) -> None:
        self.sizes = (rows, columns, classes)
        self.input, self.weight, self.target = linear_problem(*self.sizes)

    def contenders(self) -> dict[str, Call]:
        leaves = (self.input, self.weight)

        def ours() -> object:
            loss = ops.linear_cross_entropy(self.input, self.weight, self.target)
            return torch.autograd.grad(loss, leaves)

        def torchs() -> object:
            loss = F.cross_entropy(F.linear(self.input, self.weight), self.target)
            return torch.autograd.grad(loss, leaves)

        return {"ours": ours, "torch": torchs}

    def least_bytes(self) -> int:
        """Beside the products: logits are read for the loss, read and written for the gradient."""
        rows, _, classes = self.sizes
        return 3 * 4 * rows * classes

    def moved(self, launch: Launched) -> int:
        return super().moved(launch) if launch.kernel.startswith("cross_entropy") else 0

    def memory(self) -> float:
        """Of 128k classes, in a process of its own, since the device stays enabled."""
        command = [sys.executable, __file__, "--memory-of-classes", "131072"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout.split()[-1])


class EmbeddingBag(Step):
    title = "embedding_bag 100k x 128, 4096 bags of 32, forward and backward"
    goals: ClassVar = {"traffic": 1.1}

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.table = torch.randn(100_000, 128, generator=generator).requires_grad_()
        self.index = torch.randint(0, 100_000, (4096, 32), generator=generator)

    def contenders(self) -> dict[str, Call]:
        def step(function: Callable[..., Tensor]) -> Call:
            def call() -> object:
                result = function(self.index, self.table, mode="sum")
                return torch.autograd.grad(result, self.table, torch.ones_like(result))

            return call

        return {"ours": step(ops.embedding_bag), "torch": step(F.embedding_bag)}

    def least_bytes(self) -> int:
        """A row of the table and one of the gradient for each index; each bag and each row of the
        table that is named are written; indices are read twice."""
        row = self.table[0].nbytes
        named, bags = self.index.unique().numel(), len(self.index)
        return (2 * self.index.numel() + named + bags) * row + 2 * self.index.nbytes

    def moved(self, launch: Launched) -> int:
        """All lanes of a simdgroup read one index: they ask memory once, and are counted each."""
        moved = super().moved(launch)
        shared = {"embedding_bag_float": (1,), "add_rows_sorted_float": (2, 3, 4)}
        for buffer in shared.get(launch.kernel, ()):
            asked = launch.counts.buffer_bytes.get(buffer, 0) if launch.counts else 0
            moved -= asked - asked // SIMDGROUP
        return moved


class Added(Step):
    """What a gradient of an index is: elements added up, ours beside the way it does not take."""

    goals: ClassVar = {"ratio": 1.0}
    shape: tuple[int, ...]
    source: tuple[int, ...]
    each: bool
    dtype: ClassVar = torch.float32
    other: Literal["sorting", "atomics"] = "atomics"

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.values = torch.randn(self.source, generator=generator).to(self.dtype)
        size = self.source if self.each else self.source[:1]
        self.index = torch.randint(0, self.shape[0], size, generator=generator)

    def contenders(self) -> dict[str, Call]:
        def step(by: Literal["sorting", "atomics"] | None) -> Call:
            def call() -> object:
                zeros = torch.zeros(self.shape, dtype=self.dtype)
                operator = OPERATORS["scatter_add"]
                add_into(operator, zeros, 0, self.index, self.values, each=self.each, by=by)
                return zeros

            return call

        return {"ours": step(None), self.other: step(self.other)}


class AddedRows(Added):
    title = "gradient of embedding and index_select: 32768 rows of 128 into 100k"
    shape = (100_000, 128)
    source = (32_768, 128)
    each = False


class AddedHalfRows(AddedRows):
    title = f"{AddedRows.title}, float16"
    dtype: ClassVar = torch.float16


class AddedBfloatRows(AddedRows):
    title = f"{AddedRows.title}, bfloat16"
    dtype: ClassVar = torch.bfloat16


class AddedElements(Added):
    title = "gradient of gather: 1M elements into 64k"
    shape = (65_536,)
    source = (1 << 20,)
    each = True
    other = "sorting"


def linear_problem(rows: int, columns: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    input = torch.randn(rows, columns, generator=generator)
    weight = torch.randn(classes, columns, generator=generator) / columns**0.5
    target = torch.randint(0, classes, (rows,), generator=generator)
    return input.requires_grad_(), weight.requires_grad_(), target


def extra_memory(classes: int, rows: int = 2048, columns: int = 64) -> float:
    """What linear_cross_entropy takes beside its arguments and gradients, over the logits."""
    from anymetal import device  # noqa: PLC0415  (the device stays enabled)

    device.enable()
    tensors = [t.detach().to("mps") for t in linear_problem(rows, columns, classes)]
    input, weight, target = tensors[0].requires_grad_(), tensors[1].requires_grad_(), tensors[2]
    torch.mps.empty_cache()
    before = torch.mps.driver_allocated_memory()
    ops.linear_cross_entropy(input, weight, target).backward()
    torch.mps.synchronize()
    extra = torch.mps.driver_allocated_memory() - before - input.nbytes - weight.nbytes
    return extra / (4 * rows * classes)


class AdamW(Step):
    title = "AdamW over 64 tensors of 1M"
    goals: ClassVar = {"ratio": 1.0, "traffic": 1.1}

    def __init__(self, tensors: int = 64, elements: int = 1 << 20) -> None:
        self.params = gradient_problem(tensors, elements)

    def contenders(self) -> dict[str, Call]:
        return {
            "ours": optim.AdamW(self.params).step,
            "torch fused": torch.optim.AdamW(self.params, fused=True).step,
            "torch foreach": torch.optim.AdamW(self.params, foreach=True).step,
        }

    def least_bytes(self) -> int:
        """Parameter, gradient and two moments are read, all but the gradient written."""
        return 7 * sum(param.nbytes for param in self.params)


class ClipGradNorm(Step):
    title = "clip_grad_norm_ over 64 tensors of 1M"
    goals: ClassVar = {"ratio": 1.0, "traffic": 1.1}

    def __init__(self, tensors: int = 64, elements: int = 1 << 20) -> None:
        self.params = gradient_problem(tensors, elements)

    def contenders(self) -> dict[str, Call]:
        # 1e-6 is added to a norm, so gradients are scaled in every call.
        return {
            "ours": lambda: optim.clip_grad_norm_(self.params, 1e-6),
            "torch": lambda: torch.nn.utils.clip_grad_norm_(self.params, 1e-6),
        }

    def least_bytes(self) -> int:
        """Read for the norm; read and written to be scaled."""
        return 3 * sum(param.nbytes for param in self.params)


def gradient_problem(tensors: int, elements: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(elements, generator=generator) for _ in range(tensors)]
    for param in params:
        param.requires_grad_().grad = torch.randn(elements, generator=generator)
    return params


STEPS: dict[str, type[Step]] = {
    "cross_entropy": CrossEntropy,
    "linear_cross_entropy": LinearCrossEntropy,
    "embedding_bag": EmbeddingBag,
    "added_rows": AddedRows,
    "added_half_rows": AddedHalfRows,
    "added_bfloat_rows": AddedBfloatRows,
    "added_elements": AddedElements,
    "adamw": AdamW,
    "clip_grad_norm": ClipGradNorm,
}


def table(found: list[Row]) -> Table:
    result = Table(title="milliseconds, minimum; below 1 ours is faster")
    for heading in ("step", "ours", "others", "ratio", "traffic", "memory", "missed"):
        result.add_column(heading, justify="right")
    for row in found:
        (_, ours), *others = row.milliseconds.items()
        beside = ", ".join(f"{name} {time:.1f}" for name, time in others)
        shares = ["-" if each is None else f"{each:.3f}" for each in (row.traffic, row.memory)]
        result.add_row(
            row.step, f"{ours:.1f}", beside, f"{row.ratio:.2f}", *shares, ", ".join(row.missed())
        )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", nargs="*", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--memory-of-classes", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of_classes:
        Console().print(extra_memory(options.memory_of_classes))
        return 0
    found = [STEPS[name]().row(options.rounds) for name in options.steps]
    Console().print(table(found))
    if options.json:
        machine = asdict(describe(torch.device("cpu")))
        listed = [{**asdict(row), "ratio": row.ratio} for row in found]
        options.json.write_text(json.dumps({"machine": machine, "rows": listed}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
