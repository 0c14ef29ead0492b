"""clang's warnings about padding -> which bytes of a structure belong to no member.

In IR padding may look like a member: `[14 x i8]` behind a float3 and a ushort is either that or an
array of the author's, and only clang can tell.
"""

from __future__ import annotations

import re

from anymetal.nouns import AddedBytes

_ADDED = re.compile(r"padding (size of|struct|class) '(.+?)' with (\d+) bytes? to ")


def added_bytes(messages: str) -> frozenset[AddedBytes]:
    """What was added to each structure, under the name that it has in IR."""
    return frozenset(
        AddedBytes(_name_in_ir(name), int(count), at_end=where == "size of")
        for where, name, count in _ADDED.findall(messages)
    )


def _name_in_ir(name: str) -> str:
    """Without template arguments; structures without a name are all called alike."""
    if "(lambda at " in name or "(unnamed " in name or "(anonymous " in name:
        return "anon"
    depth, kept = 0, []
    for character in name:
        depth += character == "<"
        if not depth:
            kept.append(character)
        depth -= character == ">"
    return "".join(kept)
