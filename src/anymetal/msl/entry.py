"""EntryPoint -> the C++ text of its entry function, and of constants that describe it."""

from __future__ import annotations

from anymetal.msl.arguments import presence_text, signature_text
from anymetal.nouns import EntryPoint, Parameter


def entry_text(entry: EntryPoint) -> str:
    """Defines am_thread_main for one kernel, its argument table and the threadgroup's loop."""
    arguments = ",\n      ".join(
        _argument(number, parameter) for number, parameter in enumerate(entry.parameters)
    )
    kernel, qualified = entry_kernel(entry)
    return (
        f"{kernel}\n"
        f"{signature_text(entry)}"
        f"using am_kernel_signature = decltype(am_signature_of({qualified}));\n"
        # Weak: else clang drops `self` where the text, before am_self is replaced, does not use it.
        'extern "C" __attribute__((noinline, weak)) '
        "void am_thread_main(void* const* buffers, am_thread* self) {\n"
        f"  {qualified}(\n      {arguments});\n}}\n"
        f"{presence_text(entry)}"
        "#include <anymetal/group.h>\n"
    )


def entry_kernel(entry: EntryPoint, number: int = 0) -> tuple[str, str]:
    """A definition that names the kernel's function, in its own scope, and how to refer to it."""
    name = f"am_kernel_{number}"
    kernel = f"constexpr auto {name} = {entry.expression};"
    if not entry.scope:
        return kernel, name
    spaces = entry.scope.split("::")
    opened = "".join(f"namespace {space} {{ " for space in spaces)
    qualified = "::".join(["", *(space for space in spaces if space), name])
    return f"{opened}{kernel}{' }' * len(spaces)}", qualified


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
