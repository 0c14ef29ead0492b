"""Modules inside LLVM itself, by way of llvmlite: opened, changed by passes, and freed in order.

llvmlite leaves all of it to Python's garbage collector, which has an order of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any


def binding() -> Any:
    """llvmlite, which is not needed where everything is cached."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    return llvm


@contextlib.contextmanager
def opened(text: str, others: Iterable[str] = ()) -> Iterator[Any]:
    """A module of this text, and of others that are linked into it, for as long as it is used.

    It has a context of its own: what a module leaves in the one that all share stays there. The
    module is freed first, then its context. A collector that finds both at once, as with an error
    whose traceback is part of a cycle, takes the context first and the module with it; freed once
    more, that damages the heap. Raises RuntimeError where LLVM does not accept a text.
    """
    llvm = binding()
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        for other in others:
            module.link_in(llvm.parse_assembly(other, context))
        yield module


def disassembled(bitcode: bytes) -> str:
    """The text of a module in bitcode; raises RuntimeError where LLVM cannot read it."""
    llvm = binding()
    with llvm.create_context() as context, llvm.parse_bitcode(bitcode, context) as module:
        return str(module)


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Runs passes, and frees them and their builder.

    llvmlite 0.50 forgets the passes, 22 KiB for a pipeline. And each run leaves in the builder what
    LLVM calls before and after every pass, with addresses on that run's stack: another run with the
    same builder would call it.
    """
    manager.run(module, builder)
    binding().newpassmanagers.NewPassManager._dispose(manager)
    manager.detach()
    builder.close()
