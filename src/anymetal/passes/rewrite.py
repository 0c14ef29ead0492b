"""One walk over a function in which single instructions become others."""

from __future__ import annotations

from collections.abc import Callable

from anymetal.ir import Builder, Function, Instruction


def rewrite(function: Function, emit: Callable[[Builder, Instruction], bool]) -> None:
    """Asks `emit` about each instruction: True where it has built what stands in its place."""
    for block in function.blocks:
        build = Builder(function.fresh)
        for instruction in block.instructions:
            if not emit(build, instruction):
                build.made.append(instruction)
        block.instructions = build.made
