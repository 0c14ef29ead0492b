"""clang's names of types -> the names Metal's authors write."""

from __future__ import annotations

import re

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


_NESTED = re.compile(r"_Z(?:N[rVK]*)?")
_SOURCE_NAME = re.compile(r"L?(\d+)")


def author_name(symbol: str) -> str:
    """`f` for `_Z1fi` and `_ZN5innerL1fE`: the name that a mangled one ends its path with."""
    head = _NESTED.match(symbol)
    if head is None:
        return symbol
    last, at = "", head.end()
    while match := _SOURCE_NAME.match(symbol, at):
        at = match.end() + int(match[1])
        last = symbol[match.end() : at]
    return last or symbol
