"""Where pointers come from, through steps, choices and loops."""

from __future__ import annotations

from anymetal.ir import PTR, Operand, parse
from anymetal.passes.provenance import UNKNOWN, Provenance, Root

KERNEL = """define void @am_thread_main(ptr %buffers, ptr %self) {
entry:
  %array = alloca [8 x float], align 4
  %first = load ptr, ptr %buffers, align 8
  %second.place = getelementptr i8, ptr %buffers, i64 8
  %second = load ptr, ptr %second.place, align 8
  %either = select i1 true, ptr %first, ptr %second
  br label %outer
outer:
  %walk = phi ptr [ %array, %entry ], [ %inner.walk, %inner ]
  %mixed = phi ptr [ %first, %entry ], [ %mixed.next, %inner ]
  br label %inner
inner:
  %inner.walk = phi ptr [ %walk, %outer ], [ %inner.next, %inner ]
  %inner.next = getelementptr i8, ptr %inner.walk, i64 4
  %mixed.next = select i1 true, ptr %mixed, ptr %second
  br i1 true, label %inner, label %outer
}"""


def root(name: str) -> Root:
    return Provenance(parse(KERNEL).function("am_thread_main")).root(Operand(PTR, name))


def test_buffers_by_their_number() -> None:
    assert root("%first") == Root("buffer", 0)
    assert root("%second") == Root("buffer", 1)


def test_a_choice_of_two_buffers_is_unknown() -> None:
    assert root("%either") == UNKNOWN
    assert root("%mixed") == UNKNOWN
    assert root("%mixed.next") == UNKNOWN


def test_pointers_that_loops_move_on_stay_where_they_began() -> None:
    for name in ("%walk", "%inner.walk", "%inner.next"):
        assert root(name) == Root("array", name="%array"), name
