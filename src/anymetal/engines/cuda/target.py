"""How kernels are compiled for NVIDIA GPUs: flags, and the function that the driver starts."""

from __future__ import annotations

from pathlib import Path

from anymetal.engines.cuda.barriers import ONLY_WAIT
from anymetal.engines.cuda.block import Block, block_of
from anymetal.engines.cuda.matrices import CALLS
from anymetal.machine import layout
from anymetal.nouns import EntryPoint, Parameter, Target

ENTRY = "am_entry"
QUESTIONS = ("am_lanes_as_tiles", "am_place_of_asked", "am_is_usual")
AS_TILES, PLACE_OF_ASKED, IS_USUAL = QUESTIONS
PROMISE = "am_promise_alignment"
_PROVIDED = ("am_dynamic_memory", "am_initial_value", ONLY_WAIT, PROMISE)
TRIPLE = "nvptx64-nvidia-cuda"
PTX_VERSION = "ptx80"

# Threadgroup variables have their values before any thread is at work.
_INITIAL_VALUES = (
    "  if (am_is_first_thread()) am_place_initial_values();\n"
    "  am_wait_at(AM_THREADGROUP_BARRIER | AM_ORDERS_THREADGROUP << AM_WAIT_BITS);\n"
)


def thunk(entry: EntryPoint, function: str) -> str:
    """The kernel with its block of arguments as its one parameter."""
    block = block_of(entry)
    arguments = ",\n      ".join(
        _argument(number, parameter, block) for number, parameter in enumerate(entry.parameters)
    )
    return (
        f'extern "C" __attribute__((nvptx_kernel)) void {ENTRY}('
        f"const am_block<{block.parameters}> block) {{\n"
        f"  if constexpr (am_is_complete<am_vectors_are_aligned>) {PROMISE}();\n"
        "  am_group group;\n  am_thread self;\n"
        "  if (!am_start(block, group, self)) return;\n"
        f"{_INITIAL_VALUES if entry.has_initial_values else ''}"
        f"  {function}(\n      {arguments});\n}}\n"
    )


def _argument(number: int, parameter: Parameter, block: Block) -> str:
    type_ = f"am_kernel_signature::parameter<{number}>"
    index = parameter.index
    if parameter.role == "builtin":
        return f"am_builtin<{type_}>::from(am_{parameter.builtin}(&self))"
    if parameter.role == "threadgroup":
        place = block.arrays.index(index or 0)
        return f"am_parameter<{type_}>::from(am_array(block.arrays[{place}]))"
    address = f"block.addresses[{index}]"
    if index in block.values:
        place = block.values.index(index)
        return f"am_constant<{type_}>::from({address}, block.values[{place}].bytes)"
    if parameter.function_constant is not None:
        address = f"({parameter.function_constant}) ? {address} : 0ul"
    return f"am_parameter<{type_}>::from(am_address({address}))"


def target(processor: str) -> Target:
    """The target for a processor (sm_80, sm_90) and all later ones."""
    to_clang = (
        *("-target-cpu", processor, "-target-feature", f"+{PTX_VERSION}"),
        "-fbfloat16-excess-precision=none",  # every operation rounds, as on other engines
    )
    return Target(
        name=f"cuda-{processor.replace('_', '')}",
        flags=("-target", TRIPLE, *(word for flag in to_clang for word in ("-Xclang", flag))),
        include_dirs=(Path(__file__).parent / "include", layout.INCLUDE_DIR),
        header="anymetal/block.h",
        thunk=thunk,
        provided=frozenset((*QUESTIONS, *_PROVIDED, *CALLS)),
    )
