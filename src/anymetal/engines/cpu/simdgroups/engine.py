"""The fast engine: a simdgroup runs as vectors of 32 values (passes/simdgroup).

Code depends on how lanes lie in a threadgroup: side by side in x, or in rows of 16, 8, 4 or 2.
What a launch needs is compiled when it is launched for the first time, and kept on disk like
everything else.
"""

from __future__ import annotations

import functools
import threading
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import llvmlite

from anymetal import settings
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.layout import KERNEL_PART
from anymetal.engines.cpu.runtime import Runtime, source_digest
from anymetal.engines.cpu.threads.engine import CoroutineExecutable, prepare_module
from anymetal.errors import EngineError
from anymetal.ir import parse
from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.nouns import Program
from anymetal.passes import simdgroup as lanes
from anymetal.passes.coroutine import COROUTINE, make_coroutine
from anymetal.passes.machine import THREAD_MAIN, answer_at_once
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.prepare import (
    HEAVIEST,
    HEAVIEST_ON_DEMAND,
    Vectorised,
    drop_group_loop,
    replace_suspends,
    split_position_loads,
    vectorise,
)
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.store.cache import default_store, digest_of

Sizes = tuple[int, int, int]
_FRAME_ALIGNMENT = 256
_IN_A_ROW = GroupShape(WIDTH, complete=True)
_ANYHOW = GroupShape(0)
_GENERATOR_ROOMS = (Path(lanes.__file__).parent.parent, Path(jit.__file__).parent)


class RegionsEngine:
    """Compiles programs to vector code; raises NotVectorisable for what it cannot do."""

    name = "regions"

    @functools.cached_property
    def version(self) -> str:
        return digest_of(source_digest(), jit.host_processor(), self.name)

    def compile(self, program: Program, *, patient: bool = False) -> RegionsExecutable:
        """`patient`: also code so long that compiling it takes many seconds."""
        module = parse(program.ir)
        answer_at_once(module, at_once=True)
        metadata, _ = prepare_module(module, program)
        replace_suspends(module)
        drop_group_loop(module)
        split = split_position_loads(module)
        ir = jit.normalised(str(module), combine=split)
        metadata["engine"] = self.name
        metadata["heaviest"] = HEAVIEST_ON_DEMAND if patient else HEAVIEST
        # Whether it can be done shows now; machine code is made when a launch asks for it.
        written = _write(ir, _IN_A_ROW, metadata["heaviest"])
        executable = self.load(zlib.compress(ir.encode(), 1), metadata)
        executable.written[_IN_A_ROW] = written
        return executable

    def load(self, payload: bytes, metadata: dict[str, Any]) -> RegionsExecutable:
        return RegionsExecutable(payload, metadata)


@functools.cache
def _generator() -> str:
    """What else vector code depends on: the passes that write it, and the processor."""
    files = [file for room in _GENERATOR_ROOMS for file in sorted(room.rglob("*.py"))]
    return digest_of(jit.host_processor(), llvmlite.__version__, *(f.read_bytes() for f in files))


class _Code:
    """A kernel's machine code for one shape of threadgroups."""

    def __init__(self, payload: bytes, has_barriers: bool, runtime: Runtime) -> None:
        self._loaded = jit.LoadedCode(payload)
        self.address = self._loaded.address(COROUTINE if has_barriers else THREAD_MAIN)
        self.frame_size = 0
        if has_barriers:
            size = runtime.frame_size(self.address)
            self.frame_size = -(-size // _FRAME_ALIGNMENT) * _FRAME_ALIGNMENT


@dataclass(frozen=True)
class _Written:
    """Vector code for one shape, before LLVM makes machine code of it."""

    text: str
    result: Vectorised

    def compiled(self) -> tuple[bytes, dict[str, Any]]:
        try:
            return self._machine_code(), asdict(self.result)
        except RuntimeError as error:
            raise EngineError(
                f"LLVM does not accept the vector code of a kernel: {str(error).strip()}\n"
                "This is a fault of anymetal; please report it with the kernel's source. Until it "
                f"is mended, {settings.ENGINE.variable}=coroutine runs the kernel."
            ) from error

    def _machine_code(self) -> bytes:
        text = jit.in_registers(self.text)
        if self.result.has_barriers:
            module = parse(text)
            make_coroutine(module, _FRAME_ALIGNMENT)
            text = str(module)
        return jit.object_code(text, level=1, vectorise=False)


def _write(ir: str, shape: GroupShape, heaviest: int) -> _Written:
    module = parse(ir)
    result = vectorise(module, shape, heaviest)
    return _Written(str(module), result)


class RegionsExecutable(CoroutineExecutable):
    """A vectorised kernel. Launches from several Python threads at once are fine."""

    def __init__(self, payload: bytes, metadata: dict[str, Any]) -> None:
        self._codes: dict[GroupShape, _Code | NotVectorisable] = {}
        self.written: dict[GroupShape, _Written] = {}
        self._lock = threading.Lock()
        self._fixed_parts: dict[Any, bytes] = {}
        super().__init__(payload, metadata)

    def _load_code(self) -> None:
        self._key = digest_of(self.payload)

    def code_for(self, shape: GroupShape) -> _Code:
        """The code for one shape, compiled now if this is the first launch that needs it.

        Raises NotVectorisable where the kernel is too much for this shape, though not for others.
        """
        with self._lock:
            if shape not in self._codes:
                self._codes[shape] = self._new_code(shape)
            code = self._codes[shape]
        if isinstance(code, NotVectorisable):
            raise NotVectorisable(str(code))
        return code

    def _new_code(self, shape: GroupShape) -> _Code | NotVectorisable:
        store, key = default_store(), digest_of(self._key, str(shape), _generator())
        entry = store.get("vectorised", key)
        if entry is not None:
            return _Code(entry.payload, entry.note["has_barriers"], self._runtime)
        try:
            written = self.written.pop(shape, None) or _write(
                zlib.decompress(self.payload).decode(), shape, self.metadata["heaviest"]
            )
        except NotVectorisable as error:
            return error
        code, note = written.compiled()
        store.put("vectorised", key, note, code)
        return _Code(code, note["has_barriers"], self._runtime)

    def _launch_part(
        self, threads: Sizes, group_size: Sizes, dynamic: dict[int, int] | None
    ) -> bytes:
        lengths = tuple((dynamic or {}).get(index, 0) for index in range(THREADGROUP_ARGUMENTS))
        ragged = any(t % g for t, g in zip(threads, group_size, strict=True))
        key = (group_size, ragged, lengths)
        part = self._fixed_parts.get(key)
        if part is None:
            part = self._fixed_parts[key] = self._new_part(group_size, ragged, lengths)
        return part

    def _new_part(self, group_size: Sizes, ragged: bool, lengths: tuple[int, ...]) -> bytes:
        shape = shape_of(group_size)
        one_row = group_size[1] == group_size[2] == 1
        if ragged and one_row:
            shape = replace(shape, complete=False)
        inner = edge = self.code_for(shape)
        if ragged and not one_row:
            edge = self.code_for(_ANYHOW)
        return KERNEL_PART.pack(
            inner.address,
            inner.frame_size,
            1,
            edge.address,
            edge.frame_size,
            self.static_threadgroup_memory_length,
            *lengths,
        )


def shape_of(group_size: Sizes) -> GroupShape:
    """How the lanes of each simdgroup lie in a whole threadgroup of this size."""
    x, y, z = group_size
    complete = x * y * z % WIDTH == 0
    if x % WIDTH == 0 or y * z == 1:
        return GroupShape(WIDTH, complete)
    if WIDTH % x == 0 and (z == 1 or x * y % WIDTH == 0):
        return GroupShape(x, complete)
    return GroupShape(0, complete)


__all__ = ["RegionsEngine", "RegionsExecutable", "shape_of"]
