"""Sizes of the types a module uses, named structures included."""

from __future__ import annotations

import re

from anymetal.ir import Module

_NAMED = re.compile(r'^(%(?:[-\w.$]+|"[^"]*")) = type (<?\{.*\}>?)$')


_SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}


def size_of(kind: str) -> int:
    """Bytes of a type as it lies in memory."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind.startswith("i"):
        return max(1, -(-int(kind[1:]) // 8))
    if kind[0] in "<[":
        count, element = kind[1:-1].split(" x ", 1)
        return int(count) * size_of(element)
    raise ValueError(f"no size is known for the type {kind!r}")


class Layout:
    """Size and alignment of every type, as on the 64-bit targets we compile for."""

    def __init__(self, module: Module) -> None:
        matches = (_NAMED.match(part) for part in module.parts if isinstance(part, str))
        self._named = {match.group(1): match.group(2) for match in matches if match}

    def size(self, kind: str) -> int:
        return self._measure(kind.strip())[0]

    def resolved(self, kind: str) -> str:
        """The structure behind a name; other types as they are."""
        return self._named[kind] if kind.startswith("%") else kind

    def offset(self, kind: str, index: int) -> int:
        """Bytes from the start of an array or structure to its part number `index`."""
        kind = self.resolved(kind)
        if kind.startswith(("[", "<")) and not kind.startswith("<{"):
            return index * self.size(kind[1:-1].split(" x ", 1)[1])
        members = members_of(kind.strip("<>")[1:-1])
        if kind.startswith("<{"):
            return sum(self.size(member) for member in members[:index])
        return self._structure(members[:index], align_for=members[index])[0]

    def _measure(self, kind: str) -> tuple[int, int]:
        if kind.startswith("%"):
            return self._measure(self._named[kind])
        if kind.startswith("["):
            count, element = kind[1:-1].split(" x ", 1)
            size, align = self._measure(element)
            return int(count) * size, align
        if kind.startswith("<{"):
            return sum(self.size(member) for member in members_of(kind[2:-2])), 1
        if kind.startswith("{"):
            return self._structure(members_of(kind[1:-1]))
        size = size_of(kind)
        return size, 1 << (size - 1).bit_length()

    def _structure(self, members: list[str], align_for: str = "") -> tuple[int, int]:
        """Size and alignment; with `align_for`, where a member of that type would begin."""
        offset, largest = 0, 1
        for member in members:
            size, align = self._measure(member)
            offset = -(-offset // align) * align + size
            largest = max(largest, align)
        if align_for:
            largest = self._measure(align_for)[1]
        return -(-offset // largest) * largest, largest


def members_of(text: str) -> list[str]:
    """The types between a structure's braces."""
    members, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "[{<(") - (character in "]}>)")
        if character == "," and depth == 0:
            members.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*members, last] if last else members
