"""Erases address spaces: plain C++ has one memory, and `constant` is `const` in it."""

from __future__ import annotations

from anymetal.msl.builtins import SPACES
from anymetal.msl.edits import Edits
from anymetal.msl.structure import Function
from anymetal.msl.tokens import TokenRange

_METHOD_QUALIFIERS = SPACES | {"const", "volatile", "noexcept", "mutable"}


def erase_attributes(tokens: TokenRange, edits: Edits) -> None:
    """Removes every `[[...]]`; what they say has been recorded."""
    for index, text in enumerate(tokens.texts):
        if text == "[" and tokens.is_attribute(index):
            edits.remove(index, tokens.after(index))


def erase_spaces(tokens: TokenRange, functions: list[Function], edits: Edits) -> None:
    """`device`, `thread` and `threadgroup` vanish; `constant` becomes `const`."""
    constructors = _constructor_qualifiers(tokens, functions)
    for index, text in enumerate(tokens.texts):
        if text not in SPACES or not tokens.is_name(index):
            continue
        if text != "constant" or index in constructors or _beside_const(tokens, index):
            edits.remove(index)
        else:
            edits.word(index, "const")


# clang's own address spaces, for a text that is only checked; `thread` is what has none.
_KEPT = {
    "device": "__attribute__((opencl_global))",
    "threadgroup": "__attribute__((opencl_local))",
    "constant": "const __attribute__((opencl_constant))",
}


def keep_spaces(tokens: TokenRange, functions: list[Function], edits: Edits) -> None:
    """Every space as clang knows it; methods cannot have one there."""
    constructors = _constructor_qualifiers(tokens, functions)
    for index, text in enumerate(tokens.texts):
        if text not in SPACES or not tokens.is_name(index):
            continue
        is_method = is_method_qualifier(tokens, index)
        if text not in _KEPT or index in constructors or (is_method and text != "constant"):
            edits.remove(index)
        elif is_method:
            edits.word(index, "const")
        else:
            edits.word(index, _KEPT[text])


def _beside_const(tokens: TokenRange, index: int) -> bool:
    """`const constant T` needs one `const` only."""
    before = index - 1
    while tokens.text(before) in SPACES:
        before -= 1
    after = index + 1
    while tokens.text(after) in SPACES and tokens.text(after) != "constant":
        after += 1
    return "const" in (tokens.text(before), tokens.text(after))


def _constructor_qualifiers(tokens: TokenRange, functions: list[Function]) -> set[int]:
    """Constructors may be overloaded on the space of what they make; in C++ none of it remains."""
    found: set[int] = set()
    for function in functions:
        if not is_constructor(tokens, function):
            continue
        index = function.parameters[1] + 1
        while tokens.text(index) in _METHOD_QUALIFIERS:
            found.add(index)
            index += 1
    return found


def is_constructor(tokens: TokenRange, function: Function) -> bool:
    """A method that bears its class's name, inside the class or behind `Name::`."""
    name = function.parameters[0] - 1
    if function.scope.kind == "class" and tokens.text(name) == function.scope.path[-1]:
        return tokens.text(name - 1) not in ("~", "operator")
    return tokens.text(name - 1) == "::" and tokens.text(name - 2) == tokens.text(name)


def is_method_qualifier(tokens: TokenRange, index: int) -> bool:
    """Is the space at index the space of `this`, as in `T get() const device`?"""
    before = index - 1
    while tokens.text(before) in _METHOD_QUALIFIERS:
        before -= 1
    after = index + 1
    while tokens.text(after) in _METHOD_QUALIFIERS:
        after += 1
    return tokens.text(before) == ")" and tokens.text(after) in ("{", ";", ":", "=", "-", "->")
