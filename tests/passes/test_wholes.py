"""Which loads and stores are checked as one vector."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from anymetal.ir import parse
from anymetal.passes.check.wholes import Wholes
from anymetal.passes.provenance import Provenance, Root

BEGIN = """define void @am_thread_main(ptr %buffers, ptr %self) {
entry:
  %x = load ptr, ptr %buffers, align 8
  %second = getelementptr i8, ptr %buffers, i64 8
  %y = load ptr, ptr %second, align 8
"""
END = """
  ret void
}
declare void @barrier()
"""


def loads(*offsets: int, pointer: str = "%x", align: int = 16, place: str = "!1") -> str:
    """Loads of floats; the first one of each vector as far aligned as that is."""
    lines = []
    for offset in offsets:
        name = f"{pointer}.{place[1:]}.{offset}"
        own = 4 if offset % align else align
        lines += [
            f"{name}.p = getelementptr i8, ptr {pointer}, i64 {offset}",
            f"{name} = load float, ptr {name}.p, align {own}, !dbg {place}",
        ]
    return "\n".join(lines) + "\n"


def stores(values: str, *offsets: int) -> str:
    """Stores to the second buffer of what was loaded from the first."""
    lines = []
    for number, offset in enumerate(offsets):
        align = 4 if number else 16
        lines += [
            f"%to.{offset} = getelementptr i8, ptr %y, i64 {offset}",
            f"store float {values}.{offset}, ptr %to.{offset}, align {align}, !dbg !9",
        ]
    return "\n".join(lines) + "\n"


def sizes(
    body: str, without_cells: Collection[Root] = (), *, joins: bool = True
) -> list[tuple[int, int]]:
    """Bytes and parts of each whole, in the order of the program."""
    function = parse(BEGIN + body + END).function("am_thread_main")
    wholes = Wholes(function, Provenance(function), without_cells, lambda part: joins)
    found = {
        id(whole): (whole.access.size.integer or 0, len(whole.distances))
        for instruction in function.instructions()
        if (whole := wholes.of(instruction))
    }
    return list(found.values())


ALL = (0, 4, 8, 12)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (loads(*ALL), [(16, 4)]),
        (loads(0, 4, align=8), [(8, 2)]),
        (loads(*ALL) + stores("%x.1", *ALL), [(16, 4), (16, 4)]),
        (loads(*ALL, 16, 20, 24, 28), [(16, 4), (16, 4)]),
        (loads(*ALL) + loads(16, 20, 24, 28, place="!2"), [(16, 4), (16, 4)]),
        (loads(*ALL, align=4), []),  # packed
        (loads(0, 4, 8), []),  # what is left over has cells of its own size
        (loads(0, 8, 12), []),
        (loads(4, 0), []),
        (loads(0, 4) + loads(8, 12, place="!2", align=8), [(8, 2), (8, 2)]),
        (loads(*ALL) + loads(32, place="!2", align=4), []),
        (loads(*ALL) + loads(32, pointer="%y", align=4), [(16, 4)]),
        (loads(0) + "call void @barrier()\n" + loads(4, 8, 12, align=4), []),
    ],
)
def test_parts_of_a_vector_are_one_access(body: str, expected: list[tuple[int, int]]) -> None:
    assert sizes(body) == expected


def test_memory_without_cells_takes_any_vector() -> None:
    body = loads(0, 4, 8) + loads(32, place="!2", align=4)
    assert sizes(body, {Root("buffer", 0)}) == [(8, 2)]


def test_access_that_is_judged_by_itself_joins_nothing() -> None:
    assert sizes(loads(*ALL), joins=False) == []
