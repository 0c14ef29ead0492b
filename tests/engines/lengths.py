"""Every kernel of the operators as vector code: how long it is, and which ones fall back.

`python tests/engines/lengths.py [--all]` prints the kernels that are in their long form, or all;
the exit status is 1 where one runs on the reference engine. Machine code is not made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from rich.progress import track

import anymetal.linalg
import anymetal.ops  # noqa: F401  (both declare operators)
from anymetal.engines.ahead import Request
from anymetal.engines.collector import collector_paused
from anymetal.engines.compiler import Compiler
from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine, shape_of, shapes_for, write
from anymetal.errors import Unsuitable
from anymetal.evidence.ahead import kernels_of
from anymetal.ir import Module
from anymetal.launch.requested import Requests
from anymetal.ops.declare import OPERATORS
from anymetal.passes.simdgroup.rules import GroupShape


@dataclass(frozen=True)
class Row:
    """One kernel for one shape of threadgroups; `why` it falls back, if it does."""

    kernel: str
    shape: GroupShape
    instructions: int = 0
    is_long: bool = False
    why: str = ""

    def __str__(self) -> str:
        form = self.why or ("long" if self.is_long else "")
        shape = f"{self.shape.row}{'' if self.shape.complete else ' cut'}"
        return f"{self.instructions:7,} {shape:7} {self.kernel} {form}"


def main() -> int:
    found = kernels_of(OPERATORS.values(), "cpu")
    rows = [row for request in track(found, "kernels") for row in rows_of(request, found)]
    for row in sorted(rows, key=lambda row: -row.instructions):
        if row.why or row.is_long or "--all" in sys.argv:
            print(row)
    fallen = [row for row in rows if row.why]
    print(f"{len(rows)} forms of {len(found)} kernels, {len(fallen)} on the reference engine")
    return 1 if fallen else 0


def rows_of(request: Request, found: Requests) -> Iterator[Row]:
    """A kernel for all shapes that it is launched with."""
    source, kernel, constants = request
    engine, program = SimdgroupEngine(), Compiler(source).program(kernel, constants)
    with collector_paused():
        ir, metadata = engine.prepared(program, patient=False)
        shapes = {shape_of((32, 1, 1))}  # which is looked at before any launch
        for group, ragged in found.launches(*request):
            shapes.update(shapes_for(group, ragged=ragged))
        for shape in sorted(shapes, key=str):
            row = partial(Row, kernel, shape)
            try:
                written = write(ir, shape, metadata["heaviest"])
            except Unsuitable as error:
                yield row(why=str(error))
                continue
            yield row(length(written.module), written.result.is_long)


def length(module: Module) -> int:
    return sum(1 for function in module.functions for _ in function.instructions())


if __name__ == "__main__":
    raise SystemExit(main())
