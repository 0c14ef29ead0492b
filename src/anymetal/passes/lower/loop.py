"""A kernel that never stops becomes a loop over its threads, with the thread inlined into it."""

from __future__ import annotations

from anymetal.ir import Module
from anymetal.passes.lower.machine import (
    THREAD_MAIN,
    debug_reference,
    kept_attributes,
    parameters_of,
)


def make_loop(module: Module) -> None:
    """Makes the thread internal and inlined; am_group_main (anymetal/group.h) is what runs."""
    function = module.function(THREAD_MAIN)
    parameters = ", ".join(f"ptr {name}" for name in parameters_of(function))
    function.header = (
        f"define internal void @{THREAD_MAIN}({parameters}) alwaysinline nounwind "
        f"{kept_attributes(module, function)}{debug_reference(function)} {{"
    )
