"""How kernels are compiled for this machine's processors: flags, and the function a thread runs."""

from __future__ import annotations

import functools
from pathlib import Path

from anymetal.machine import layout, processor
from anymetal.nouns import EntryPoint, Parameter, Target

# Threadgroup variables have their values before any thread is at work.
_INITIAL_VALUES = (
    "  if (am_is_first_thread()) am_place_initial_values();\n"
    "  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);\n"
)


def thunk(entry: EntryPoint, function: str) -> str:
    """am_thread_main, which the engines call with the buffers' addresses and a thread, and the
    loop over the threads of a threadgroup."""
    arguments = ",\n      ".join(
        _argument(number, parameter) for number, parameter in enumerate(entry.parameters)
    )
    return (
        # Weak: else clang drops `self` where the text, before am_self is replaced, does not use it.
        'extern "C" __attribute__((noinline, weak)) '
        "void am_thread_main(void* const* buffers, am_thread* self) {\n"
        f"{_INITIAL_VALUES if entry.has_initial_values else ''}"
        f"  {function}(\n      {arguments});\n}}\n"
        "#include <anymetal/group.h>\n"
    )


def _argument(number: int, parameter: Parameter) -> str:
    type_ = f"am_kernel_signature::parameter<{number}>"
    if parameter.role == "builtin":
        return f"am_builtin<{type_}>::from(am_{parameter.builtin}(self))"
    if parameter.role == "threadgroup":
        return f"am_parameter<{type_}>::from(self->group->dynamic_memory[{parameter.index}])"
    address = f"buffers[{parameter.index}]"
    if parameter.function_constant is not None:
        address = f"({parameter.function_constant}) ? {address} : nullptr"
    return f"am_parameter<{type_}>::from({address})"


# Declared in the headers; passes put code in their place, or the runtime has them.
_PROVIDED = frozenset(
    (
        "am_self",
        "am_suspend",
        "am_leave",
        "am_taken",
        "am_threadgroup_storage",
        "am_initial_value",
        "am_log",
        "am_all_lanes_at_once",
        "am_matrix_first",
        "am_matrix_second",
    )
)


@functools.cache
def _for(name: str) -> Target:
    return Target(
        name="cpu",
        # Every operation on half and bfloat rounds, as on a GPU.
        flags=(f"-march={name}", "-fexcess-precision=16"),
        include_dirs=(Path(__file__).parent / "include", layout.INCLUDE_DIR),
        header="anymetal/entry.h",
        thunk=thunk,
        provided=_PROVIDED,
    )


def current() -> Target:
    """The target for the processor that code is made for."""
    return _for(processor.wanted())


HOST = _for(processor.NATIVE)
