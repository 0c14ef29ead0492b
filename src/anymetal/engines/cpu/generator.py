"""LLVM IR goes in, object code comes out: by clang, in a process of its own.

The LLVM in llvmlite's wheels is built with assertions: the same code takes it a fifth longer. And
clang leaves nothing in this process, and ends when its time is up.
"""

from __future__ import annotations

import os
from pathlib import Path

from anymetal import settings
from anymetal.engines.llvm import llvm
from anymetal.errors import EngineError
from anymetal.ir import parse
from anymetal.machine import processor
from anymetal.msl import clang
from anymetal.msl.process import Exceeded, run_bounded
from anymetal.passes.lower import bfloat

# LLVM gives up on the question whether a pointer escapes after 100 uses, and the frame of a checked
# kernel has more: matmul 512^3 would reload six values of its frame in every iteration.
_OPTIONS = ("-funroll-loops", "-mllvm", "-capture-tracking-max-uses-to-explore=4000")
_VECTORISED = ("-vectorize-loops", "-vectorize-slp")
_AS_IT_IS = "-disable-llvm-passes"


def object_code(ir: str, level: int, *, shared: bool) -> bytes:
    """A module optimised and compiled for the processor; `shared`: for a shared library.

    Raises RuntimeError with LLVM's words where it does not accept the module.
    """
    flags = [f"-O{level}", *_OPTIONS, *(_VECTORISED if level > 1 else ())]
    if "bfloat" in ir:
        ir = _without_traps(ir if level == 0 else _run(ir, ["-emit-llvm", *flags]).decode())
        flags.append(_AS_IT_IS)
    return _run(ir, ["-emit-obj", *flags, *_addressing(shared)])


def object_code_as_it_is(ir: str, level: int = 0, *, shared: bool = False) -> bytes:
    """A module compiled without another look at it; from level 1 on registers are chosen with
    care."""
    flags = ["-emit-obj", f"-O{level}", _AS_IT_IS, *_addressing(shared)]
    return _run(_without_traps(ir), flags)


def _without_traps(ir: str) -> str:
    """The module, with what LLVM's code generator cannot do replaced."""
    has_vectors = processor.has_bfloats()
    if not bfloat.needs_bits(ir, has_vectors=has_vectors):
        return ir
    module = parse(ir)
    bfloat.do_on_bits(module, has_vectors=has_vectors)
    return str(module)


def _addressing(shared: bool) -> list[str]:
    """Code that a loader puts anywhere, or that this process loads far away from all else."""
    if shared:
        return ["-mrelocation-model", "pic", "-pic-level", "2"]
    model = "pic" if processor.is_x86() or "darwin" in llvm.get_process_triple() else "static"
    return ["-mcmodel=large", "-mrelocation-model", model]


def _run(ir: str, flags: list[str]) -> bytes:
    name, features = processor.name_and_features()
    command = [*clang.executable(), "-cc1", "-triple", llvm.get_process_triple(), "-x", "ir"]
    command += ["-Wno-override-module", "-target-cpu", name]
    for feature in filter(None, features.split(",")):
        command += ["-target-feature", feature]
    limit = settings.COMPILE_LIMIT.value()
    what = f"making machine code of this kernel ({len(ir) >> 10} KiB of LLVM IR)"
    try:
        done = run_bounded(
            [*command, *flags, "-o", "-", "-"],
            ir.encode(),
            folder=Path.cwd(),
            environment={**os.environ, "LC_ALL": "C"},
            seconds=limit,
        )
    except Exceeded as error:
        raise EngineError(f"{what} {error} ({settings.COMPILE_LIMIT.variable})") from None
    messages = done.messages.decode(errors="replace")
    if done.status < 0 or "PLEASE submit a bug report" in messages:
        raise EngineError(f"{what} failed (status {done.status}):\n{messages[-2000:]}")
    if done.status:
        raise RuntimeError(messages[-4000:])
    return done.output
