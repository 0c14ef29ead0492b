"""Programs of a batch as vector code, which is made soon and not optimised.

Of a kernel that is optimised as always, machine code takes ten times as long as all else. The judge
asks what two programs compute. So loops over arrays are not unrolled before a program is
vectorised, one code does for whole threadgroups and for those that the grid's edges cut, and clang
generates code without a look at it as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from anymetal.engines.collector import collector_paused
from anymetal.engines.cpu import generator, jit
from anymetal.engines.cpu.runtime import Runtime, runtime
from anymetal.engines.cpu.simdgroups.engine import (
    Code,
    SimdgroupEngine,
    SimdgroupExecutable,
    write,
)
from anymetal.errors import Unsuitable
from anymetal.nouns import Program
from anymetal.passes.simdgroup.rules import GroupShape


class QuickVectors(SimdgroupExecutable):
    """A kernel whose vector code is made soon, when a launch needs it, and kept nowhere."""

    def __init__(self, ir: str, metadata: dict[str, Any], runtime: Runtime) -> None:
        super().__init__(b"", metadata, runtime)
        self._ir = ir

    def _new_code(self, shape: GroupShape) -> Code | Unsuitable:
        cut = replace(shape, complete=False)
        if isinstance(found := self._codes.get(cut), Code):
            return found  # it takes less for granted
        with collector_paused():
            try:
                written = write(self._ir, shape, self.metadata["heaviest"])
            except Unsuitable as error:
                return error
            code = generator.object_code_as_it_is(str(written.module))
        return Code(jit.LoadedCode(code), written.result.frame_size)


def compile_vectors(programs: Sequence[Program]) -> list[QuickVectors]:
    """Executables of these programs for the engine that runs simdgroups.

    Raises what a single one of them raises.
    """
    engine, host = SimdgroupEngine(), runtime()
    made = []
    for program in programs:
        ir, metadata = engine.prepared(program, patient=True, unroll=False)
        metadata["reason"] = ""
        made.append(QuickVectors(ir, metadata, host))
    return made
