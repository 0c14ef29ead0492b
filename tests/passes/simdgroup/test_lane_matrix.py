"""Products of matrices that lie over the lanes."""

from __future__ import annotations

import ctypes
import re

import pytest
from small_kernels import BUFFERS, COMPLETE, INDEX, PARTIAL, Simdgroup, vectorised

from anymetal.passes.simdgroup.matrix import _column, _row
from anymetal.passes.simdgroup.products import has_room

DECLARED = """
declare float @am_matrix_first(float, float, float, float, float, float)
declare float @am_matrix_second(float, float, float, float, float, float)
"""
ARGUMENTS = "float %a, float %b, float %c, float %d, float %e, float %f"
PRODUCT = f"""{BUFFERS}{INDEX}
  %pa = getelementptr float, ptr %in, i64 %i
  %pb = getelementptr i8, ptr %pa, i64 128
  %pc = getelementptr i8, ptr %pa, i64 256
  %pd = getelementptr i8, ptr %pa, i64 384
  %pe = getelementptr i8, ptr %pa, i64 512
  %pf = getelementptr i8, ptr %pa, i64 640
  %a = load float, ptr %pa, align 4
  %b = load float, ptr %pb, align 4
  %c = load float, ptr %pc, align 4
  %d = load float, ptr %pd, align 4
  %e = load float, ptr %pe, align 4
  %f = load float, ptr %pf, align 4
  %first = call float @am_matrix_first({ARGUMENTS})
  %second = call float @am_matrix_second({ARGUMENTS})
  %p = getelementptr float, ptr %out, i64 %i
  %q = getelementptr i8, ptr %p, i64 128
  store float %first, ptr %p, align 4
  store float %second, ptr %q, align 4
  ret void"""
TOGETHER = re.compile(r"call x86_regcallcc \{.*\} @am\.matrix\.products\.(\d)\(")
CALLS = re.compile(r"call x86_regcallcc \{.*\} @am\.matrix\.product\(")


def places() -> list[tuple[int, int, int]]:
    """Row, column and which of its two elements, for every element of every lane."""
    return [(_row(lane), _column(lane) + part, lane) for part in range(2) for lane in range(32)]


def test_every_element_belongs_to_one_lane() -> None:
    assert {(row, column) for row, column, _ in places()} == {
        (row, column) for row in range(8) for column in range(8)
    }


def spread(matrix: list[list[float]]) -> list[float]:
    return [matrix[row][column] for row, column, _ in places()]


def test_both_elements_come_from_one_product() -> None:
    text = vectorised(PRODUCT, before=DECLARED)
    assert len(CALLS.findall(text)) == 1
    assert len(re.findall(r"call <16 x float> @llvm\.fma\.v16f32", text)) == 32


def run(threads: int) -> list[float]:
    left = [[float(row * 3 - column) for column in range(8)] for row in range(8)]
    right = [[float(row + column * 2 % 5) for column in range(8)] for row in range(8)]
    start = [[float(row == column) for column in range(8)] for row in range(8)]
    values = spread(left) + spread(right) + spread(start)
    out = (ctypes.c_float * 64)()
    shape = COMPLETE if threads == 32 else PARTIAL
    text = vectorised(PRODUCT, shape, DECLARED)
    Simdgroup(threads).run(text, [(ctypes.c_float * len(values))(*values), out])
    there = [[0.0] * 8 for _ in range(8)]
    for row, column, lane in places():
        there[row][column] = float(lane < threads)
    left, right, start = (
        [[m[r][c] * there[r][c] for c in range(8)] for r in range(8)] for m in (left, right, start)
    )
    expected = [
        [start[r][c] + sum(left[r][k] * right[k][c] for k in range(8)) for c in range(8)]
        for r in range(8)
    ]
    wanted = [
        value if lane < threads else 0.0
        for value, (_, _, lane) in zip(spread(expected), places(), strict=True)
    ]
    assert list(out) == wanted
    return wanted


def test_product() -> None:
    assert any(run(32))


def test_lanes_that_are_not_there_bring_zeros() -> None:
    assert any(run(20))


def test_products_of_numbers_in_both_arms_are_computed_in_both() -> None:
    """Nothing in their text tells them apart, but neither arm runs before the other."""
    numbers = ", ".join(["float 1.000000e+00"] * 6)
    body = f"""{BUFFERS}
  %x = load i32, ptr %in, align 4
  %odd = trunc i32 %x to i1
  br i1 %odd, label %yes, label %no
yes:
  %a = call float @am_matrix_first({numbers})
  store float %a, ptr %out, align 4
  ret void
no:
  %b = call float @am_matrix_first({numbers})
  store float %b, ptr %in, align 4
  ret void"""
    assert len(CALLS.findall(vectorised(body, before=DECLARED))) == 2


def chain(steps: int, *, seen: bool = False) -> str:
    """Two by two products of what each lane has, one step after the other; `seen`: something else
    looks at the first ones too."""
    lines = [BUFFERS, INDEX]
    for number in range(8 * steps):
        lines += [
            f"  %place{number} = getelementptr float, ptr %in, i64 %i",
            f"  %at{number} = getelementptr i8, ptr %place{number}, i64 {128 * number}",
        ]
    for step in range(steps):
        for number in range(8 * step, 8 * step + 8):
            lines.append(f"  %v{number} = load float, ptr %at{number}, align 4")
        for place in range(4):
            a, b = 8 * step + place // 2 * 2, 8 * step + 4 + place % 2 * 2
            given = [f"%v{a}", f"%v{a + 1}", f"%v{b}", f"%v{b + 1}"]
            given += (
                [f"%first{step - 1}.{place}", f"%second{step - 1}.{place}"]
                if step
                else [
                    "1.000000e+00",
                    "2.000000e+00",
                ]
            )
            listed = ", ".join(f"float {each}" for each in given)
            for part in ("first", "second"):
                name = f"%{part}{step}.{place}"
                lines.append(f"  {name} = call float @am_matrix_{part}({listed})")
    results = [f"%{part}{steps - 1}.{place}" for place in range(4) for part in ("first", "second")]
    for number, result in enumerate([*results, *(["%first0.3"] if seen else [])]):
        lines += [
            f"  %to{number} = getelementptr float, ptr %out, i64 %i",
            f"  %out{number} = getelementptr i8, ptr %to{number}, i64 {128 * number}",
            f"  store float {result}, ptr %out{number}, align 4",
        ]
    return "\n".join([*lines, "  ret void"])


@pytest.mark.skipif(not has_room(), reason="the sums of four products need 32 wide registers")
@pytest.mark.parametrize(
    ("steps", "seen", "calls"),
    [(1, False, ["1"]), (2, False, ["2"]), (3, False, ["2", "1"]), (2, True, ["1", "1"])],
)
def test_four_products_at_once(steps: int, seen: bool, calls: list[str]) -> None:
    text = vectorised(chain(steps, seen=seen), before=DECLARED)
    assert TOGETHER.findall(text) == calls
    assert not CALLS.search(text)
    values = [float((7 * number) % 13 - 6) for number in range(32 * 8 * steps)]
    out = (ctypes.c_float * (32 * (8 + seen)))()
    Simdgroup().run(text, [(ctypes.c_float * len(values))(*values), out])

    def matrix(number: int) -> list[list[float]]:
        both = values[32 * number : 32 * (number + 2)]
        result = [[0.0] * 8 for _ in range(8)]
        for value, (row, column, _) in zip(both, places(), strict=True):
            result[row][column] = value
        return result

    for place in range(4):
        sums = [[float(1 + c % 2) for c in range(8)] for _ in range(8)]
        for step in range(steps):
            a, b = matrix(8 * step + place // 2 * 2), matrix(8 * step + 4 + place % 2 * 2)
            sums = [
                [sums[r][c] + sum(a[r][k] * b[k][c] for k in range(8)) for c in range(8)]
                for r in range(8)
            ]
        assert list(out)[64 * place : 64 * place + 64] == spread(sums), place
