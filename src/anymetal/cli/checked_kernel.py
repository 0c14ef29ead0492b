"""One kernel of a Metal file or a metallib, called as the command line describes and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer

from anymetal.checker.context import ActiveCheck
from anymetal.checker.report import Report
from anymetal.cli.kernel_arguments import Value, parse_arguments, parse_constant, parse_sizes
from anymetal.cli.sources import Options, source_of
from anymetal.engines.compiler import Compiler
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import ShaderLibrary, compile_shader
from anymetal.nouns import ConstantValue, MetallibSource, Source

_MOST_LISTED = 100


@dataclass(frozen=True)
class KernelCall:
    """One launch as the command line describes it."""

    file: Path
    options: Options
    kernel: str | None
    arguments: Sequence[str]
    threads: str | None
    group_size: str | None
    threadgroup_memory: Sequence[str]
    constants: Sequence[str]
    outputs: Sequence[int]
    seed: int


@dataclass(frozen=True)
class PreparedCall:
    """A kernel, and what it is called with."""

    kernel: Kernel
    arguments: list[Value]
    keywords: dict[str, Any]

    def written(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        """The tensors among arguments that the kernel may write to."""
        buffers = {a.index: a for a in self.kernel.arguments if a.role == "buffer"}
        return [
            argument
            for index, argument in enumerate(arguments)
            if isinstance(argument, torch.Tensor)
            and argument.dim()
            and index in buffers
            and not buffers[index].is_const
        ]


def prepared(call: KernelCall) -> PreparedCall:
    """Compile the kernel and read the words of the command line."""
    source = source_of(call.file, call.options)
    arguments = parse_arguments(call.arguments, call.seed)
    threads = parse_sizes("--threads", call.threads) if call.threads else None
    group_size = parse_sizes("--group-size", call.group_size) if call.group_size else None
    memory = {int(slot): int(size) for slot, size in _pairs("--memory", call.threadgroup_memory)}
    library = _library(source)
    name = call.kernel or _only_kernel(call.file, dir(library))
    kernel = library.specialize(name, _constants(call.constants))
    keywords = {"threads": threads, "group_size": group_size, "threadgroup_memory": memory or None}
    given = {keyword: value for keyword, value in keywords.items() if value is not None}
    return PreparedCall(kernel, arguments, given)


def _library(source: Source) -> ShaderLibrary:
    if isinstance(source, MetallibSource):
        return ShaderLibrary(Compiler(source))
    return compile_shader(
        source.text,
        name=source.name,
        include_dirs=source.include_dirs,
        defines=dict(source.defines),
        language=source.language,
    )


def launch(call: KernelCall, report: Report, nan: bool) -> None:
    """Run the kernel once; findings go to the report."""
    ready = prepared(call)
    outputs = [_output(ready.arguments, index) for index in call.outputs] or None
    with ActiveCheck(report, outputs, nan):
        ready.kernel(*ready.arguments, **ready.keywords)


def _only_kernel(file: Path, names: Sequence[str]) -> str:
    if len(names) != 1:
        known = ", ".join(names[:_MOST_LISTED]) or "none"
        known += ", ..." if len(names) > _MOST_LISTED else ""
        raise typer.BadParameter(f"{file} has {len(names)} kernels: pass --kernel, one of {known}")
    return names[0]


def _output(arguments: Sequence[object], index: int) -> object:
    if not 0 <= index < len(arguments) or not hasattr(arguments[index], "data_ptr"):
        raise typer.BadParameter(f"--output {index}: argument {index} is no tensor")
    return arguments[index]


def _constants(words: Sequence[str]) -> Mapping[int | str, ConstantValue]:
    return {
        int(name) if name.isdigit() else name: parse_constant(f"--constant {name}={text}", text)
        for name, text in _pairs("--constant", words)
    }


def _pairs(option: str, words: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for word in words]
    for (name, separator, value), word in zip(pairs, words, strict=True):
        if not (name and separator and value):
            raise typer.BadParameter(f"{option} {word}: expected NAME=VALUE")
    return [(name, value) for name, _, value in pairs]
