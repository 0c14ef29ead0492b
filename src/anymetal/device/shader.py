"""torch.mps.compile_shader of the virtual device: what torch's takes, and nothing more.

A program that runs here must run on a Mac as it is. What only ours has (macros, fast math, function
constants, counts, tensors in the host's memory) is on `anymetal.compile_shader`, which takes
tensors of the virtual device too.
"""

from __future__ import annotations

from typing import Any

import torch

from anymetal.launch.bind import Casts
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import ShaderLibrary
from anymetal.launch.shader import compile_shader as compile_ours
from anymetal.launch.shape import Extent


class TorchKernel:
    """One kernel, with the call and the properties that torch's kernels have."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __call__(
        self,
        *args: Any,
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Casts = None,
        error_buf_idx: int | None = None,
    ) -> None:
        for argument in args:
            _refuse_host_tensors(argument)
        self._kernel(
            *args,
            threads=threads,
            group_size=group_size,
            arg_casts=arg_casts,
            error_buf_idx=error_buf_idx,
        )

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._kernel.max_threads_per_threadgroup

    @property
    def thread_execution_width(self) -> int:
        return self._kernel.thread_execution_width

    @property
    def static_thread_group_memory_length(self) -> int:
        return self._kernel.static_thread_group_memory_length


class TorchLibrary:
    """The kernels of one source, as attributes."""

    def __init__(self, library: ShaderLibrary) -> None:
        self._library = library

    def __getattr__(self, name: str) -> TorchKernel:
        if name.startswith("__") or name == "_library":
            raise AttributeError(name)
        return TorchKernel(self._library.specialize(name))

    def __dir__(self) -> list[str]:
        return dir(self._library)


def compile_shader(source: str) -> TorchLibrary:
    """What stands in the place of torch.mps.compile_shader."""
    return TorchLibrary(compile_ours(source))


def _refuse_host_tensors(argument: object) -> None:
    """torch passes a CPU tensor without dimensions by value, and takes no other one."""
    if isinstance(argument, torch.Tensor):
        if argument.device.type == "cpu" and argument.dim() > 0:
            raise RuntimeError("Passed CPU tensor to MPS op")
    elif isinstance(argument, list | tuple):
        for element in argument:
            _refuse_host_tensors(element)
