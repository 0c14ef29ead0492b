"""Sizes of the types a module uses, named structures included."""

from __future__ import annotations

import re

from anymetal.passes.accesses import size_of
from anymetal.passes.ir import Module

_NAMED = re.compile(r'^(%(?:[-\w.$]+|"[^"]*")) = type (<?\{.*\}>?)$')


class Layout:
    """Size and alignment of every type, as on the 64-bit targets we compile for."""

    def __init__(self, module: Module) -> None:
        matches = (_NAMED.match(part) for part in module.parts if isinstance(part, str))
        self._named = {match.group(1): match.group(2) for match in matches if match}

    def size(self, kind: str) -> int:
        return self._measure(kind.strip())[0]

    def _measure(self, kind: str) -> tuple[int, int]:
        if kind.startswith("%"):
            return self._measure(self._named[kind])
        if kind.startswith("["):
            count, element = kind[1:-1].split(" x ", 1)
            size, align = self._measure(element)
            return int(count) * size, align
        if kind.startswith("<{"):
            return sum(self.size(member) for member in _members(kind[2:-2])), 1
        if kind.startswith("{"):
            return self._structure(_members(kind[1:-1]))
        size = size_of(kind)
        return size, 1 << (size - 1).bit_length()

    def _structure(self, members: list[str]) -> tuple[int, int]:
        offset, largest = 0, 1
        for member in members:
            size, align = self._measure(member)
            offset = -(-offset // align) * align + size
            largest = max(largest, align)
        return -(-offset // largest) * largest, largest


def _members(text: str) -> list[str]:
    members, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "[{<(") - (character in "]}>)")
        if character == "," and depth == 0:
            members.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*members, last] if last else members
