"""Indices held at a bound: contiguous accesses where no lane is beyond it, right in every lane."""

from __future__ import annotations

import ctypes
import functools
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from small_kernels import (
    BUFFERS,
    COMPLETE,
    INDEX,
    PARTIAL,
    Simdgroup,
    blocks_of,
    stored,
    vectorised,
    words,
)

NAMES = ("umin", "smin", "umax", "smax")
DECLARED = "\n".join(f"declare i32 @llvm.{name}.i32(i32, i32)" for name in NAMES)
# In front of the data: where the first lane begins, the bound.
HEAD = 2
NUMBERS = f"""{BUFFERS}{INDEX}
  %start = load i32, ptr %in, align 4
  %bound.place = getelementptr i8, ptr %in, i64 4
  %bound = load i32, ptr %bound.place, align 4
  %data = getelementptr i8, ptr %in, i64 {4 * HEAD}"""
HELD = f"""{NUMBERS}
  %at = add i32 %index, %start
  %held = call i32 @llvm.NAME.i32(i32 %at, i32 %bound)"""
WIDENED = {"u": "zext", "s": "sext"}


def held(name: str, after: str) -> str:
    return HELD.replace("NAME", name).replace("", "") + after


def word(name: str) -> str:
    return held(
        name,
        f"""
  %j = {WIDENED[name[0]]} i32 %held to i64
  %p = getelementptr i32, ptr %data, i64 %j
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}""",
    )


def wrapped(number: int, name: str) -> int:
    bits = number & 0xFFFFFFFF
    return bits - (1 << 32) if name[0] == "s" and bits >> 31 else bits


def indices(name: str, start: int, bound: int) -> list[int]:
    choose = min if name.endswith("min") else max
    limit = wrapped(bound, name)
    return [choose(wrapped(start + lane, name), limit) for lane in range(32)]


@contextmanager
def ending_at_a_page(values: Sequence[int]) -> Iterator[ctypes.Array]:
    """Words of which the last is the last of a page that no readable one follows."""
    page = mmap.PAGESIZE
    with mmap.mmap(-1, 2 * page) as memory:
        first = ctypes.c_char.from_buffer(memory)
        libc = ctypes.CDLL(None, use_errno=True)
        behind = ctypes.c_void_p(ctypes.addressof(first) + page)
        assert libc.mprotect(behind, ctypes.c_size_t(page), 0) == 0
        start = page - 4 * len(values)
        buffer = (ctypes.c_int32 * len(values)).from_buffer(memory, start)
        buffer[:] = values
        yield buffer
        assert libc.mprotect(behind, ctypes.c_size_t(page), mmap.PROT_READ) == 0
        del first, buffer


def run(body: str, values: Sequence[int], threads: int = 32, count: int = 32) -> list[int]:
    """The words a kernel writes; it faults where it reads behind its input."""
    out = words([0] * count)
    with ending_at_a_page(values) as given:
        _loaded(body, threads)([given, out])
        del given
    return list(out)


@functools.cache
def _loaded(body: str, threads: int) -> Callable[..., int]:
    shape = COMPLETE if threads == 32 else PARTIAL
    return Simdgroup(threads).loaded(vectorised(body, shape, DECLARED))


@pytest.mark.parametrize("name", NAMES)
def test_lanes_within_a_bound_are_one_vector(name: str) -> None:
    text = vectorised(word(name), before=DECLARED)
    assert len(re.findall(r"load <32 x i32>, ptr \S+, align 4", text)) == 1
    main = [line for block in blocks_of(text).values() for line in block]
    assert not any("gather" in line for line in main), "only in a function beside the kernel"
    assert sum("@am.load.i32.4" in line for line in main) == 1


@pytest.mark.parametrize("threads", [32, 7])
@pytest.mark.parametrize("bound", [0, 3, 30, 31, 32, 44])
@pytest.mark.parametrize("name", ["umin", "smin"])
def test_lanes_beyond_an_upper_bound_read_its_element(name: str, bound: int, threads: int) -> None:
    """Below all lanes, among them, above them; the last word of the input is the bound's."""
    values = [0, bound, *range(100, 101 + bound)]
    expected = [100 + j for j in indices(name, 0, bound)[:threads]]
    assert run(word(name), values, threads) == [*expected, *[0] * (32 - threads)]


@pytest.mark.parametrize(
    ("name", "start", "bound"),
    [
        ("umin", -5, 9),  # the first five lanes are huge, the others have wrapped around
        ("umin", -33, 9),  # all are huge
        ("umin", -32, 9),
        ("umin", -31, -1),  # no bound for unsigned numbers: the last lane is 0
        ("smin", -3, 40),
        ("smin", 0x7FFFFFFF - 5, 9),  # lanes from the seventh on are as small as can be
        ("umax", 3, 20),
        ("umax", 20, 20),
        ("umax", -7, 12),
        ("smax", -3, 0),
        ("smax", -40, 0),
        ("smax", 0, -4),
        ("smax", 0x7FFFFFFF - 5, 9),
    ],
)
def test_indices_that_wrap_around(name: str, start: int, bound: int) -> None:
    """What the kernel computes is written, not what it finds: addresses may lead anywhere."""
    body = held(name, stored("i32", "%held"))
    found = run(body, [start, bound])
    assert [wrapped(number, name) for number in found] == indices(name, start, bound)
    reached = indices(name, start, bound)
    low, high = min(reached), max(reached)
    if low >= 0 and high < 100:
        data = list(range(500, 501 + high))
        assert run(word(name), [start, bound, *data]) == [500 + j for j in reached]


@pytest.mark.parametrize("bound", [-1, -8])
def test_a_negative_bound_leads_in_front(bound: int) -> None:
    body = word("smin").replace("%data, i64", "%later, i64")
    body = body.replace("\n  %at =", "\n  %later = getelementptr i8, ptr %data, i64 64\n  %at =")
    values = [0, bound, *range(16)]
    assert run(body, values) == [16 + bound] * 32


@pytest.mark.parametrize("threads", [32, 9])
@pytest.mark.parametrize(("bits", "bound"), [(8, 63), (8, 23), (16, 31), (16, 16), (16, 1)])
def test_small_elements(bits: int, bound: int, threads: int) -> None:
    """The bound's element is the last one of the input."""
    size = bits // 8
    body = held(
        "umin",
        f"""
  %j = zext i32 %held to i64
  %p = getelementptr i{bits}, ptr %data, i64 %j
  %x = load i{bits}, ptr %p, align {size}
  %w = zext i{bits} %x to i32{stored("i32", "%w")}""",
    )
    count = (bound + 1) * size
    data = bytes(7 * number % 256 for number in range(count)).ljust(-(-count // 4) * 4, b"\0")
    packed = list(memoryview(data).cast("i"))
    reached = indices("umin", 0, bound)[:threads]
    expected = [int.from_bytes(data[j * size : (j + 1) * size], "little") for j in reached]
    assert run(body, [0, bound, *packed], threads)[:threads] == expected


FOURS = """
  %i4 = shl i32 %index, 2
  %at = add i32 %i4, %start
  %held = call i32 @llvm.umin.i32(i32 %at, i32 %bound)
  %j = zext i32 %held to i64
  %p = getelementptr i32, ptr %data, i64 %j
  %p1 = getelementptr i8, ptr %p, i64 4
  %p2 = getelementptr i8, ptr %p, i64 8
  %p3 = getelementptr i8, ptr %p, i64 12
  %a = load i32, ptr %p, align 4
  %b = load i32, ptr %p1, align 4
  %c = load i32, ptr %p2, align 4
  %d = load i32, ptr %p3, align 4
  %s = sub i32 %a, %b
  %t = mul i32 %c, %d
  %u = add i32 %s, %t"""


@pytest.mark.parametrize("threads", [32, 11])
@pytest.mark.parametrize(("start", "bound"), [(0, 124), (0, 123), (0, 57), (0, 0), (-8, 90)])
def test_four_elements_a_lane(start: int, bound: int, threads: int) -> None:
    body = NUMBERS + FOURS + stored("i32", "%u")
    assert vectorised(body, before=DECLARED).count("call x86_regcallcc") <= 1
    data = [number * number % 97 for number in range(bound + 4)]
    reached = [min((start + 4 * lane) & 0xFFFFFFFF, bound) for lane in range(threads)]
    rows = [data[j : j + 4] for j in reached]
    expected = [a - b + c * d for a, b, c, d in rows]
    assert run(body, [start, bound, *data], threads)[:threads] == expected


def test_lanes_that_take_another_way_reach_nothing() -> None:
    """Lanes beyond the data skip the load: it would fault."""
    body = held(
        "umin",
        """
  %inside = icmp ult i32 %at, 20
  br i1 %inside, label %go, label %end
go:
  %j = zext i32 %held to i64
  %p = getelementptr i32, ptr %data, i64 %j
  %x = load i32, ptr %p, align 4
  %q = getelementptr i32, ptr %out, i64 %i
  store i32 %x, ptr %q, align 4
  br label %end
end:
  ret void""",
    )
    data = list(range(300, 320))
    assert run(body, [0, 1000, *data]) == [*data, *[0] * 12]
    assert run(body, [7, 14, *data]) == [*range(307, 315), *[314] * 5, *[0] * 19]


def test_an_index_held_twice_keeps_both_conditions() -> None:
    body = held(
        "umin",
        f"""
  %from = add i32 %held, 2
  %twice = call i32 @llvm.umax.i32(i32 %from, i32 9)
  %j = zext i32 %twice to i64
  %p = getelementptr i32, ptr %data, i64 %j
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}""",
    )
    for start, bound in ((0, 12), (7, 60), (8, 30), (0, 3)):
        reached = [max(min(start + lane, bound) + 2, 9) for lane in range(32)]
        data = list(range(40, 41 + max(reached)))
        assert run(body, [start, bound, *data]) == [40 + j for j in reached]


def test_a_group_size_bounds_an_index() -> None:
    """Positions and sizes are below 1025: such an index does not wrap around."""
    body = f"""{BUFFERS}{INDEX}
  %group.place = getelementptr i8, ptr %self, i64 32
  %group = load ptr, ptr %group.place, align 8
  %size.place = getelementptr i8, ptr %group, i64 12
  %size = load i32, ptr %size.place, align 4
  %far = mul i32 %size, 3
  %at = add i32 %far, %index
  %j = zext i32 %at to i64
  %p = getelementptr i32, ptr %in, i64 %j
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}"""
    text = vectorised(body)
    assert "label %quick" not in text and "load <32 x i32>" in text
    assert run(body, list(range(128))) == list(range(96, 128))
