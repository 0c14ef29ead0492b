"""EntryPoint -> the C++ text behind the author's: its types, and the target's entry function."""

from __future__ import annotations

from anymetal.msl.arguments import presence_text, signature_text
from anymetal.nouns import EntryPoint, Target


def entry_text(entry: EntryPoint, target: Target, number: int = 0) -> str:
    """What stands behind the author's text: the kernel's type, the target's thunk, and a
    description of each parameter for the launcher."""
    kernel, qualified = entry_kernel(entry, number)
    return (
        f"{kernel}\n"
        f"{signature_text(entry, number)}"
        f"using am_kernel_signature = decltype(am_signature_of({qualified}));\n"
        f"{target.thunk(entry, qualified)}"
        f"{presence_text(entry, number)}"
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
