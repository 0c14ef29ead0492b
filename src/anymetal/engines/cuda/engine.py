"""The engine for NVIDIA GPUs: a thread of a kernel is a thread of a block, a simdgroup a warp."""

from __future__ import annotations

import zlib
from typing import Any

from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.engines.cuda.lowering import lower
from anymetal.engines.cuda.ptx import ptx
from anymetal.engines.cuda.target import target
from anymetal.ir import parse
from anymetal.nouns import Program


class CudaEngine:
    """Compiles programs to PTX for one processor and all later ones."""

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.target = target(processor)
        self.name = self.target.name

    def compile(self, program: Program, *, patient: bool = False) -> CudaExecutable:
        module = parse(program.ir)
        metadata = lower(module, program)
        metadata["engine"] = self.name
        text = ptx(str(module), self.processor)
        return self.load(zlib.compress(text.encode(), 6), metadata)

    def load(self, payload: bytes, metadata: dict[str, Any]) -> CudaExecutable:
        return CudaExecutable(payload, metadata)

    def start_early(self) -> None:
        """Nothing is built once a machine."""
