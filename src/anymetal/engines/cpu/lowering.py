"""The passes that both CPU engines run, and what they learn about a kernel."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from anymetal.engines.cpu import jit
from anymetal.engines.cpu.layout import MAX_PRIVATE_BYTES
from anymetal.errors import LimitError
from anymetal.ir import Module
from anymetal.nouns import MAX_GROUP_SIZE, Position, Program
from anymetal.passes import Pass, run
from anymetal.passes.lower.alignment import clamp_alignment
from anymetal.passes.lower.arithmetic import define_integer_arithmetic
from anymetal.passes.lower.bfloat_rounding import round_in_integers
from anymetal.passes.lower.invariant import mark_invariant_loads
from anymetal.passes.lower.machine import (
    THREAD_MAIN,
    lay_out_threadgroup_memory,
    refuse_primitives_outside,
    replace_self,
)
from anymetal.passes.provenance import used_buffers

MAX_THREADGROUP_BYTES = 32 * 1024
_OURS = "%am."  # what instrumentation adds to a thread's variables


def lower(module: Module, program: Program) -> tuple[dict[str, Any], dict[int, tuple[int, int]]]:
    """Puts the machine under the kernel, and arithmetic as on a GPU. Returns the executable's
    metadata and the place of each threadgroup variable by its slot."""
    refuse_primitives_outside(module, program.name)
    function = module.function(THREAD_MAIN)
    used = sorted(used_buffers(function))
    uses_log = any(True for _ in function.calls("am_log"))
    constants = {
        a.index for a in program.arguments if a.space == "constant" and a.index is not None
    }
    mark_invariant_loads(module, constants)
    replace_self(module)
    places = lay_out_threadgroup_memory(function)
    static_memory = max((offset + size for offset, size in places.values()), default=0)
    if static_memory > MAX_THREADGROUP_BYTES:
        raise LimitError(
            f"kernel '{program.name}' declares {static_memory} bytes of threadgroup memory; "
            f"the limit is {MAX_THREADGROUP_BYTES}",
            _first_beyond(program, places),
        )
    refuse_large_frames(module, program)
    run(module, _arithmetic())
    metadata = {
        "name": program.name,
        "static_memory": static_memory,
        "used_buffers": used,
        "uses_log": uses_log,
        "max_threads": min(program.entry.max_total_threads or MAX_GROUP_SIZE, MAX_GROUP_SIZE),
        "arguments": [asdict(argument) for argument in program.arguments],
    }
    return metadata, places


def refuse_large_frames(module: Module, program: Program) -> None:
    """What a thread declares must fit on the stack that kernels run on, for 32 threads at once."""
    layout = module.layout()
    for function in module.functions:
        variables = (
            i.element
            for i in function.instructions()
            if i.opcode == "alloca" and not str(i.result).startswith(_OURS)
        )
        size = sum(layout.size(element) for element in variables if element is not None)
        if size > MAX_PRIVATE_BYTES:
            raise LimitError(
                f"kernel '{program.name}': arrays and variables of one thread take {size} bytes;"
                f" at most {MAX_PRIVATE_BYTES} are run here. Metal names no limit, but a GPU keeps"
                " such arrays in device memory for every thread: pass a buffer",
                program.entry.position,
            )


def _arithmetic() -> list[Pass]:
    """As on a GPU, with what this processor has."""
    rounding: list[Pass] = [] if jit.rounds_bfloats() else [round_in_integers]
    return [*rounding, clamp_alignment, define_integer_arithmetic]


def _first_beyond(program: Program, places: dict[int, tuple[int, int]]) -> Position | None:
    """Where the threadgroup variable is declared that does not fit any more."""
    positions = {variable.slot: variable.position for variable in program.threadgroup_variables}
    beyond = (slot for slot in sorted(places) if sum(places[slot]) > MAX_THREADGROUP_BYTES)
    return positions.get(next(beyond))
