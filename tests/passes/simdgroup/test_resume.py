"""A simdgroup that waits returns, and goes on where it was: what it had is in its frame."""

from __future__ import annotations

import re

from small_kernels import (
    BUFFERS,
    INDEX,
    VARYING,
    Simdgroup,
    blocks_of,
    stored,
    vectorised_with_note,
    words,
)

STOP = "declare void @am_stop(i32)"
WAIT = "\n  call void @am_stop(i32 1)"


def run(body: str, values: list[int], threads: int = 32) -> tuple[list[int], int, int]:
    """What it writes, how often it waits, and the bytes of its frame."""
    out = words([0] * 64)
    text, note = vectorised_with_note(body, before=STOP)
    waits = Simdgroup(threads).run(text, [words(values), out], note.frame_size)
    return list(out), waits, note.frame_size


def test_values_of_one_block_outlast_a_barrier() -> None:
    body = f"""{VARYING}
  %twice = add i32 %x, %x{WAIT}
  %more = add i32 %twice, %x{WAIT}
  %sum = add i32 %more, %twice{stored("i32", "%sum")}"""
    out, waits, frame = run(body, list(range(7, 39)))
    assert out[:32] == [5 * value for value in range(7, 39)]
    assert waits == 2
    assert 2 * 128 <= frame <= 4 * 128 + 64, "two vectors of 32, the index's pattern, two addresses"


# Sums of x, a barrier before and after each addition; the bound of the loop is in memory.
SUMS = f"""{VARYING}
  %count = load i32, ptr %in, align 4
  br label %loop
loop:
  %n = phi i32 [ 0, %entry ], [ %next, %loop ]
  %sum = phi i32 [ 0, %entry ], [ %new, %loop ]{WAIT}
  %new = add i32 %sum, %x{WAIT}
  %next = add i32 %n, 1
  %again = icmp ult i32 %next, %count
  br i1 %again, label %loop, label %done
done:
  %last = phi i32 [ %new, %loop ]{stored("i32", "%last")}"""


def test_what_a_loop_carries_outlasts_its_barriers() -> None:
    out, waits, _ = run(SUMS, [5, *range(1, 32)])
    assert out[:32] == [25, *(5 * value for value in range(1, 32))]
    assert waits == 10


def test_what_a_loop_does_not_change_is_kept_once_before_it() -> None:
    text, _ = vectorised_with_note(SUMS, before=STOP)
    blocks = blocks_of(text)
    vectors = r"store <32 x i32> %am\.\d+, ptr %am\.\d+, align 64"
    kept = {name: len(re.findall(vectors, "\n".join(lines))) for name, lines in blocks.items()}
    before = [count for name, count in kept.items() if name.startswith("am.keep")]
    assert before == [2], "x, and the sum to start from"
    waiting = [
        count
        for name, count in kept.items()
        if any("store i32 " in x and "%self" in x for x in blocks[name])
        and not name.startswith("am.done")
    ]
    assert waiting == [1, 1], "the sum, and not x"


def test_an_array_of_a_thread_outlasts_a_barrier() -> None:
    body = f"""{VARYING}
  %array = alloca [4 x i32], align 4
  %slot = and i32 %x, 3
  %slot.long = zext i32 %slot to i64
  %place = getelementptr [4 x i32], ptr %array, i64 0, i64 %slot.long
  store i32 %x, ptr %place, align 4{WAIT}
  %back = load i32, ptr %place, align 4{stored("i32", "%back")}"""
    values = [value * 5 for value in range(32)]
    out, _, frame = run(body, values)
    assert out[:32] == values
    assert frame >= 4 * 4 * 32


def test_a_table_between_barriers_is_no_part_of_the_frame() -> None:
    """Atomics put the lanes' addresses into memory, and take them one by one."""
    body = f"""{VARYING}{WAIT}
  %slot = and i32 %x, 1
  %slot.long = zext i32 %slot to i64
  %bin = getelementptr i32, ptr %out, i64 %slot.long
  %old = atomicrmw add ptr %bin, i32 %x monotonic, align 4{WAIT}
  ret void"""
    out, waits, frame = run(body, list(range(32)))
    assert out[:2] == [240, 256]
    assert waits == 2
    assert frame <= 128 + 64 + 64, "x and two addresses"


def test_a_barrier_in_one_branch_of_many() -> None:
    body = f"""{BUFFERS}{INDEX}
  %way = load i32, ptr %in, align 4
  %first = icmp eq i32 %way, 0
  br i1 %first, label %waiting, label %other
waiting:{WAIT}
  br label %join
other:
  br label %join
join:
  %sum = phi i32 [ %index, %waiting ], [ 9, %other ]{stored("i32", "%sum")}"""
    assert run(body, [0])[:2] == ([*range(32), *[0] * 32], 1)
    assert run(body, [1])[:2] == ([*[9] * 32, *[0] * 32], 0)


def test_lanes_apart_wait_under_their_mask() -> None:
    """A prefix of the lanes has returned; the others go on after the barrier."""
    body = f"""{VARYING}
  %few = icmp ult i32 %x, 20
  br i1 %few, label %going, label %gone
going:{WAIT}
  %double = add i32 %x, %x{stored("i32", "%double")}
gone:
  ret void"""
    out, waits, _ = run(body, list(range(32)))
    assert out[:32] == [*(2 * value for value in range(20)), *[0] * 12]
    assert waits == 1


def test_the_sums_of_running_totals() -> None:
    """Two loops, one in the other, barriers in the inner one only."""
    body = f"""{VARYING}
  br label %outer
outer:
  %n = phi i32 [ 0, %entry ], [ %n.next, %latch ]
  %total = phi i32 [ 0, %entry ], [ %total.new, %latch ]
  %start = add i32 %x, %n
  br label %inner
inner:
  %m = phi i32 [ 0, %outer ], [ %m.next, %inner ]
  %sum = phi i32 [ %start, %outer ], [ %sum.new, %inner ]{WAIT}
  %sum.new = add i32 %sum, %m
  %m.next = add i32 %m, 1
  %more = icmp ult i32 %m.next, 3
  br i1 %more, label %inner, label %latch
latch:
  %sum.last = phi i32 [ %sum.new, %inner ]
  %total.new = add i32 %total, %sum.last
  %n.next = add i32 %n, 1
  %again = icmp ult i32 %n.next, 4
  br i1 %again, label %outer, label %done
done:
  %last = phi i32 [ %total.new, %latch ]{stored("i32", "%last")}"""
    out, waits, _ = run(body, list(range(32)))
    assert out[:32] == [sum(value + n + 3 for n in range(4)) for value in range(32)]
    assert waits == 12


def test_more_than_registers_hold_stays_in_the_frame() -> None:
    before = "".join(f"\n  %v{n} = mul i32 %x, {n + 2}" for n in range(20))
    after = "".join(f"\n  %s{n + 1} = add i32 %s{n}, %v{n}" for n in range(20))
    body = f"""{VARYING}{before}{WAIT}
  %s0 = add i32 %x, 0{after}{stored("i32", "%s20")}"""
    text, _ = vectorised_with_note(body, before=STOP)
    assert not any("<32 x i32>" in line for line in blocks_of(text)["am.resume.1"])
    out, _, _ = run(body, list(range(32)))
    assert out[:32] == [lane * (1 + sum(range(2, 22))) for lane in range(32)]


def test_a_loop_hands_on_more_than_registers_hold() -> None:
    """Each sum takes what its neighbour had; one that is still needed has a place of its own."""
    count = 20
    phis = "".join(
        f"\n  %s{n} = phi i32 [ {n}, %entry ], [ %t{(n + 1) % count}, %loop ]" for n in range(count)
    )
    sums = "".join(f"\n  %t{n} = add i32 %s{n}, %x" for n in range(count))
    totals = "".join(f"\n  %u{n + 1} = add i32 %u{n}, %p{n}" for n in range(count))
    last = "".join(f"\n  %l{n} = phi i32 [ %t{n}, %loop ]" for n in range(count))
    scaled = "".join(f"\n  %p{n} = mul i32 %l{n}, {n + 3}" for n in range(count))
    body = f"""{VARYING}
  br label %loop
loop:
  %n = phi i32 [ 0, %entry ], [ %next, %loop ]{phis}{WAIT}{sums}{WAIT}
  %next = add i32 %n, 1
  %again = icmp ult i32 %next, 7
  br i1 %again, label %loop, label %done
done:{last}{scaled}
  %u0 = add i32 %x, 0{totals}{stored("i32", f"%u{count}")}"""
    out, waits, frame = run(body, list(range(5, 37)))
    expected = []
    for x in range(5, 37):
        before = list(range(count))
        for _ in range(7):
            after = [value + x for value in before]
            before = after[1:] + after[:1]
        expected.append(x + sum(value * (n + 3) for n, value in enumerate(after)))
    assert out[:32] == expected
    assert waits == 14
    assert count * 128 < frame < (count + 4) * 128, "a vector of 32 for each sum, not two"
