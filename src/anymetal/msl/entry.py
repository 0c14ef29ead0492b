"""EntryPoint -> the C++ text of its entry function, and back: the types clang resolved for it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.machine.layout import Described
from anymetal.nouns import EntryPoint, Parameter

_DESCRIPTION = re.compile(
    r'^@am_argument_(\d+) = .*?\{ i32 (\d+), i32 (\d+), i32 (\d+), \[\d+ x i8\] c"'
    r'((?:[^"\\]|\\[0-9A-F]{2})*)" \}.*\n',
    re.MULTILINE,
)
_PRESENT = re.compile(r"^@am_argument_present_(\d+) = .*? constant i8 (\d+).*\n", re.MULTILINE)
_ELEMENT = re.compile(r"\[Element = (.*)\]$")


@dataclass(frozen=True)
class Description:
    """What clang says about one parameter."""

    type: str
    size: int
    align: int
    is_pointer: bool
    is_reference: bool
    is_const: bool
    is_present: bool


def entry_text(entry: EntryPoint) -> str:
    """Defines am_thread_main for one kernel, its argument table and the threadgroup's loop."""
    arguments = ",\n      ".join(
        _argument(number, parameter) for number, parameter in enumerate(entry.parameters)
    )
    kernel, qualified = entry_kernel(entry)
    return (
        f"{kernel}\n"
        f"using am_kernel_signature = decltype(am_signature_of({qualified}));\n"
        # Weak: else clang drops `self` where the text, before am_self is replaced, does not use it.
        'extern "C" __attribute__((noinline, weak)) '
        "void am_thread_main(void* const* buffers, am_thread* self) {\n"
        f"  {qualified}(\n      {arguments});\n}}\n"
        f"{_descriptions(entry)}"
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


def _descriptions(entry: EntryPoint) -> str:
    lines = []
    for number, parameter in enumerate(entry.parameters):
        lines.append(
            f'extern "C" constexpr auto am_argument_{number} = '
            f"am_describe<am_kernel_signature::parameter<{number}>>();\n"
        )
        if parameter.function_constant is not None:
            lines.append(
                f'extern "C" const bool am_argument_present_{number} = '
                f"({parameter.function_constant});\n"
            )
    return "".join(lines)


def read_descriptions(ir: str) -> tuple[str, dict[int, Description]]:
    """Takes the argument table out of the IR."""
    present = {int(match[1]): match[2] != "0" for match in _PRESENT.finditer(ir)}
    found = {}
    for match in _DESCRIPTION.finditer(ir):
        number, flags = int(match[1]), int(match[4])
        found[number] = Description(
            type=_metal_type(match[5]),
            size=int(match[2]),
            align=int(match[3]),
            is_pointer=bool(flags & Described.IS_POINTER),
            is_reference=bool(flags & Described.IS_REFERENCE),
            is_const=bool(flags & Described.IS_CONST),
            is_present=present.get(number, True),
        )
    return _PRESENT.sub("", _DESCRIPTION.sub("", ir)), found


def _metal_type(text: str) -> str:
    """`auto am_describe_element(unsigned int) [Element = metal::vec<float, 4>]` -> `float4`."""
    text = re.sub(r"\\([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), text).rstrip("\0")
    match = _ELEMENT.search(text)
    return metal_spelling(match[1] if match else text)


_SPELLINGS = (
    (re.compile(r"\(anonymous namespace\)::|\bmetal::"), ""),
    (re.compile(r"\bunsigned char\b"), "uchar"),
    (re.compile(r"\bunsigned short\b"), "ushort"),
    (re.compile(r"\bunsigned int\b"), "uint"),
    (re.compile(r"\bunsigned long\b"), "ulong"),
    (re.compile(r"\b_Float16\b"), "half"),
    (re.compile(r"\b__bf16\b"), "bfloat"),
    (re.compile(r"\bpacked_vec<(\w+), (\d)>"), r"packed_\1\2"),
    (re.compile(r"\bvec<(\w+), (\d)>"), r"\1\2"),
    (re.compile(r"\bmatrix<(\w+), (\d), (\d)>"), r"\1\2x\3"),
)


def metal_spelling(text: str) -> str:
    """clang's name of a type as Metal's authors write it."""
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    return text
