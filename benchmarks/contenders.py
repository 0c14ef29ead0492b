"""A workload in, one call per engine out: anymetal's engines, torch on the CPU, PoCL, C."""

from __future__ import annotations

import atexit
import functools
import importlib
import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import anymetal
import ceiling
from anymetal import settings
from anymetal.evidence.timing import Call
from workloads import Workload

ENGINE_VARIABLE = "ANYMETAL_ENGINE"
COROUTINE = "coroutine"
SIMDGROUP = "simdgroup"

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
        """Run over a spoiled output, so that an element left out cannot pass."""
        workload.spoil()
        self.call()
        result = self.result()
        assert isinstance(result, torch.Tensor)
        return result


def engine_names() -> tuple[str, ...]:
    """The engines of this version, the reference first: those the setting can choose from."""
    known = any(setting.variable == ENGINE_VARIABLE for setting in settings.ALL)
    return (COROUTINE, SIMDGROUP) if known else (COROUTINE,)


def arguments_of(workload: Workload) -> list[torch.Tensor | float]:
    return [a if isinstance(a, torch.Tensor) else a.item() for a in workload.arguments]


def on_engine(workload: Workload, engine: str, fast_math: bool = False) -> Contender:
    with mock.patch.dict(os.environ, {ENGINE_VARIABLE: engine}):
        library = anymetal.compile_shader(workload.source("metal"), fast_math=fast_math)
        kernel = getattr(library, workload.name)
    arguments = arguments_of(workload)

    def call() -> None:
        if workload.cleared:
            workload.output.zero_()
        kernel(*arguments, threads=workload.threads, group_size=workload.group_size)

    return Contender(call, lambda: workload.output)


def coroutine(workload: Workload, fast_math: bool = False) -> Contender:
    return on_engine(workload, COROUTINE, fast_math)


_salts = itertools.count()


@functools.cache
def cache_of_compiles() -> Path:
    """A cache with precompiled headers in it and, before each compile, no machine code."""
    folder = Path(tempfile.mkdtemp(prefix="anymetal-benchmark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def compile_call(workload: Workload, engine: str) -> Call:
    """Each call compiles the kernel as if for the first time and runs one threadgroup.

    The launch belongs to it: some machine code is made only then. The name in the source is new
    each time, but two sources may come to the same code, so stored code is removed.
    """
    arguments = arguments_of(workload)
    folder = cache_of_compiles()
    variables = {ENGINE_VARIABLE: engine, settings.CACHE_DIR.variable: str(folder)}

    def call() -> None:
        for made in folder.glob("*/vectorised"):
            shutil.rmtree(made)
        salt = f"salt_{os.getpid()}_{next(_salts)}"
        text = f"{workload.source('metal')}\nconstant constexpr int {salt} = 0;\n"
        with mock.patch.dict(os.environ, variables):
            kernel = getattr(anymetal.compile_shader(text), workload.name)
            kernel(*arguments, threads=workload.group_size, group_size=workload.group_size)

    return call


def hand_written(workload: Workload) -> Contender:
    return Contender(ceiling.make_call(workload), lambda: workload.output)


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
            if workload.cleared:
                size = workload.output.nbytes
                self.opencl.enqueue_fill_buffer(self.queue, output, np.int32(0), 0, size)
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
