"""A kernel that never suspends becomes a loop over its threads, with the thread inlined into it."""

from __future__ import annotations

from anymetal.ir import Module, Signature
from anymetal.passes.lower.machine import THREAD_MAIN, kept_attributes, plain_parameters


def make_loop(module: Module) -> None:
    """Makes the thread internal and inlined; am_group_main (anymetal/group.h) is what runs."""
    function = module.function(THREAD_MAIN)
    function.signature = Signature(
        THREAD_MAIN,
        function.signature.type,
        plain_parameters(function),
        words=("internal",),
        attributes=("alwaysinline", "nounwind", *kept_attributes(module, function)),
        metadata=function.signature.metadata,
    )
