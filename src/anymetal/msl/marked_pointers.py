"""What clang must be told of pointers before it can follow their address spaces.

Three things differ from Metal in a text whose spaces are clang's own (address_spaces.keep_spaces):
a C-style cast may change the space, `thread T*` takes a pointer to any space as T is deduced, and a
method cannot say in which space its object lies.
"""

from __future__ import annotations

from anymetal.msl.address_spaces import is_method_qualifier
from anymetal.msl.builtins import SPACES
from anymetal.msl.casts import operand_end
from anymetal.msl.edits import Edits
from anymetal.msl.reflect import Reflection, declared_name
from anymetal.msl.structure import Function, Structure
from anymetal.msl.tokens import TokenRange


def can_change_spaces(structure: Structure, reflection: Reflection) -> bool:
    """Does the author name a pointer type elsewhere than in the parameters of a kernel? Without one
    no pointer goes anywhere but into our headers."""
    tokens = structure.tokens
    parameters = [kernel.function.parameters for kernel in reflection.kernels]
    for index, text in enumerate(tokens.texts):
        if text in SPACES and not any(start < index < end for start, end in parameters):
            behind = index + 1
            while tokens.is_name(behind) or tokens.text(behind) in ("::", "<"):
                close = tokens.angle_end(behind) if tokens.text(behind) == "<" else None
                behind = (close if close is not None else behind) + 1
            if tokens.text(behind) == "*":
                return True
    return False


def mark_pointers(structure: Structure, edits: Edits) -> None:
    tokens = structure.tokens
    for index, text in enumerate(tokens.texts):
        if text == "(":
            _spell_cast(tokens, index, edits)
    for function in structure.functions:
        if function.body is None:
            continue
        if _has_space(tokens, function):
            # Its body would be read as if the object were a thread's.
            edits.replace(function.initialisers or function.body[0], function.body[1] + 1, (";",))
        elif function.is_template:
            _expect_thread(tokens, function, function.body[0], edits)


def _spell_cast(tokens: TokenRange, opening: int, edits: Edits) -> None:
    """`(device T*)x` as a reinterpret_cast, to which clang says no where spaces differ."""
    close = tokens.partner.get(opening, opening)
    inside = tokens.texts[opening + 1 : close]
    is_type = "*" in inside[-2:] and inside[-1] in ("*", "const") and bool(SPACES & set(inside))
    if not is_type or any(text in (",", "(", ";", "=") for text in inside):
        return
    before = tokens.text(opening - 1)
    if before in (")", "]", ">") or (tokens.is_name(opening - 1) and before != "return"):
        return  # parameters, not a cast
    end = operand_end(tokens, close + 1)
    if end is not None:
        pieces = (
            "reinterpret_cast<", range(opening + 1, close), ">(", range(close + 1, end), ")"
        )  # fmt: skip
        edits.replace(opening, end, pieces)


def _expect_thread(tokens: TokenRange, function: Function, body: int, edits: Edits) -> None:
    """Says of each parameter `thread T* p` of a template that p is what it seems."""
    opening, close = function.parameters
    for first, last in tokens.split_commas(opening + 1, close):
        words = tokens.texts[first:last]
        name = declared_name(tokens, first, last)
        if name is not None and "thread" in words and words.count("*") == 1 and "&" not in words:
            edits.insert(body + 1, f"am_thread_pointer({tokens.text(name)});")


def _has_space(tokens: TokenRange, function: Function) -> bool:
    end = function.initialisers or (function.body or (function.end,))[0]
    return any(
        tokens.text(index) in ("device", "threadgroup", "constant")
        and is_method_qualifier(tokens, index)
        for index in range(function.parameters[1], end)
    )
