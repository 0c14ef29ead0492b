"""The two kinds of copies of a kernel: all lanes together, and some lanes under a mask."""

from __future__ import annotations

import itertools
import operator
import re

import pytest
from small_kernels import (
    BUFFERS,
    COMPLETE,
    INDEX,
    LANE,
    PARTIAL,
    TWO_WAYS,
    VARYING,
    Simdgroup,
    blocks_of,
    kernel_of,
    module_of,
    results,
    stored,
    vectorised,
    words,
)

from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.prepare import HEAVIEST, replace_suspends, split_position_loads
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.passes.simdgroup.vectorise import Vectoriser

UNIFORM_BRANCH = f"""{BUFFERS}{INDEX}
  %x = load i32, ptr %in, align 4{TWO_WAYS}
  %y = phi i32 [ 3, %yes ], [ %index, %no ]{stored("i32", "%y")}"""


def test_a_uniform_branch_stays_a_branch() -> None:
    text = vectorised(UNIFORM_BRANCH)
    assert "masked0" not in text
    assert re.search(r"br i1 %v\.\d+, label %yes\.\d+, label %no\.\d+", text)
    assert results(UNIFORM_BRANCH, [1] * 32)[:32] == [3] * 32
    assert results(UNIFORM_BRANCH, [2] * 32)[:32] == list(range(32))


DIVERGENT_BRANCH = f"""{VARYING}
  %odd = trunc i32 %x to i1
  br i1 %odd, label %yes, label %no
yes:
  %a = add i32 %x, 100
  br label %join
no:
  %b = mul i32 %x, 2
  br label %join
join:
  %y = phi i32 [ %a, %yes ], [ %b, %no ]{stored("i32", "%y")}"""


def test_a_divergent_branch_has_a_masked_region_that_leads_back() -> None:
    text = vectorised(DIVERGENT_BRANCH)
    blocks = blocks_of(text)
    guards = [name for name in blocks if name.startswith("masked0.")]
    assert len(guards) == 3, "both arms, and where they meet"
    joined = blocks[guards[-1]]
    assert joined[-2].endswith("-1")
    assert joined[-2].split(" = ")[1].startswith("icmp eq i32")
    assert re.match(r"br i1 \S+, label %full\.3,", joined[-1]), "all lanes: the full copy goes on"
    assert len(re.findall(r"mul <32 x i32>", text)) == 2, "one in each copy"


def test_a_divergent_branch_is_right_for_every_lane() -> None:
    for values in (list(range(32)), [1] * 32, [4] * 32, [0] * 31 + [1]):
        expected = [x + 100 if x % 2 else 2 * x for x in values]
        assert results(DIVERGENT_BRANCH, values)[:32] == expected
        assert results(DIVERGENT_BRANCH, values, threads=5)[:6] == [*expected[:5], 0]


def test_complete_simdgroups_need_no_masked_copy_of_all() -> None:
    body = f"{VARYING}{stored('i32', '%x')}"
    assert "am.partial" not in vectorised(body, COMPLETE)
    partial = vectorised(body, PARTIAL)
    assert "am.partial:" in partial and "masked0.0:" in partial


DIVERGENT_LOOP = f"""{VARYING}
  br label %head
head:
  %k = phi i32 [ 0, %entry ], [ %k.next, %next ]
  %total = phi i32 [ 0, %entry ], [ %sum, %next ]
  %more = icmp ult i32 %k, %x
  br i1 %more, label %body, label %after
body:
  %sum = add i32 %total, %k
  %big = icmp ugt i32 %sum, 40
  br i1 %big, label %after, label %next
next:
  %k.next = add i32 %k, 1
  br label %head
after:
  %y = phi i32 [ %total, %head ], [ 1000, %body ]{stored("i32", "%y")}"""


def summed(x: int) -> int:
    total = 0
    for k in range(x):
        total += k
        if total > 40:
            return 1000
    return total


def test_a_loop_left_at_different_times() -> None:
    values = [lane * 7 % 13 for lane in range(32)]
    expected = [summed(x) for x in values]
    assert results(DIVERGENT_LOOP, values)[:32] == expected
    assert results(DIVERGENT_LOOP, values, threads=30)[:31] == [*expected[:30], 0]


def test_branches_of_one_round_share_a_masked_copy() -> None:
    body = f"""{VARYING}
  br label %head
head:
  %k = phi i32 [ 0, %entry ], [ %k.next, %last ]
  %v = phi i32 [ %x, %entry ], [ %v3, %last ]
  %odd = trunc i32 %v to i1
  br i1 %odd, label %a, label %middle
a:
  %v1 = add i32 %v, %k
  br label %middle
middle:
  %v2 = phi i32 [ %v, %head ], [ %v1, %a ]
  %high = icmp ugt i32 %v2, 50
  br i1 %high, label %b, label %last
b:
  %less = lshr i32 %v2, 1
  br label %last
last:
  %v3 = phi i32 [ %v2, %middle ], [ %less, %b ]
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, 6
  br i1 %more, label %head, label %after
after:
  %y = phi i32 [ %v3, %last ]{stored("i32", "%y")}"""
    text = vectorised(body)
    assert "masked0." in text and "masked1." not in text

    def expected(v: int) -> int:
        for k in range(6):
            v += k * (v & 1)
            v = v >> 1 if v > 50 else v
        return v

    values = [lane * 5 for lane in range(32)]
    assert results(body, values)[:32] == [expected(value) for value in values]


def test_returned_lanes_do_not_come_back() -> None:
    body = f"""{VARYING}
  %small = icmp ult i32 %x, 9
  br i1 %small, label %leave, label %go
leave:
  ret void
go:{stored("i32", "%x")}"""
    values = [lane % 12 for lane in range(32)]
    assert results(body, values)[:32] == [x if x >= 9 else 0 for x in values]


def test_an_irreducible_loop_is_refused() -> None:
    with pytest.raises(NotVectorisable, match="entered in more than one place"):
        vectorised(f"""{VARYING}
  %odd = trunc i32 %x to i1
  br i1 %odd, label %a, label %b
a:
  %more = icmp ult i32 %x, 4
  br i1 %more, label %b, label %after
b:
  br label %a
after:
  ret void""")


def test_what_the_reader_does_not_know_is_refused() -> None:
    with pytest.raises(NotVectorisable, match="no rule for: %a = va_arg"):
        vectorised("  %a = va_arg ptr %buffers, i32\n  ret void")
    with pytest.raises(NotVectorisable, match="a variable of unknown size"):
        vectorised("  %n = load i64, ptr %buffers, align 8\n  %a = alloca i8, i64 %n\n  ret void")


def test_code_that_is_too_long_is_refused() -> None:
    with pytest.raises(NotVectorisable, match="so long that compiling it takes seconds"):
        vectorised(DIVERGENT_LOOP, heaviest=50)
    assert vectorised(DIVERGENT_LOOP, heaviest=5000)


def test_positions_of_lanes_that_lie_anyhow_are_computed() -> None:
    body = """
  %place = getelementptr i8, ptr %self, i64 12
  %y = load i32, ptr %place, align 4
  %out = load ptr, ptr %buffers, align 8
  %i = zext i32 %y to i64
  %p = getelementptr i32, ptr %out, i64 %i
  store i32 1, ptr %p, align 4
  ret void"""
    text = vectorised(body, GroupShape(0, complete=True))
    assert text.count("fptoui <32 x float>") == 3
    assert "masked.scatter" in text


def test_the_leaders_work_is_done_once_for_all() -> None:
    body = f"""{LANE}
  %simd.place = getelementptr i8, ptr %self, i64 24
  %simd = load ptr, ptr %simd.place, align 8
  %leader.place = getelementptr i8, ptr %simd, i64 4
  %leader = load i32, ptr %leader.place, align 4
  %mine = icmp eq i32 %leader, %lane
  br i1 %mine, label %work, label %after
work:
  %place = getelementptr i8, ptr %simd, i64 80
  store i32 42, ptr %place, align 4
  br label %after
after:
  ret void"""
    text = vectorised(body)
    assert "masked0" not in text
    assert re.search(r"store i32 42, ptr %v\.\d+, align 4", text)


def test_suspends_become_stops_that_return_nothing() -> None:
    module = module_of("""
  %left = tail call i8 @am_suspend(i32 noundef 3) #5
  %stay = icmp eq i8 %left, 0
  ret void""")
    replace_suspends(module)
    text = str(module)
    assert "call void @am_stop(i32 3) #0" in text
    assert "%left = add i8 0, 0" in text
    assert "am_suspend" not in text


def test_two_coordinates_read_at_once_are_read_apart() -> None:
    module = module_of("""
  %place = getelementptr inbounds nuw i8, ptr %self, i64 8
  %both = load i64, ptr %place, align 8
  %x = trunc i64 %both to i32
  ret void""")
    assert split_position_loads(module)
    text = str(module)
    assert "load i64" not in text
    assert "%both = or disjoint i64" in text
    assert not split_position_loads(module)


def test_an_order_in_which_lanes_meet_too_early_is_refused() -> None:
    body = f"""{VARYING}
  %odd = trunc i32 %x to i1
  br i1 %odd, label %yes, label %join
yes:
  br label %join
join:
  ret void"""
    kernel = kernel_of(body)
    rank = kernel.flow.rank
    rank["yes"], rank["join"] = rank["join"], rank["yes"]
    with pytest.raises(NotVectorisable, match="before all of them have arrived"):
        Vectoriser(Analysis(kernel, COMPLETE), COMPLETE, HEAVIEST).blocks()


# Lanes compare consecutive numbers, from one in memory on, with another one in memory.
BOUNDED = f"""{BUFFERS}{INDEX}
  %start = load i32, ptr %in, align 4
  %bound.place = getelementptr i32, ptr %in, i64 1
  %bound = load i32, ptr %bound.place, align 4
  %n = add i32 %index, %start
  %c = icmp PREDICATE i32 OPERANDS
  br i1 %c, label %yes, label %no
yes:
  br label %join
no:
  br label %join
join:
  %r = phi i32 [ 1, %yes ], [ 2, %no ]{stored("i32", "%r")}"""
EXTREMES = [0, 1, 5, 100, 2**31 - 33, 2**31 - 32, 2**31 - 1, -(2**31), -31, -32, -33, -1]


@pytest.mark.parametrize("predicate", ["ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"])
@pytest.mark.parametrize("operands", ["%n, %bound", "%bound, %n"])
def test_lanes_within_a_bound_are_asked_at_once(predicate: str, operands: str) -> None:
    body = BOUNDED.replace("PREDICATE", predicate).replace("OPERANDS", operands)
    text = vectorised(body)
    assert "unclear" in text
    code, compare = Simdgroup().loaded(text), PYTHONS[predicate[1:]]
    for start, bound in itertools.product(EXTREMES, EXTREMES):
        out = words([0] * 32)
        code([words([start, bound]), out])
        pairs = [
            (wrapped(start + lane, predicate), wrapped(bound, predicate)) for lane in range(32)
        ]
        if operands.startswith("%bound"):
            pairs = [(right, left) for left, right in pairs]
        assert list(out) == [1 if compare(*pair) else 2 for pair in pairs], (start, bound)


PYTHONS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


def wrapped(number: int, predicate: str) -> int:
    """As an integer of 32 bits, with the predicate's sign."""
    low = number % 2**32
    return low - 2**32 if predicate[0] == "s" and low >= 2**31 else low
