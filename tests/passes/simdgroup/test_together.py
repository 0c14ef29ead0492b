"""Accesses that cover memory only together."""

from __future__ import annotations

from small_kernels import kernel_of

from anymetal.ir import Instruction
from anymetal.passes.simdgroup.together import Accesses, Stretch, stretch_of, touches_memory

LANES = range(32)


def test_neighbours_are_one_run() -> None:
    stretch = stretch_of([tuple(4 * lane for lane in LANES)], 4)
    assert stretch == Stretch((0,), 32, (tuple(LANES),))
    assert stretch.owners == [(0, lane) for lane in LANES]


def test_four_accesses_of_a_vector_each_lane() -> None:
    stretch = stretch_of([tuple(16 * lane + 4 * part for lane in LANES) for part in range(4)], 4)
    assert stretch is not None
    assert (stretch.starts, stretch.count) == ((0,), 128)
    assert stretch.taken[2] == tuple(4 * lane + 2 for lane in LANES)
    assert stretch.owners[9] == (1, 2)


def test_one_of_four_has_gaps() -> None:
    assert stretch_of([tuple(16 * lane for lane in LANES)], 4) is None


def test_rows_of_a_matrix_are_several_runs() -> None:
    rows = stretch_of([tuple(lane // 8 * 100 + lane % 8 * 4 for lane in LANES)], 4)
    assert rows is not None
    assert (rows.starts, rows.length) == ((0, 100, 200, 300), 8)


def test_runs_must_be_few_long_and_equal() -> None:
    assert stretch_of([tuple(lane // 2 * 100 + lane % 2 * 4 for lane in LANES)], 4) is None
    unequal = tuple(4 * lane if lane < 10 else 1000 + 4 * lane for lane in LANES)
    assert stretch_of([unequal], 4) is None


def test_places_that_several_lanes_take_have_no_owner() -> None:
    stretch = stretch_of([tuple(lane // 2 * 4 for lane in LANES)], 4)
    assert stretch is not None
    assert (stretch.count, stretch.owners) == (16, None)


def test_a_stretch_is_not_wider_than_a_kilobyte() -> None:
    wide = [tuple(64 * lane + 8 * part for lane in LANES) for part in range(8)]
    assert stretch_of(wide, 8) is None
    assert stretch_of([tuple(32 * lane + 8 * part for lane in LANES) for part in range(4)], 8)


def test_what_accesses_must_not_pass() -> None:
    def touches(text: str) -> bool:
        return touches_memory(Instruction(text))

    assert touches("store i32 1, ptr %p, align 4")
    assert touches("%a = atomicrmw add ptr %p, i32 1 monotonic, align 4")
    assert touches("fence seq_cst")
    assert touches("%a = load volatile i32, ptr %p, align 4")
    assert touches("%a = load atomic i32, ptr %p monotonic, align 4")
    assert touches("call void @am_stop(i32 3)")
    assert touches("call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 4, i1 false)")
    assert not touches("%a = load i32, ptr %p, align 4")
    assert not touches("%a = call float @llvm.sqrt.f32(float %x)")


def test_a_search_looks_at_accesses_alone() -> None:
    load, _, store, fence, last = block = [
        Instruction("%a = load i32, ptr %p, align 4"),
        Instruction("%b = add i32 %a, 1"),
        Instruction("store i32 %b, ptr %p, align 4"),
        Instruction("fence seq_cst"),
        Instruction("%c = load i32, ptr %q, align 4"),
    ]
    accesses = Accesses(block)
    assert list(accesses.behind(load)) == [(store, True), (fence, True), (last, False)]
    assert list(accesses.behind(last)) == []
    assert [accesses.number(one) for one in (load, store, last)] == [0, 1, 3]


def test_kernels_read_from_text_keep_their_order() -> None:
    kernel = kernel_of("  %a = add i32 1, 2\n  %b = mul i32 %a, 3\n  ret void")
    assert [parsed.opcode for parsed in kernel.body("entry")] == ["add", "mul", "ret"]
