"""A workload in, a call of hand-vectorised C out: how fast these processors can do the work.

kernels/NAME.c has a function that does a range of the workload's pieces. It is compiled for this
machine and called by as many Python threads as torch uses, each with a contiguous range.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from anymetal.evidence.timing import Call
from workloads import KERNELS, Workload

COMMAND = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC"]
FLAGS = ["-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512"]


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="anymetal-ceiling-")


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def compiled(path: Path) -> Any:
    """The function of the file, called like the file."""
    library = Path(_folder().name) / f"{path.stem}.so"
    command = [*COMMAND, *FLAGS, "-I", str(KERNELS), str(path), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{path.name} does not compile:\n{done.stderr}")
    function = getattr(ctypes.CDLL(str(library)), path.stem)
    function.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    function.restype = None
    return function


def ranges(pieces: int, threads: int) -> list[tuple[int, int]]:
    """Contiguous ranges, as equal as they can be."""
    cuts = [pieces * part // threads for part in range(threads + 1)]
    return list(itertools.pairwise(cuts))


def make_call(workload: Workload) -> Call:
    function = compiled(workload.path("c"))
    pointers, keep = bound(workload)
    threads = torch.get_num_threads()
    parts = ranges(workload.pieces, threads)

    def run(part: tuple[int, int], _kept: object = keep) -> None:
        function(pointers, *part)

    def call() -> None:
        if workload.cleared:
            workload.output.zero_()
        # ctypes gives the interpreter's lock away, so these run at the same time.
        list(_pool(threads).map(run, parts))

    return call


def bound(workload: Workload) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
    """The addresses of the arguments, scalars included, and what must live as long as they do."""
    keep: list[Any] = []
    addresses = []
    for argument in workload.arguments:
        if isinstance(argument, torch.Tensor):
            addresses.append(argument.data_ptr())
        else:
            holder = ctypes.create_string_buffer(argument.tobytes())
            keep.append(holder)
            addresses.append(ctypes.addressof(holder))
    array = (ctypes.c_void_p * len(addresses))(*addresses)
    keep.append(workload)
    return array, keep
