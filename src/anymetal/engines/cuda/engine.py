"""The engine for NVIDIA GPUs: a thread of a kernel is a thread of a block, a simdgroup a warp."""

from __future__ import annotations

import zlib
from typing import Any

from anymetal.engines.cuda.executable import SEPARATOR, CudaExecutable
from anymetal.engines.cuda.lowering import lower
from anymetal.engines.cuda.ptx import ptx
from anymetal.engines.cuda.target import ENTRY, PROMISE, target
from anymetal.engines.cuda.together import HERE
from anymetal.engines.cuda.unaligned import Places, places_asked_for, places_of, take_anywhere
from anymetal.ir import Module, parse
from anymetal.nouns import Program


class CudaEngine:
    """Compiles programs to PTX for one processor and all later ones."""

    def __init__(self, processor: str) -> None:
        self.processor = processor
        self.target = target(processor)
        self.name = self.target.name

    def compile(self, program: Program, *, patient: bool = False) -> CudaExecutable:
        """A kernel whose simdgroups do things together has code of its own for usual launches: in
        the other, lanes must ask which of them are there."""
        module = parse(program.ir)
        function = module.function(ENTRY)
        collective, promises = any(function.calls(HERE)), any(function.calls(PROMISE))
        declared = places_of(program.arguments)
        looked_at = None if promises else declared
        metadata = lower(module, program, usual=False)
        texts = [self._text(module, program, looked_at, usual=False)]
        if collective:
            module = parse(program.ir)
            lower(module, program, usual=True)
            texts.append(self._text(module, program, looked_at, usual=True))
        places = declared if promises else places_asked_for(texts, program.arguments)
        if not promises:
            texts = [take_anywhere(text, places) for text in texts]
        aligned = sorted(places.aligned.items())
        metadata |= {"engine": self.name, "has_usual": collective, "aligned": aligned}
        return self.load(zlib.compress(SEPARATOR.join(texts).encode(), 6), metadata)

    def _text(self, module: Module, program: Program, places: Places | None, *, usual: bool) -> str:
        return ptx(str(module), program.name, self.processor, places, usual=usual)

    def load(self, payload: bytes, metadata: dict[str, Any]) -> CudaExecutable:
        return CudaExecutable(payload, metadata)

    def start_early(self) -> None:
        """Nothing is built once a machine."""
