"""LLVM IR to LLVM IR. A pass changes a module in place; which ones run is the engine's list."""

from collections.abc import Callable, Iterable

from anymetal.ir import Module

Pass = Callable[[Module], None]


def run(module: Module, passes: Iterable[Pass]) -> None:
    """Runs passes one after the other."""
    for change in passes:
        change(module)
