"""Literals: `0.5` is a float in Metal, `1.0h` a half, `1.0bf` a bfloat. Names C++20 reserves."""

from __future__ import annotations

import re

from anymetal.msl.edits import Edits
from anymetal.msl.tokens import TokenRange

_DECIMAL = re.compile(r"((?:\d[\d']*)?\.?(?:\d[\d']*)?(?:[eE][+-]?\d+)?)([a-zA-Z]*)")
_HEXADECIMAL = re.compile(r"(0[xX][\da-fA-F'.]+[pP][+-]?\d+)([a-zA-Z]*)")

# Metal is C++14 or C++17: these are ordinary names there. And a kernel may be called `main`.
_OTHER_NAMES = frozenset(
    [
        "concept",
        "requires",
        "co_await",
        "co_return",
        "co_yield",
        "constinit",
        "consteval",
        "char8_t",
        "main",
    ]
)
RENAMED = "am_word_"


def rewrite_literals(tokens: TokenRange, edits: Edits) -> None:
    for index, token in enumerate(tokens.tokens):
        if token.kind == "number":
            text = rewrite_number(token.text)
            if text != token.text:
                edits.word(index, text)
        elif token.kind == "name" and token.text in _OTHER_NAMES:
            edits.word(index, RENAMED + token.text)


def rewrite_number(text: str) -> str:
    """The C++ spelling of a Metal number."""
    match = _HEXADECIMAL.fullmatch(text)
    if match is None and not text.lower().startswith(("0x", "0b")):
        match = _DECIMAL.fullmatch(text)
    if match is None:
        return text
    digits, suffix = match.groups()
    is_floating = any(character in digits for character in ".eEpP")
    if suffix in ("h", "H", "bf", "BF"):
        number = digits if is_floating else digits + ".0"
        return f"half({number}f)" if suffix in ("h", "H") else f"bfloat({number}f)"
    return digits + "f" if is_floating and suffix == "" else text
