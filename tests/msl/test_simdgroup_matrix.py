"""metal_simdgroup_matrix against float64: layout, memory, products of all element types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import anymetal
from anymetal.errors import KernelSyntaxError

HEADER = """#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
"""
LANE = "uint lane [[thread_index_in_simdgroup]]"
TYPES = {"half": torch.float16, "bfloat": torch.bfloat16, "float": torch.float32}
# Half a unit in the last place of the result, and the float arithmetic before it.
ROUNDING = {"half": 2.0**-11, "bfloat": 2.0**-8, "float": 2.0**-24}


def place_of(lane: int) -> tuple[int, int]:
    """Row and first column of the two elements that a lane holds."""
    quad = lane // 4
    return (quad & 4) + lane // 2 % 4, (quad & 2) * 2 + lane % 2 * 2


def test_thread_elements_lie_as_programs_expect() -> None:
    source = f"""{HEADER}
kernel void layout(device const float* x, device float2* out, {LANE}) {{
  simdgroup_float8x8 m;
  simdgroup_load(m, x);
  out[lane] = m.thread_elements();
  thread auto& mine = m.thread_elements();
  mine[0] += 100;
  mine.y += 200;
  out[32 + lane] = reinterpret_cast<thread vec<float, 2>&>(m.thread_elements());
  simdgroup_matrix<float, 8, 8>::storage_type copy = m.thread_elements();
  out[64 + lane] = float2(copy.x, sizeof(copy));
}}"""
    x = torch.arange(64, dtype=torch.float32)
    out = torch.zeros(96, 2)
    anymetal.compile_shader(source).layout(x, out, threads=32)
    for lane in range(32):
        row, column = place_of(lane)
        first = row * 8 + column
        assert out[lane].tolist() == [first, first + 1]
        assert out[32 + lane].tolist() == [first + 100, first + 201]
        assert out[64 + lane].tolist() == [first + 100, 8]
    assert sorted(out[:32].flatten().tolist()) == list(range(64))


def test_a_matrix_of_anything_may_be_named() -> None:
    """As MLX's attention does for masks of bools: a type that no variable has."""
    source = f"""{HEADER}
template <typename T>
struct Fragment {{
  typedef simdgroup_matrix<T, 8, 8> matrix;
  typedef vec<T, 2> pair;
}};
typedef simdgroup_matrix<bool, 8, 8> mask;
kernel void named(device bool2* y, {LANE}) {{
  Fragment<bool>::pair one(lane & 1, is_same_v<mask, Fragment<bool>::matrix>);
  y[lane] = one;
}}"""
    y = torch.zeros(32, 2, dtype=torch.bool)
    anymetal.compile_shader(source).named(y, threads=32)
    assert y[:, 0].tolist() == [lane % 2 == 1 for lane in range(32)] and bool(y[:, 1].all())
    with pytest.raises(KernelSyntaxError, match="simdgroup_matrix"):
        used = source.replace("Fragment<bool>::pair one", "mask m; Fragment<bool>::pair one")
        anymetal.compile_shader(used.replace("y[lane] = one", "simdgroup_store(m, y)"))


MEMORY = f"""{HEADER}
template <typename T>
kernel void move(device const T* x, device T* y, constant uint4& from, constant uint4& to) {{
  threadgroup T staged[8 * 9];
  simdgroup_matrix<T, 8, 8> m, n;
  simdgroup_load(m, x, from.x, ulong2(from.y, from.z), from.w != 0);
  simdgroup_store(m, staged, 9);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(n, staged, 9);
  simdgroup_store(n, y, to.x, ulong2(to.y, to.z), to.w != 0);
}}
template [[host_name("move_half")]] kernel void move<half>(
    device const half*, device half*, constant uint4&, constant uint4&);
template [[host_name("move_bfloat")]] kernel void move<bfloat>(
    device const bfloat*, device bfloat*, constant uint4&, constant uint4&);
template [[host_name("move_float")]] kernel void move<float>(
    device const float*, device float*, constant uint4&, constant uint4&);
"""


def block(memory: torch.Tensor, per_row: int, x: int, y: int, transpose: int) -> torch.Tensor:
    """The 8x8 matrix that begins at column x and row y of memory, as a view of it."""
    strides = (1, per_row) if transpose else (per_row, 1)
    return memory.as_strided((8, 8), strides, y * per_row + x)


@pytest.mark.parametrize("kind", TYPES)
def test_load_and_store_follow_stride_origin_and_transpose(kind: str) -> None:
    x = torch.randn(40 * 40, dtype=torch.float32).to(TYPES[kind])
    kernel = getattr(anymetal.compile_shader(MEMORY), f"move_{kind}")
    places = [(8, 0, 0, 0), (17, 3, 5, 0), (17, 3, 5, 1), (9, 0, 2, 1), (40, 32, 32, 0)]
    for start, end in itertools.product(places, places):
        y = torch.zeros_like(x)
        kernel(x, y, list(start), list(end), threads=32, arg_casts={2: "int32", 3: "int32"})
        want = torch.zeros_like(x)
        block(want, *end).copy_(block(x, *start))
        assert torch.equal(y, want), (start, end)


def test_load_and_store_have_defaults() -> None:
    source = f"""{HEADER}
kernel void defaults(device const float* x, device float* y, constant float* z) {{
  simdgroup_float8x8 m, n;
  simdgroup_load(m, x);
  simdgroup_store(m, y);
  simdgroup_load(m, x, 9);
  simdgroup_store(m, y + 64, 8, 0);
  simdgroup_load(n, z, 8, ulong2(0), true);
  simdgroup_store(n, y + 128, 8, ulong2(0, 0), false);
}}"""
    x, y = torch.randn(100), torch.zeros(3, 8, 8)
    anymetal.compile_shader(source).defaults(x, y, x, threads=32)
    square = x[:64].view(8, 8)
    assert torch.equal(y[0], square)
    assert torch.equal(y[1], x[:72].view(8, 9)[:, :8])
    assert torch.equal(y[2], square.T)


def test_matrices_are_made_from_a_value() -> None:
    source = f"""{HEADER}
kernel void make(device float* y, device half* z) {{
  simdgroup_store(simdgroup_float8x8(3), y);
  simdgroup_store(make_filled_simdgroup_matrix<float, 8, 8>(2.5f), y + 64);
  simdgroup_store(make_filled_simdgroup_matrix<float, 8>(-1.0f), y + 128);
  simdgroup_store(make_diagonal_simdgroup_matrix<float, 8>(4.0f), y + 192);
  simdgroup_half8x8 h = simdgroup_half8x8(2.0h);
  simdgroup_store(h, z);
}}"""
    y, z = torch.zeros(4, 8, 8), torch.zeros(8, 8, dtype=torch.float16)
    anymetal.compile_shader(source).make(y, z, threads=32)
    eye = torch.eye(8)
    for got, want in zip(y, (3 * eye, eye * 0 + 2.5, eye * 0 - 1, 4 * eye), strict=True):
        assert torch.equal(got, want)
    assert torch.equal(z, 2 * eye.half())


def products(result: str) -> str:
    """One kernel: the nine pairs of operand types, and the three of accumulators, for a result."""
    lines = []
    combinations = itertools.product(TYPES, TYPES, TYPES)
    for number, (left, right, accumulator) in enumerate(combinations):
        lines.append(
            f"""  {{
    simdgroup_matrix<{result}, 8, 8> d;
    simdgroup_multiply_accumulate(d, {left}_a, {right}_b, {accumulator}_c);
    simdgroup_store(d, out + {number} * 64);
  }}"""
        )
    loads = "\n".join(
        f"  simdgroup_matrix<{kind}, 8, 8> {kind}_{name};\n"
        f"  simdgroup_load({kind}_{name}, {kind}_data + {64 * index});"
        for kind in TYPES
        for index, name in enumerate("abc")
    )
    data = ", ".join(f"device const {kind}* {kind}_data" for kind in TYPES)
    newline = "\n"
    return f"""{HEADER}
kernel void products({data}, device {result}* out) {{
{loads}
{newline.join(lines)}
}}"""


@pytest.mark.parametrize("result", TYPES)
def test_products_of_all_element_types(result: str) -> None:
    """Against float64 on the operands as they were rounded: one rounding at the end is left."""
    generator = torch.Generator().manual_seed(5)
    data = {
        kind: torch.randn(3, 8, 8, generator=generator).to(dtype) for kind, dtype in TYPES.items()
    }
    out = torch.zeros(27, 8, 8, dtype=TYPES[result])
    anymetal.compile_shader(products(result)).products(*data.values(), out, threads=32)
    for got, (left, right, accumulator) in zip(
        out, itertools.product(TYPES, TYPES, TYPES), strict=True
    ):
        a, b, c = data[left][0].double(), data[right][1].double(), data[accumulator][2].double()
        exact = a @ b + c
        scale = a.abs() @ b.abs() + c.abs()
        allowed = ROUNDING[result] * exact.abs() + 9 * ROUNDING["float"] * scale
        assert ((got.double() - exact).abs() <= allowed).all(), (left, right, accumulator)


def test_multiply_without_accumulator_and_as_operator() -> None:
    source = f"""{HEADER}
kernel void multiply(device const half* x, device const half* w, device float* y, device half* z) {{
  simdgroup_half8x8 a, b;
  simdgroup_load(a, x);
  simdgroup_load(b, w);
  simdgroup_float8x8 d;
  simdgroup_multiply(d, a, b);
  simdgroup_store(d, y);
  simdgroup_store(a * b, z);
}}"""
    x = torch.randint(-4, 5, (8, 8)).half()
    w = torch.randint(-4, 5, (8, 8)).half()
    y, z = torch.zeros(8, 8), torch.zeros(8, 8).half()
    anymetal.compile_shader(source).multiply(x, w, y, z, threads=32)
    assert torch.equal(y, x.float() @ w.float())
    assert torch.equal(z, (x.float() @ w.float()).half())


def test_accumulates_in_float_and_rounds_once() -> None:
    """2048 + 8 ones in half: each step alone would be lost."""
    source = f"""{HEADER}
kernel void once(device half* y) {{
  simdgroup_half8x8 ones = make_filled_simdgroup_matrix<half, 8>(1.0h);
  simdgroup_half8x8 sum = make_filled_simdgroup_matrix<half, 8>(2048.0h);
  simdgroup_multiply_accumulate(sum, ones, ones, sum);
  simdgroup_store(sum, y);
}}"""
    y = torch.zeros(64, dtype=torch.float16)
    anymetal.compile_shader(source).once(y, threads=32)
    assert (y == 2056).all()


MATMUL = f"""{HEADER}
kernel void matmul(device const half* a, device const half* b, device float* c,
                   constant uint& k, constant uint& n,
                   uint2 group [[threadgroup_position_in_grid]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {{
  const ulong row = group.y * 16 + simd / 2 * 8, column = group.x * 16 + simd % 2 * 8;
  simdgroup_float8x8 sum(0);
  for (uint step = 0; step < k; step += 8) {{
    simdgroup_half8x8 left, right;
    simdgroup_load(left, a, k, ulong2(step, row));
    simdgroup_load(right, b, n, ulong2(column, step));
    simdgroup_multiply_accumulate(sum, left, right, sum);
  }}
  simdgroup_store(sum, c, n, ulong2(column, row));
}}"""


def test_matmul_of_several_simdgroups() -> None:
    rows, inner, columns = 48, 40, 64
    a, b = torch.randn(rows, inner).half(), torch.randn(inner, columns).half()
    c = torch.zeros(rows, columns)
    groups = (columns // 16, rows // 16)
    anymetal.compile_shader(MATMUL).matmul(
        a, b, c, inner, columns, threads=(groups[0] * 128, groups[1]), group_size=(128, 1)
    )
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_lanes_that_are_missing_count_as_zero() -> None:
    """A simdgroup of 20 threads: Metal defines nothing here, we give the same every time."""
    source = f"""{HEADER}
kernel void partial(device float2* out, {LANE}) {{
  simdgroup_float8x8 ones = make_filled_simdgroup_matrix<float, 8>(1.0f);
  out[lane] = (ones * ones).thread_elements();
}}"""
    present = np.zeros((8, 8))
    for lane in range(20):
        row, column = place_of(lane)
        present[row, column : column + 2] = 1
    want = present @ present
    kernel = anymetal.compile_shader(source).partial
    for _ in range(3):
        out = torch.zeros(20, 2)
        kernel(out, threads=20, group_size=20)
        for lane in range(20):
            row, column = place_of(lane)
            assert out[lane].tolist() == want[row, column : column + 2].tolist()


REFUSED = (
    "simdgroup_matrix<float, 4, 4> m",
    "simdgroup_matrix<int, 8, 8> m",
    "simdgroup_load(f, x)",
    "simdgroup_store(f, x)",
    "f = f + f",
    "f = f * 2.0f",
    "f = h * f",
    "float e = f[0]",
    "f = 1.0f",
)


def test_any_matrix_type_may_be_named() -> None:
    source = f"""{HEADER}
template <typename T> struct Fragment {{ typedef simdgroup_matrix<T, 8, 8> matrix; }};
kernel void name(device int* out) {{
  typedef Fragment<bool>::matrix mask;
  typedef simdgroup_matrix<float, 16, 16> large;
  out[0] = is_same_v<mask, Fragment<bool>::matrix> && !is_same_v<mask, large>;
}}"""
    out = torch.zeros(1, dtype=torch.int32)
    anymetal.compile_shader(source).name(out, threads=1)
    assert out.item() == 1


def test_what_metal_refuses_does_not_compile() -> None:
    lines = "\n".join(f"  {{ {call}; }}" for call in REFUSED)
    source = f"""#include <metal_stdlib>
using namespace metal;
kernel void bad(device half* x) {{
  simdgroup_float8x8 f;
  simdgroup_half8x8 h;
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(REFUSED, start=6):
        assert f"<shader>:{number}:" in str(error.value), call
