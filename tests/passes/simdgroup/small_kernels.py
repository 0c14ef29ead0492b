"""Small kernels in LLVM's IR: vectorised to text, or run for one simdgroup."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterable, Sequence

import llvmlite.binding as llvm

from anymetal.engines.cpu import jit
from anymetal.ir import Module, parse
from anymetal.machine import layout
from anymetal.passes.lower.machine import THREAD_MAIN
from anymetal.passes.simdgroup.kernel import Kernel, read_kernel
from anymetal.passes.simdgroup.prepare import HEAVIEST, Vectorised, vectorise
from anymetal.passes.simdgroup.resume import stride_of
from anymetal.passes.simdgroup.rules import GroupShape

_FRAME_ALIGNMENT = 256
COMPLETE = GroupShape(32, complete=True)
PARTIAL = GroupShape(32, complete=False)

LANE = """
  %lane.place = getelementptr i8, ptr %self, i64 4
  %lane = load i32, ptr %lane.place, align 4"""
INDEX = """
  %index.place = getelementptr i8, ptr %self, i64 20
  %index = load i32, ptr %index.place, align 4
  %i = zext i32 %index to i64"""
# Two buffers: in and out.
BUFFERS = """
  %in = load ptr, ptr %buffers, align 8
  %out.place = getelementptr i8, ptr %buffers, i64 8
  %out = load ptr, ptr %out.place, align 8"""
# An integer that differs from lane to lane, nobody knows how.
VARYING = (
    BUFFERS
    + INDEX
    + """
  %x.place = getelementptr i32, ptr %in, i64 %i
  %x = load i32, ptr %x.place, align 4"""
)
# Where %x is odd by one way, else by the other; what follows stands in %join.
TWO_WAYS = """
  %odd = trunc i32 %x to i1
  br i1 %odd, label %yes, label %no
yes:
  br label %join
no:
  br label %join
join:"""


def stored(kind: str, value: str) -> str:
    """Code that writes a value to the lane's place in `%out`; needs BUFFERS and INDEX."""
    return f"""
  %out.lane = getelementptr {kind}, ptr %out, i64 %i
  store {kind} {value}, ptr %out.lane, align 4
  ret void"""


def module_of(body: str, before: str = "") -> Module:
    lines = [line for line in body.split("\n") if line.strip()]
    if not lines[0].endswith(":"):
        lines.insert(0, "entry:")
    head = f"define void @{THREAD_MAIN}(ptr %buffers, ptr %self) {{"
    return parse("\n".join([*before.strip().split("\n"), head, *lines, "}", ""]))


def kernel_of(body: str, before: str = "") -> Kernel:
    module = module_of(body, before)
    return read_kernel(module, module.function(THREAD_MAIN))


def vectorised(
    body: str, shape: GroupShape = COMPLETE, before: str = "", heaviest: int = HEAVIEST
) -> str:
    """The function that runs 32 lanes; LLVM has looked at it."""
    return vectorised_with_note(body, shape, before, heaviest)[0]


def vectorised_with_note(
    body: str, shape: GroupShape = COMPLETE, before: str = "", heaviest: int = HEAVIEST
) -> tuple[str, Vectorised]:
    module = module_of(body, before)
    note = vectorise(module, shape, heaviest)
    text = str(module)
    llvm.parse_assembly(text).verify()
    return text, note


def blocks_of(text: str) -> dict[str, list[str]]:
    """The vectorised function's blocks by label."""
    blocks: dict[str, list[str]] = {}
    lines = text[text.index(f"@{THREAD_MAIN}(") :].split("\n")[1:]
    for line in lines[: lines.index("}")]:
        label = re.match(r"([-\w.]+):", line)
        if label:
            blocks[label.group(1)] = []
        elif line.strip():
            blocks[list(blocks)[-1]].append(line.strip())
    return blocks


def full_blocks(text: str) -> list[str]:
    """All instructions of the full copy, from where every branch inside it goes."""
    names = [name for name in blocks_of(text) if not name.startswith(("masked", "am.", "body"))]
    return [line for name in names for line in blocks_of(text)[name]]


class Simdgroup:
    """The memory of one simdgroup, or of `count` that lie in a row, and buffers of 4-byte words."""

    def __init__(self, threads: int = 32, *, is_long: bool = False, count: int = 1) -> None:
        self._threads = threads
        self._is_long = is_long
        self._count = count

    def run(self, text: str, buffers: Sequence[ctypes.Array], frame_size: int = 0) -> int:
        """Calls it until it has finished; returns how often it waited."""
        return self.loaded(text)(buffers, frame_size)

    def loaded(self, text: str) -> Callable[..., int]:
        """The same for several runs of one code."""
        code = jit.vector_code(text, is_long=self._is_long)
        return functools.partial(self._run, jit.LoadedCode(code))

    def _run(
        self, code: jit.LoadedCode, buffers: Sequence[ctypes.Array], frame_size: int = 0
    ) -> int:
        simd = layout.Simdgroup(threads=self._threads)
        size = (32 * self._count, 1, 1)
        group = layout.Group(size=size, nominal_size=size, groups=(1, 1, 1), simdgroups=self._count)
        first = (layout.Thread * self._count)(
            *(
                layout.Thread(
                    site=layout.Wait.THREADGROUP_BARRIER,
                    position=(32 * number, 0, 0),
                    index=32 * number,
                    simd=ctypes.addressof(simd),
                    group=ctypes.addressof(group),
                )
                for number in range(self._count)
            )
        )
        table = (ctypes.c_void_p * max(len(buffers), 1))(*map(ctypes.addressof, buffers))
        kind = ctypes.CFUNCTYPE(ctypes.c_uint32, *[ctypes.c_void_p] * 3)
        memory = (ctypes.c_char * (self._count * stride_of(frame_size) + _FRAME_ALIGNMENT))()
        frame = -(-ctypes.addressof(memory) // _FRAME_ALIGNMENT) * _FRAME_ALIGNMENT
        call = functools.partial(
            kind(code.address(THREAD_MAIN)), ctypes.addressof(table), ctypes.addressof(first)
        )
        if not frame_size:
            call(frame)
            return 0
        waits = 0
        while call(frame):
            waits += 1
        return waits


def words(values: Iterable[int]) -> ctypes.Array:
    listed = list(values)
    return (ctypes.c_int32 * len(listed))(*listed)


def results(
    body: str,
    values: Iterable[int] = range(32),
    count: int = 64,
    threads: int = 32,
    before: str = "",
) -> list[int]:
    """What a kernel writes to its second buffer, given its first."""
    out = words([0] * count)
    shape = COMPLETE if threads == 32 else PARTIAL
    Simdgroup(threads).run(vectorised(body, shape, before), [words(values), out])
    return list(out)
