"""A workload in, one call per engine out: the coroutine engine, torch on the CPU, PoCL."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import anymetal
from timing import Call
from workloads import Workload

INSTALL_POCL = (
    "PoCL is not installed, so its column is missing. On Debian or Ubuntu:\n"
    "    apt-get install pocl-opencl-icd && pip install pyopencl"
)
# Strict is the like-for-like build: the coroutine engine contracts too and reorders nothing.
# Relaxed lets PoCL reorder sums, which vectorises them; goals are held against the faster one.
POCL_BUILDS = {
    "PoCL": ["-cl-mad-enable"],
    "PoCL relaxed": ["-cl-fast-relaxed-math"],
}


@dataclass(frozen=True)
class Contender:
    """One engine ready to run one workload; `result` reads what the last call computed."""

    call: Call
    result: Call

    def run_fresh(self, workload: Workload) -> torch.Tensor:
        """Run over an output full of NaN, so that an element left out cannot pass."""
        workload.output.fill_(float("nan"))
        self.call()
        result = self.result()
        assert isinstance(result, torch.Tensor)
        return result


def coroutine(workload: Workload, fast_math: bool = False) -> Contender:
    library = anymetal.compile_shader(workload.source("metal"), fast_math=fast_math)
    kernel = getattr(library, workload.name)
    arguments = [a if isinstance(a, torch.Tensor) else a.item() for a in workload.arguments]

    def call() -> None:
        kernel(*arguments, threads=workload.threads, group_size=workload.group_size)

    return Contender(call, lambda: workload.output)


def torch_cpu(workload: Workload) -> Contender:
    return Contender(workload.torch_call, workload.torch_call)


class Pocl:
    """PoCL's CPU device, if the machine has one."""

    def __init__(self) -> None:
        # pyopencl's own cache of binaries only adds a warning about its directory.
        os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
        self.opencl: Any = importlib.import_module("pyopencl")
        platforms = [p for p in self.opencl.get_platforms() if "Portable" in p.name]
        if not platforms:
            raise LookupError("no PoCL platform")
        self.version: str = platforms[0].version
        self.context = self.opencl.Context(platforms[0].get_devices()[:1])
        self.queue = self.opencl.CommandQueue(self.context)

    def contender(self, workload: Workload, options: list[str]) -> Contender:
        program = self.opencl.Program(self.context, workload.source("cl")).build(options)
        kernel = self.opencl.Kernel(program, workload.name)
        bound = [self.bound(a) for a in workload.arguments]
        output = bound[[a is workload.output for a in workload.arguments].index(True)]

        def call() -> None:
            # Passing the arguments each time keeps the buffers alive: a kernel does not own them.
            kernel(self.queue, workload.threads, workload.group_size, *bound)
            self.queue.finish()

        def result() -> torch.Tensor:
            self.opencl.enqueue_copy(self.queue, workload.output.numpy(), output)
            return workload.output

        return Contender(call, result)

    def bound(self, argument: torch.Tensor | np.generic) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        flags = self.opencl.mem_flags
        return self.opencl.Buffer(
            self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=argument.numpy()
        )


def find_pocl() -> Pocl | None:
    try:
        return Pocl()
    except Exception as error:  # pyopencl raises its own LogicError where no driver is installed
        if isinstance(error, ImportError | LookupError) or "PLATFORM_NOT_FOUND" in str(error):
            return None
        raise
