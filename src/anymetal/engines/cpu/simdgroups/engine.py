"""The fast engine: a simdgroup runs as vectors of 32 values (passes/simdgroup).

Code depends on how lanes lie in a threadgroup: side by side in x, or in rows of 16, 8, 4 or 2.
What a launch needs is compiled when it is launched for the first time, and kept on disk like
everything else.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from anymetal import settings
from anymetal.engines.collector import collector_paused
from anymetal.engines.contract import Sizes
from anymetal.engines.cpu import jit
from anymetal.engines.cpu.executable import CpuExecutable
from anymetal.engines.cpu.layout import KERNEL_PART
from anymetal.engines.cpu.lowering import lower
from anymetal.engines.cpu.runtime import Runtime, runtime, start_early
from anymetal.engines.cpu.shared import SharedCode
from anymetal.engines.cpu.target import current
from anymetal.errors import EngineError, Unsuitable
from anymetal.ir import Module, parse
from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.nouns import Program, Target
from anymetal.passes import Pass, run
from anymetal.passes.check.debug_info import strip_metadata
from anymetal.passes.lower.machine import THREAD_MAIN, answer_at_once
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
from anymetal.passes.simdgroup.resume import stride_of
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

_PASSES: tuple[Pass, ...] = (replace_suspends, drop_group_loop)
_IN_A_ROW = GroupShape(WIDTH, complete=True)
ANYHOW = GroupShape(0)
_NO_LENGTHS = (0,) * THREADGROUP_ARGUMENTS
# Lines of IR. A kernel that is longer with its loops unrolled keeps them as they are.
_LONGEST_UNROLLED = 20_000
# A kernel that is very long itself takes the reference engine seconds too: its vector code may have
# so many times as many instructions, whatever the limit is.
_TIMES_AS_LONG = 6


class SimdgroupEngine:
    """Compiles programs to vector code; raises Unsuitable for what it cannot do."""

    name = "simdgroup"

    @property
    def target(self) -> Target:
        return current()

    def compile(
        self,
        program: Program,
        *,
        patient: bool = False,
        observe: Callable[[Module], None] | None = None,
    ) -> SimdgroupExecutable:
        """`observe` adds to the code that is vectorised."""
        ir, metadata = self.prepared(program, patient=patient, observe=observe)
        # Whether it can be done shows now; machine code is made when a launch asks for it.
        written = write(ir, _IN_A_ROW, metadata["heaviest"])
        executable = self.load(zlib.compress(ir.encode(), 1), metadata)
        executable.keep(written, _IN_A_ROW)
        return executable

    def prepared(
        self,
        program: Program,
        *,
        patient: bool,
        observe: Callable[[Module], None] | None = None,
        unroll: bool = True,
    ) -> tuple[str, dict[str, Any]]:
        """The IR that is vectorised, and the executable's metadata.

        `unroll`: loops over a thread's arrays, which is faster code and more of it.
        """
        module = parse(program.ir)
        answer_at_once(module, at_once=True)
        metadata, _ = lower(module, program)
        run(module, _PASSES)
        split = split_position_loads(module)
        ir = jit.normalised(str(module), combine=split, unroll=unroll)
        if unroll and ir.count("\n") > _LONGEST_UNROLLED:
            ir = jit.normalised(str(module), combine=split, unroll=False)
        if observe is not None:
            module = parse(ir)
            observe(module)
            strip_metadata(module)
            ir = str(module)
        metadata["engine"] = self.name
        heaviest = HEAVIEST_ON_DEMAND if patient else HEAVIEST
        metadata["heaviest"] = max(heaviest, _TIMES_AS_LONG * ir.count("\n"))
        return ir, metadata

    def load(self, payload: bytes, metadata: dict[str, Any]) -> SimdgroupExecutable:
        return SimdgroupExecutable(payload, metadata, runtime())

    def start_early(self) -> None:
        start_early()


class Code:
    """A kernel's machine code for one shape of threadgroups."""

    def __init__(self, loaded: jit.LoadedCode | SharedCode, frame_size: int) -> None:
        self._loaded = loaded
        self.symbol = self._loaded.address
        self.address = self.symbol(THREAD_MAIN)
        self.frame_size = stride_of(frame_size)


@dataclass(frozen=True)
class _Written:
    """Vector code for one shape, before LLVM makes machine code of it."""

    module: Module
    result: Vectorised

    def compiled(self, *, shared: bool = False) -> tuple[bytes, dict[str, Any]]:
        try:
            is_long = self.result.is_long
            code = jit.vector_code(str(self.module), shared=shared, is_long=is_long)
        except RuntimeError as error:
            raise EngineError(
                f"LLVM does not accept the vector code of a kernel: {str(error).strip()}\n"
                "This is a fault of anymetal; please report it with the kernel's source. Until it "
                f"is mended, {settings.ENGINE.variable}=coroutine runs the kernel."
            ) from error
        return code, asdict(self.result)


def write(ir: str, shape: GroupShape, heaviest: int) -> _Written:
    """Vector code for a shape; raises Unsuitable where it cannot be done."""
    module = parse(ir)
    try:
        result = vectorise(module, shape, heaviest)
    except NotVectorisable as error:
        raise Unsuitable(str(error)) from None
    return _Written(module, result)


class SimdgroupExecutable(CpuExecutable):
    """A vectorised kernel: machine code for each shape of threadgroups it has met."""

    def __init__(self, payload: bytes, metadata: dict[str, Any], runtime: Runtime) -> None:
        super().__init__(payload, metadata, runtime)
        self._codes: dict[GroupShape, Code | Unsuitable] = {}
        self._written: dict[GroupShape, _Written] = {}
        self._lock = threading.Lock()
        self._fixed_parts: dict[Any, bytes] = {}

    @functools.cached_property
    def _key(self) -> str:
        return digest_of(self.payload, fingerprint("tools", "processor", "compiler"))

    def loaded(self) -> Iterator[Code]:
        """The code of every shape that was launched."""
        with self._lock:
            yield from [code for code in self._codes.values() if isinstance(code, Code)]

    def prepare(self, threads: Sizes, group_size: Sizes, dynamic: dict[int, int] | None) -> None:
        """Make the code that a launch of this shape needs."""
        self._fixed_part(threads, group_size, dynamic)

    def code_for(self, shape: GroupShape) -> Code:
        """The code for one shape, compiled now if this is the first launch that needs it.

        Raises Unsuitable where the kernel is too much for this shape, though not for others.
        """
        with self._lock:
            if shape not in self._codes:
                self._codes[shape] = self._new_code(shape)
            code = self._codes[shape]
        if isinstance(code, Unsuitable):
            raise Unsuitable(str(code))
        return code

    def _new_code(self, shape: GroupShape) -> Code | Unsuitable:
        store, key = default_store(), digest_of(self._key, str(shape))
        entry = store.get("vectorised", key)
        if entry is not None:
            return Code(jit.LoadedCode(entry.payload), entry.note["frame_size"])
        with collector_paused():
            try:
                written = self.written_for(shape)
            except Unsuitable as error:
                return error
            code, note = written.compiled()
        store.put("vectorised", key, note, code)
        return Code(jit.LoadedCode(code), note["frame_size"])

    def keep(self, written: _Written, shape: GroupShape) -> None:
        """The vector code for a shape is here before its first launch."""
        self._written[shape] = written

    def written_for(self, shape: GroupShape) -> _Written:
        """The vector code for a shape, once as it was kept; raises Unsuitable as `write` does."""
        kept = self._written.pop(shape, None)
        return kept or write(
            zlib.decompress(self.payload).decode(), shape, self.metadata["heaviest"]
        )

    def _fixed_part(
        self, threads: Sizes, group_size: Sizes, dynamic: dict[int, int] | None
    ) -> bytes:
        lengths = _NO_LENGTHS
        if dynamic:
            lengths = tuple(dynamic.get(index, 0) for index in range(THREADGROUP_ARGUMENTS))
        (x, y, z), (columns, rows, layers) = threads, group_size
        ragged = bool(x % columns or y % rows or z % layers)
        key = (group_size, ragged, lengths)
        part = self._fixed_parts.get(key)
        if part is None:
            part = self._fixed_parts[key] = self._new_part(group_size, ragged, lengths)
        return part

    def _new_part(self, group_size: Sizes, ragged: bool, lengths: tuple[int, ...]) -> bytes:
        inner, edge = (self.code_for(shape) for shape in shapes_for(group_size, ragged=ragged))
        return KERNEL_PART.pack(
            inner.address,
            inner.frame_size,
            1,
            edge.address,
            edge.frame_size,
            self.static_threadgroup_memory_length,
            *lengths,
        )


def shapes_for(group_size: Sizes, *, ragged: bool) -> tuple[GroupShape, GroupShape]:
    """Of whole threadgroups, and of those that the grid's edges cut."""
    shape = shape_of(group_size)
    if not ragged:
        return shape, shape
    if group_size[1] == group_size[2] == 1:
        cut = replace(shape, complete=False)
        return cut, cut
    return shape, ANYHOW


def shape_of(group_size: Sizes) -> GroupShape:
    """How the lanes of each simdgroup lie in a whole threadgroup of this size."""
    x, y, z = group_size
    complete = x * y * z % WIDTH == 0
    if x % WIDTH == 0 or y * z == 1:
        return GroupShape(WIDTH, complete)
    if WIDTH % x == 0 and (z == 1 or x * y % WIDTH == 0):
        return GroupShape(x, complete)
    return GroupShape(0, complete)
