"""Loads and stores: as few and as wide as the addresses allow, and right in every lane."""

from __future__ import annotations

import re

import pytest
from small_kernels import (
    BUFFERS,
    INDEX,
    LANE,
    PARTIAL,
    VARYING,
    blocks_of,
    full_blocks,
    results,
    stored,
    vectorised,
)

from anymetal.ir import type_of
from anymetal.machine.layout import Group, Simdgroup, Thread
from anymetal.machine.table import offset_of
from anymetal.passes.simdgroup import exchange
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.values import mangled

COPY = f"""{BUFFERS}{INDEX}
  %p = getelementptr float, ptr %in, i64 %i
  %x = load float, ptr %p, align 4{stored("float", "%x")}"""


def test_neighbouring_elements_are_one_vector() -> None:
    text = vectorised(COPY)
    assert len(re.findall(r"load <32 x float>, ptr %v\.\d+, align 4", text)) == 1
    assert len(re.findall(r"store <32 x float> %v\.\d+, ptr %v\.\d+, align 4", text)) == 1
    assert "gather" not in text and "masked" not in text


def test_neighbouring_elements_of_some_lanes_are_one_masked_vector() -> None:
    text = vectorised(COPY, PARTIAL)
    masked = [line for name, b in blocks_of(text).items() if name.startswith("body") for line in b]
    assert any("@llvm.masked.load.v32f32.p0(ptr align 4" in line for line in masked)
    assert any("@llvm.masked.store.v32f32.p0" in line for line in masked)
    assert not any("llvm.masked" in line for line in full_blocks(text))


ROW = f"""{BUFFERS}{INDEX}
  %group.place = getelementptr i8, ptr %self, i64 {offset_of(Thread, "group")}
  %group = load ptr, ptr %group.place, align 8
  %memory.place = getelementptr i8, ptr %group, i64 {offset_of(Group, "threadgroup_memory")}
  %memory = load ptr, ptr %memory.place, align 8
  %size.place = getelementptr i8, ptr %group, i64 {offset_of(Group, "size")}
  %threads = load i32, ptr %size.place, align 4
  %size = zext i32 %threads to i64
  br label %loop
loop:
  %at = phi i64 [ %i, %entry ], [ %next, %loop ]
  %p = getelementptr half, ptr %SOURCE, i64 %at
  %x = load half, ptr %p, align 2
  %q = getelementptr half, ptr %out, i64 %at
  store half %x, ptr %q, align 2
  %next = add i64 %at, %size
  %again = icmp ult i64 %next, 512
  br i1 %again, label %loop, label %end
end:
  ret void"""


@pytest.mark.parametrize(("source", "reads"), [("in", 1), ("memory", 0)])
def test_loops_over_rows_of_device_memory_fetch_what_is_next(source: str, reads: int) -> None:
    """The 64 bytes behind those of these lanes, in the full copy alone."""
    row = ROW.replace("%SOURCE", f"%{source}")
    text = vectorised(row, PARTIAL)
    fetched = re.findall(r"@llvm.prefetch.p0\(ptr %\S+, i32 ([01]), i32 3, i32 1\)", text)
    assert fetched == ["0"] * reads + ["1"]
    assert "prefetch" not in vectorised(row.replace("%at, %size", "%at, 64"))


def test_one_place_for_all_is_a_scalar() -> None:
    body = f"""{BUFFERS}{INDEX}
  %p = getelementptr i8, ptr %in, i64 12
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}"""
    assert re.search(r"%v\.\d+ = load i32, ptr %v\.\d+, align 4\n", vectorised(body))
    assert results(body, range(100, 132))[:32] == [103] * 32


FLOAT4 = f"""{BUFFERS}{INDEX}
  %p = getelementptr <4 x i32>, ptr %in, i64 %i
  %p1 = getelementptr i8, ptr %p, i64 4
  %p2 = getelementptr i8, ptr %p, i64 8
  %p3 = getelementptr i8, ptr %p, i64 12
  %a = load i32, ptr %p, align 16
  %b = load i32, ptr %p1, align 4
  %c = load i32, ptr %p2, align 8
  %d = load i32, ptr %p3, align 4
  %s = sub i32 %a, %b
  %t = mul i32 %c, %d
  %u = add i32 %s, %t{stored("i32", "%u")}"""


def test_four_elements_a_lane_are_loads_in_order_and_shuffles() -> None:
    text = vectorised(FLOAT4)
    places = re.findall(
        r"= getelementptr i8, ptr %v\.\d+, i64 (64|128|192|256|320|384|448)$", text, re.M
    )
    assert places == [str(64 * number) for number in range(1, 8)]
    assert len(re.findall(r"load volatile <16 x i32>", text)) == 8
    assert len(re.findall(r"shufflevector <16 x i32>", text)) == 8 + 8 + 4, "two steps; together"
    assert "gather" not in text
    values = list(range(7, 135))
    rows = [values[4 * i : 4 * i + 4] for i in range(32)]
    assert results(FLOAT4, values)[:32] == [a - b + c * d for a, b, c, d in rows]


def test_four_elements_of_some_lanes_are_one_masked_load() -> None:
    assert "@llvm.masked.load.v128i32.p0" in vectorised(FLOAT4, PARTIAL)
    values = list(range(7, 135))
    found = results(FLOAT4, values, threads=11)
    rows = [values[4 * i : 4 * i + 4] for i in range(11)]
    assert found[:12] == [*(a - b + c * d for a, b, c, d in rows), 0]


def test_four_stores_a_lane_are_one_wide_store() -> None:
    body = f"""{BUFFERS}{INDEX}
  %p = getelementptr <4 x i32>, ptr %out, i64 %i
  %p1 = getelementptr i8, ptr %p, i64 4
  %p2 = getelementptr i8, ptr %p, i64 8
  %p3 = getelementptr i8, ptr %p, i64 12
  %twice = shl i32 %index, 1
  store i32 %index, ptr %p, align 16
  store i32 7, ptr %p1, align 4
  store i32 %twice, ptr %p2, align 8
  store i32 9, ptr %p3, align 4
  ret void"""
    text = vectorised(body)
    assert len(re.findall(r"store <128 x i32>", text)) == 1
    expected = [word for lane in range(32) for word in (lane, 7, 2 * lane, 9)]
    assert results(body, count=128) == expected
    assert results(body, count=128, threads=5) == [*expected[:20], *[0] * 108]


def test_a_read_between_keeps_stores_apart() -> None:
    body = f"""{BUFFERS}{INDEX}
  %p = getelementptr <2 x i32>, ptr %out, i64 %i
  %p1 = getelementptr i8, ptr %p, i64 4
  store i32 1, ptr %p, align 4
  %seen = load i32, ptr %out, align 4
  store i32 %seen, ptr %p1, align 4
  ret void"""
    assert "store <64 x i32>" not in vectorised(body)
    assert results(body) == [1] * 64


def test_alignment_of_one_element_is_not_that_of_its_neighbours() -> None:
    """The stretch begins four bytes before the aligned element."""
    body = f"""{BUFFERS}{INDEX}
  %p = getelementptr <2 x i32>, ptr %in, i64 %i
  %p1 = getelementptr i8, ptr %p, i64 4
  %b = load i32, ptr %p1, align 64
  %a = load i32, ptr %p, align 4
  %s = sub i32 %b, %a{stored("i32", "%s")}"""
    assert re.findall(r"load <64 x i32>, ptr \S+, align (\d+)", vectorised(body)) == ["4"]


def test_lanes_that_are_not_there_promise_no_alignment() -> None:
    body = f"""{BUFFERS}{INDEX}
  %p = getelementptr i32, ptr %in, i64 %i
  %x = load i32, ptr %p, align 64{stored("i32", "%x")}"""
    assert "masked.load.v32i32.p0(ptr align 4 " in vectorised(body, PARTIAL)


def test_rows_are_a_few_loads() -> None:
    body = f"""{LANE}{BUFFERS}{INDEX}
  %row = lshr i32 %lane, 3
  %column = and i32 %lane, 7
  %far = mul i32 %row, 20
  %n = add i32 %far, %column
  %j = zext i32 %n to i64
  %p = getelementptr i32, ptr %in, i64 %j
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}"""
    text = vectorised(body)
    assert len(re.findall(r"load <8 x i32>", text)) == 4
    expected = [lane // 8 * 20 + lane % 8 for lane in range(32)]
    assert results(body, range(100))[:32] == expected


WRAPPING = f"""{BUFFERS}{INDEX}
  %start = load i32, ptr %in, align 4
  %n = add i32 %index, %start
  %small = trunc i32 %n to i8
  %j = zext i8 %small to i64
  %p = getelementptr i32, ptr %in, i64 %j
  %x = load i32, ptr %p, align 4{stored("i32", "%x")}"""


def test_an_index_that_may_wrap_around_gets_a_condition() -> None:
    text = vectorised(WRAPPING)
    assert re.search(r"icmp ult i64 %v\.\d+, 225", text)
    assert len(re.findall(r"br i1 %v\.\d+, label %quick", text)) == 1
    assert "load <32 x i32>" in text
    assert "@llvm.masked.gather.v32i32.v32p0" in text


@pytest.mark.parametrize("start", [3, 224, 225, 250, 1000])
def test_an_index_that_may_wrap_around_is_right_on_both_ways(start: int) -> None:
    values = [start, *range(1, 256)]
    expected = [values[(start + lane) % 256] for lane in range(32)]
    assert results(WRAPPING, values)[:32] == expected


def test_few_places_are_scalar_loads() -> None:
    """Four matrices of eight columns stand side by side: all lanes of one read one element."""
    body = f"""{BUFFERS}{INDEX}
  %own = and i64 %i, -8
  %p = getelementptr i32, ptr %in, i64 %own
  %q = getelementptr i32, ptr %p, i64 3
  %x = load i32, ptr %q, align 4{stored("i32", "%x")}"""
    values = [5 * number + 1 for number in range(32)]
    for shape in (None, PARTIAL):
        text = vectorised(body) if shape is None else vectorised(body, shape)
        assert "gather" not in text
    assert results(body, values)[:32] == [values[lane // 8 * 8 + 3] for lane in range(32)]
    # Lanes that are not there have no place: only those of the first two matrices exist.
    found = results(body, values[:12], threads=11)
    assert found[:12] == [*(values[lane // 8 * 8 + 3] for lane in range(11)), 0]


def test_gathers_and_scatters() -> None:
    body = f"""{VARYING}
  %j = zext i32 %x to i64
  %p = getelementptr i32, ptr %in, i64 %j
  %y = load i32, ptr %p, align 4
  %q = getelementptr i32, ptr %out, i64 %j
  store i32 %y, ptr %q, align 4
  ret void"""
    text = vectorised(body)
    assert "@llvm.masked.gather.v32i32.v32p0" in text
    assert "@llvm.masked.scatter.v32i32.v32p0" in text
    order = [(5 * lane + 3) % 32 for lane in range(32)]
    found = results(body, order)
    assert all(found[j] == order[j] for j in order)


def test_bytes_of_lanes_that_are_not_there_come_from_a_spare_place() -> None:
    body = f"""{VARYING}
  %j = zext i32 %x to i64
  %p = getelementptr i8, ptr %in, i64 %j
  %y = load i8, ptr %p, align 1
  %w = zext i8 %y to i32{stored("i32", "%w")}"""
    assert results(body, [4 * lane for lane in range(32)], threads=9)[:10] == [
        *(4 * lane % 256 for lane in range(9)),
        0,
    ]


@pytest.mark.parametrize("bits", [8, 16])
def test_small_elements_of_some_lanes_are_moved_one_by_one_beside_the_kernel(bits: int) -> None:
    size = bits // 8
    body = f"""{VARYING}
  %j = zext i32 %x to i64
  %p = getelementptr i{bits}, ptr %in, i64 %j
  %y = load i{bits}, ptr %p, align {size}
  %z = add i{bits} %y, 1
  %q = getelementptr i{bits}, ptr %out, i64 %j
  store i{bits} %z, ptr %q, align {size}
  ret void"""
    text = vectorised(body, PARTIAL)
    assert f"@am.load.i{bits}.{size}(" in text and f"@am.store.i{bits}.{size}(" in text
    order = [(7 * lane + 3) % 32 for lane in range(32)]
    given = _bytes(order)
    for threads in (1, 9, 32):
        expected = bytearray(128)
        for start in (j * size for j in order[:threads]):
            element = int.from_bytes(given[start : start + size], "little") + 1
            expected[start : start + size] = element.to_bytes(size, "little")
        assert _bytes(results(body, order, threads=threads)[:32]) == bytes(expected)


def _bytes(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little", signed=True) for word in words)


def test_the_last_lane_that_writes_one_place_wins() -> None:
    body = f"""{VARYING}
  store i32 %x, ptr %out, align 4
  ret void"""
    assert results(body, range(50, 82))[0] == 81
    assert results(body, range(50, 82), threads=6)[0] == 55


def test_unusual_integers_are_read_in_parts() -> None:
    body = f"""{VARYING}
  %m = and i32 %x, 31
  %j = zext i32 %m to i64
  %p = getelementptr i32, ptr %in, i64 %j
  %y = load i24, ptr %p, align 1
  %w = zext i24 %y to i32{stored("i32", "%w")}"""
    values = [0x7F000000 + lane for lane in range(32)]
    assert results(body, values)[:32] == [value & 0xFFFFFF for value in values]


def test_bits_in_memory_are_refused() -> None:
    with pytest.raises(NotVectorisable, match="a vector of bits in memory"):
        vectorised(f"""{BUFFERS}{INDEX}
  %p = getelementptr <8 x i1>, ptr %in, i64 %i
  %x = load <8 x i1>, ptr %p, align 1
  store <8 x i1> %x, ptr %p, align 1
  ret void""")


PRIVATE = f"""{VARYING}
  %array = alloca [4 x i32], align 16
  %j = and i64 %i, 3
  %a0 = getelementptr [4 x i32], ptr %array, i64 0, i64 2
  store i32 %x, ptr %a0, align 8
  %a1 = getelementptr [4 x i32], ptr %array, i64 0, i64 %j
  store i32 77, ptr %a1, align 4
  %y = load i32, ptr %a0, align 8{stored("i32", "%y")}"""


def test_arrays_of_a_thread_are_interleaved() -> None:
    text = vectorised(PRIVATE)
    assert "alloca [512 x i8], align 64" in text
    assert re.search(r"getelementptr i8, ptr %slot\.\d+, i64 256", text), "element 2 of all lanes"
    found = results(PRIVATE, range(100, 132))[:32]
    assert found == [77 if lane % 4 == 2 else 100 + lane for lane in range(32)]


def test_arrays_that_are_handed_on_are_a_copy_a_lane() -> None:
    body = f"""{VARYING}
  %array = alloca [5 x i32], align 16
  call void @llvm.memset.p0.i64(ptr %array, i8 1, i64 20, i1 false)
  %a = getelementptr [5 x i32], ptr %array, i64 0, i64 1
  store i32 %x, ptr %a, align 4
  %b = getelementptr [5 x i32], ptr %array, i64 0, i64 2
  %y = load i32, ptr %b, align 4
  %z = load i32, ptr %a, align 4
  %w = sub i32 %z, %y{stored("i32", "%w")}"""
    text = vectorised(body, before="declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
    assert "alloca [1024 x i8], align 64" in text, "20 bytes, filled up to 32"
    declared = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    found = results(body, range(32), before=declared)[:32]
    assert found == [lane - 0x01010101 for lane in range(32)]


# Each lane leaves a number in the simdgroup's table, and takes that of the lane which its word of
# the input names.
EXCHANGE = f"""{VARYING}{LANE}
  %simd.place = getelementptr i8, ptr %self, i64 {offset_of(Thread, "simd")}
  %simd = load ptr, ptr %simd.place, align 8
  %table = getelementptr i8, ptr %simd, i64 {offset_of(Simdgroup, "outputs")}
  %l = zext i32 %lane to i64
  %mine = getelementptr i32, ptr %table, i64 %l
  %number = mul i32 %lane, 3
  store i32 %number, ptr %mine, align 4
  %low = and i32 %x, 31
  %from = zext i32 %low to i64
  %theirs = getelementptr i32, ptr %table, i64 %from
  %y = load i32, ptr %theirs, align 4{stored("i32", "%y")}"""


@pytest.mark.parametrize("permutes", [True, False])
def test_lanes_take_what_others_left(permutes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if permutes and not exchange.has_permutation():
        pytest.skip("this processor has no permutation of 32 elements")
    monkeypatch.setattr(exchange, "has_permutation", lambda: permutes)
    text = vectorised(EXCHANGE)
    assert text.count("call <16 x i32> @llvm.x86.avx512.vpermi2var.d.512") == 2 * permutes
    assert ("call <32 x i32> @llvm.masked.gather" in text) == (not permutes)
    for threads in (32, 7):
        wanted = [(11 * lane + 5) % 40 for lane in range(32)]
        found = results(EXCHANGE, wanted, threads=threads)[:threads]
        there = [w % 32 for w in wanted[:threads]]
        pairs = zip(found, there, strict=True)
        assert all(number == 3 * lane for number, lane in pairs if lane < threads)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("<32 x float>", "v32f32"), ("half", "f16"), ("<8 x bfloat>", "v8bf16"), ("i24", "i24")],
)
def test_types_in_names_of_intrinsics(kind: str, name: str) -> None:
    assert mangled(type_of(kind)) == name


WIDE = f"""{VARYING}
  %at = zext i32 %x to i64
  %p = getelementptr <4 x i32>, ptr %in, i64 %at
  %four = load <4 x i32>, ptr %p, align 16
  %last = extractelement <4 x i32> %four, i64 3{stored("i32", "%last")}"""


def test_vectors_at_unknown_places_are_loaded_whole() -> None:
    text = vectorised(WIDE)
    assert "llvm.masked.gather" not in text
    assert len(re.findall(r"= load <4 x i32>, ptr", text)) == 32
    places = [lane * 7 % 32 for lane in range(32)]
    given = [*places, *range(100, 196)]
    assert results(WIDE, given)[:32] == [given[4 * place + 3] for place in places]


def test_vectors_that_lie_side_by_side_are_loaded_four_at_a_time() -> None:
    text = vectorised(WIDE)
    assert len(re.findall(r"= load <16 x i32>, ptr %v\.\d+, align 16", text)) == 8
    places = [4 * (7 - lane // 4) + lane % 4 for lane in range(32)]
    given = [*places, *range(100, 196)]
    assert results(WIDE, given)[:32] == [given[4 * place + 3] for place in places]


WIDE_STORE = f"""{VARYING}
  %at = zext i32 %x to i64
  %p = getelementptr <4 x i32>, ptr %out, i64 %at
  %tens = mul i32 %index, 10
  %one = insertelement <4 x i32> zeroinitializer, i32 %index, i64 0
  %four = insertelement <4 x i32> %one, i32 %tens, i64 3
  store <4 x i32> %four, ptr %p, align 16
  ret void"""


@pytest.mark.parametrize(
    "places",
    [
        [lane * 7 % 32 for lane in range(32)],
        [4 * (7 - lane // 4) + lane % 4 for lane in range(32)],
        [4 * (lane // 8) + lane % 4 for lane in range(32)],
        [lane // 2 for lane in range(32)],
    ],
    ids=["anywhere", "in fours", "in fours, two of them at one place", "two lanes at one place"],
)
def test_vectors_are_stored_whole_and_four_at_a_time(places: list[int]) -> None:
    """Where two lanes write to one place, the higher one's value stays."""
    text = vectorised(WIDE_STORE)
    assert len(re.findall(r"store <4 x i32> .*, align 16", text)) == 32
    assert len(re.findall(r"store <16 x i32> .*, align 16", text)) == 8
    expected = [0] * 128
    for lane, place in enumerate(places):
        expected[4 * place : 4 * place + 4] = [lane, 0, 0, 10 * lane]
    assert results(WIDE_STORE, places, count=128) == expected


def test_four_words_of_a_row_each_are_loaded_whole() -> None:
    """Rows of 12 words: no four loads fill the gaps between them."""
    steps = "".join(
        f"""
  %p{part} = getelementptr i8, ptr %p, i64 {4 * part}
  %x{part} = load i32, ptr %p{part}, align 4
  %s{part} = mul i32 %x{part}, {10**part}"""
        for part in range(4)
    )
    body = f"""{LANE}{BUFFERS}{INDEX}
  %row = mul i32 %lane, 12
  %at = zext i32 %row to i64
  %p = getelementptr i32, ptr %in, i64 %at{steps}
  %a = add i32 %s0, %s1
  %b = add i32 %s2, %s3
  %sum = add i32 %a, %b{stored("i32", "%sum")}"""
    text = vectorised(body)
    assert "llvm.masked.gather" not in text
    assert len(re.findall(r"= load <4 x i32>, ptr", text)) == 32
    values = [number * 7 % 10 for number in range(32 * 12)]
    expected = [sum(10**part * values[12 * lane + part] for part in range(4)) for lane in range(32)]
    assert results(body, values)[:32] == expected


def test_a_long_vector_for_all_lanes_is_loaded_whole() -> None:
    body = f"""{BUFFERS}{INDEX}
  %all = load <16 x i32>, ptr %in, align 4
  %x = extractelement <16 x i32> %all, i64 5{stored("i32", "%x")}"""
    assert "load <16 x i32>, ptr" in vectorised(body)
    assert results(body, range(40, 56))[:32] == [45] * 32


MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def test_a_small_copy_is_a_load_and_a_store() -> None:
    body = f"""{VARYING}
  %at = zext i32 %x to i64
  %p = getelementptr <4 x i32>, ptr %in, i64 %at
  %q = getelementptr <4 x i32>, ptr %out, i64 %i
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %q, ptr align 4 %p, i64 12, i1 false)
  ret void"""
    assert "call void @llvm.memcpy" not in vectorised(body, before=MEMCPY)
    places = [lane * 5 % 32 for lane in range(32)]
    given = [*places, *range(200, 296)]
    found = results(body, given, count=128, before=MEMCPY)
    for lane, place in enumerate(places):
        assert found[4 * lane : 4 * lane + 4] == [*given[4 * place : 4 * place + 3], 0]
