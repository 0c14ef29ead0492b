"""Libraries and pipelines of extensions: Metal source in, kernels of ours that encoders launch."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from anymetal.checker.inline_source import UNNAMED
from anymetal.extension.records import BUFFERS, LaunchRecord, PipelineFacts
from anymetal.launch.kernel import Addressed, Kernel
from anymetal.launch.metallib import load_metallib
from anymetal.launch.shader import ShaderLibrary, compile_shader

_METALLIB = b"MTLB"


class Kernels:
    """Everything that extensions have compiled, by the numbers they know it by."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._libraries: dict[int, ShaderLibrary] = {}
        self._pipelines: dict[int, Kernel] = {}
        self._files: dict[str, Path] = {}

    def add_file(self, path: Path) -> None:
        """A source that an extension may hand over as text: findings then name its lines."""
        self._files[path.read_text(encoding="utf-8").strip()] = path

    def compile(self, data: bytes, macros: str, fast_math: bool, is_data: bool) -> int:
        if is_data and data.startswith(_METALLIB):
            return self._kept(load_metallib(data))
        text = data.decode("utf-8")
        file = self._files.get(text.strip())
        defines = dict(line.split("=", 1) for line in macros.splitlines())
        library = compile_shader(
            file.read_text(encoding="utf-8") if file else text,
            defines=defines,
            fast_math=fast_math,
            name=str(file) if file else UNNAMED,
        )
        return self._kept(library)

    def _kept(self, library: ShaderLibrary) -> int:
        number = next(self._numbers)
        self._libraries[number] = library
        return number

    def names(self, library: int) -> list[str]:
        return dir(self._libraries[library])

    def pipeline(self, library: int, name: str, constants: str, facts: PipelineFacts) -> int:
        values: dict[int | str, Any] = {
            int(key) if key.isdigit() else key: value
            for key, value in json.loads(constants).items()
        }
        kernel = self._libraries[library].specialize(name, values)
        number = next(self._numbers)
        self._pipelines[number] = kernel
        _describe(kernel, facts)
        return number

    def launch(self, pipeline: int, record: LaunchRecord, table: int) -> None:
        buffers: list[Addressed] = [
            (index, record.addresses[index], record.extents[index], record.sizes[index])
            for index in range(BUFFERS)
            if record.addresses[index]
        ]
        for i in range(record.reachable_count):
            start, size = record.reachable[2 * i], record.reachable[2 * i + 1]
            buffers.append((None, start, size, size))
        lengths = {i: length for i, length in enumerate(record.lengths) if length}
        x, y, z = record.grid
        width, height, depth = record.group
        self._pipelines[pipeline].at_addresses(
            table, buffers, (x, y, z), (width, height, depth), lengths
        )


def _describe(kernel: Kernel, facts: PipelineFacts) -> None:
    facts.max_threads = kernel.max_threads_per_threadgroup
    facts.width = kernel.thread_execution_width
    facts.static_memory = kernel.static_thread_group_memory_length
    for argument in kernel.arguments:
        index = argument.index
        if index is None:
            continue
        if argument.role == "threadgroup":
            facts.threadgroup |= 1 << index
        elif argument.role == "buffer" and index in kernel.used_buffers:
            facts.used |= 1 << index
            facts.least_bytes[index] = argument.element_size
            if argument.space == "device" and not argument.is_const:
                facts.written |= 1 << index
