"""What instrumented code and the checker's runtime agree on: regions by number, kinds of access.

The passes write these numbers into a kernel; checker/records.py puts them in C++.
"""

from __future__ import annotations

from anymetal.machine.layout import THREADGROUP_ARGUMENTS
from anymetal.machine.table import Enumeration

BUFFERS, DYNAMIC, MAX_STATIC = 31, THREADGROUP_ARGUMENTS, 256
FIRST_DYNAMIC, FIRST_STATIC = BUFFERS, BUFFERS + DYNAMIC
REGIONS = FIRST_STATIC + MAX_STATIC
UNKNOWN_REGION = REGIONS  # only the address tells
LARGEST_CELL = 16  # bytes that share a record
QUAD = 4  # lanes


class Memory(Enumeration):
    """The two memories that threads share."""

    DEVICE = 0
    THREADGROUP = 1


class Access(Enumeration):
    """Bits: an atomic read-modify-write is AM_WRITE | AM_ATOMIC | AM_MODIFY."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    MODIFY = 4


class Use(Enumeration):
    """What becomes of a value that is read."""

    USED = 0
    UNUSED = 1
    PICKED = 2, "only by selections, which may drop it"
    MOVED = 3, "copied with a structure, whether anybody has written it or not"
    FOLLOWED = 4, "by a bit, which reports it where it is used"


class Beyond(Enumeration):
    """What an access out of bounds meets: the detail of such a finding."""

    ELSEWHERE = 0
    IN_STORAGE = 1, "the rest of the storage that a tensor is a view of"
    AT_NULL = 2, "no memory: a null pointer, perhaps with an index"
    IN_OBJECT = 3, "the same variable: past the end of a row or member"


class Source(Enumeration):
    """How a number says which lane a shuffle reads from."""

    LANE = 0
    XOR = 1
    ABOVE = 2, "at the edge a thread keeps its own value"
    BELOW = 3
