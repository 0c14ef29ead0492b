"""A .metal file of the library: its text with our shared headers in it, compiled once a device."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import torch

from anymetal.launch import virtual
from anymetal.launch.guarded import GuardedKernel
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import compile_shader
from anymetal.launch.structs import Structs, reflected
from anymetal.nouns import Source

FOLDER = Path(__file__).parent.parent
_INCLUDE = re.compile(r'^#include "(shared/[\w.]+)"\n', re.MULTILINE)

SUFFIXES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}


class KernelFile:
    """Kernels by name for the device of their tensors.

    torch.mps.compile_shader takes one string, so the shared headers are put into the text here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(FOLDER)) if path.is_relative_to(FOLDER) else path.name

    @functools.cached_property
    def text(self) -> str:
        return _flattened(self.path, set())

    @functools.cache  # noqa: B019  (one KernelFile a file, alive as long as the process)
    def constant(self, name: str) -> int:
        """The value of `constant constexpr uint name`, as the kernels have it."""
        found = re.search(rf"constant constexpr uint {name} = (\d+);", self.text)
        if found is None:
            raise KeyError(f"{self.name} has no constant {name!r}")
        return int(found.group(1))

    def kernel(self, name: str, device: torch.device) -> GuardedKernel:
        """The kernel called `name`, for tensors on `device`."""
        return self._guarded(name, device.type)

    def instance(self, template: str, *arguments: Any, device: torch.device) -> GuardedKernel:
        """The kernel that a template gives for these arguments, compiled when first needed."""
        words = tuple(str(argument).lower() for argument in arguments)
        return self._instance(template, words, device.type)

    @functools.cache  # noqa: B019  (one KernelFile a file, alive as long as the process)
    def _guarded(self, name: str, device_type: str) -> GuardedKernel:
        return self._kernel(self._library(device_type), name, self.text)

    @functools.cache  # noqa: B019
    def _instance(self, template: str, words: tuple[str, ...], device_type: str) -> GuardedKernel:
        name = re.sub(r"\W+", "_", "_".join((template, *words)))
        function = f"{template}<{', '.join(words)}>"
        line = f'template [[host_name("{name}")]] [[kernel]] decltype({function}) {function};\n'
        return self._kernel(self._compiled(device_type, self.text + line), name, self.text + line)

    def _kernel(self, library: Any, name: str, text: str) -> GuardedKernel:
        kernel = getattr(library, name)
        if not isinstance(kernel, Kernel):  # torch's own takes tensors, numbers and lists
            kernel = Structs(kernel, name, reflected(Source(text, self.name))[name])
        return GuardedKernel(kernel, name)

    @functools.cache  # noqa: B019
    def _library(self, device_type: str) -> Any:
        return self._compiled(device_type, self.text)

    def _compiled(self, device_type: str, text: str) -> Any:
        if device_type == "mps" and not virtual.is_enabled():
            return torch.mps.compile_shader(text)
        # Address spaces of our own kernels are a matter of the tests, not of every instance.
        return compile_shader(text, name=self.name, strict=False)


@functools.cache
def kernel_file(path: Path | str) -> KernelFile:
    """The one KernelFile of a file: all operators of a source share its compiled library.

    A relative path starts at the folder of the operators.
    """
    absolute = FOLDER / path
    return KernelFile(absolute) if absolute == path else kernel_file(absolute)


def forget_kernels() -> None:
    """Libraries and kernels of all files are asked for again when they are next needed."""
    for known in (KernelFile._guarded, KernelFile._instance, KernelFile._library):
        known.cache_clear()


def _flattened(path: Path, seen: set[Path]) -> str:
    def inlined(match: re.Match[str]) -> str:
        header = FOLDER / match.group(1)
        if header in seen:
            return ""
        seen.add(header)
        return _flattened(header, seen)

    return _INCLUDE.sub(inlined, path.read_text())
