"""Every promise of docs/numerics.md."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anymetal import ShaderLibrary, compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void combine(device const T* x, device T* y, uint i [[thread_position_in_grid]]) {
  T a = x[3 * i], b = x[3 * i + 1], c = x[3 * i + 2];
  y[4 * i] = a * b + c;
  T product = a * b;
  y[4 * i + 1] = product + c;
  y[4 * i + 2] = T(fma(a, b, c));
  y[4 * i + 3] = a / b;
}
#define COMBINE(T) template [[host_name("combine_" #T)]] \\
  kernel void combine<T>(device const T*, device T*, uint);
COMBINE(float)
COMBINE(half)
COMBINE(bfloat)

kernel void integers(device const int* x, device int* y, uint i [[thread_position_in_grid]]) {
  int a = x[2 * i], b = x[2 * i + 1];
  y[6 * i] = a / b; y[6 * i + 1] = a % b;
  y[6 * i + 2] = a << b; y[6 * i + 3] = a >> b;
  y[6 * i + 4] = a + b; y[6 * i + 5] = int(uint(a) / uint(b));
}
kernel void convert(device const float* x, device int* y, device uint* z, device char* w,
                    uint i [[thread_position_in_grid]]) {
  y[i] = int(x[i]); z[i] = uint(x[i]); w[i] = char(x[i]);
}
kernel void masked(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  float value = x[i] > 0 ? x[i] : -INFINITY;
  y[i] = exp(value - 1.0f) + (isinf(value) ? 100.0f : 0.0f) + (isnan(x[i]) ? 1000.0f : 0.0f);
}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


def operands(dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(2000, 3, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [("combine_half", torch.float16), ("combine_bfloat", torch.bfloat16)]
)
def test_small_floats_round_after_every_operation(
    lib: ShaderLibrary, kernel: str, dtype: torch.dtype
) -> None:
    x = operands(dtype)
    y = torch.zeros(len(x), 4, dtype=dtype)
    getattr(lib, kernel)(x, y, threads=len(x))
    a, b, c = x.double().unbind(1)
    rounded = (a * b).to(dtype).double() + c
    assert torch.equal(y[:, 1], rounded.to(dtype))
    assert torch.equal(y[:, 3], (a / b).to(dtype))


def test_half_is_fused_only_within_an_expression(lib: ShaderLibrary) -> None:
    x = operands(torch.float16)
    y = torch.zeros(len(x), 4, dtype=torch.float16)
    lib.combine_half(x, y, threads=len(x))
    a, b, c = x.double().unbind(1)
    fused = (a * b + c).half()
    assert torch.equal(y[:, 2], fused)
    apart = ((a * b).half().double() + c).half()
    assert torch.equal(y[:, 1], apart)
    assert ((y[:, 0] == fused) | (y[:, 0] == apart)).all()
    assert (fused != apart).any()


def test_float_is_fused_only_within_an_expression(lib: ShaderLibrary) -> None:
    x = operands(torch.float32)
    y = torch.zeros(len(x), 4)
    lib.combine_float(x, y, threads=len(x))
    a, b, c = x.double().unbind(1)
    apart = ((a * b).float().double() + c).float()
    fused = (a * b + c).float()
    assert torch.equal(y[:, 1], apart)
    assert ((y[:, 0] == fused) | (y[:, 0] == apart)).all()
    assert torch.equal(y[:, 3], (a / b).float())


@pytest.mark.parametrize(
    ("kernel", "dtype", "tiny"),
    [
        ("combine_float", torch.float32, 1e-40),
        ("combine_half", torch.float16, 1e-7),
    ],
)
def test_denormal_numbers_are_kept(
    lib: ShaderLibrary, kernel: str, dtype: torch.dtype, tiny: float
) -> None:
    x = torch.tensor([tiny, 1.0, tiny], dtype=torch.float64).to(dtype)
    y = torch.zeros(4, dtype=dtype)
    getattr(lib, kernel)(x, y, threads=1)
    assert y[1] == 2 * x[0] > 0
    assert y[2] == 2 * x[0]


def test_float_division_by_zero(lib: ShaderLibrary) -> None:
    x = torch.tensor([1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    y = torch.zeros(3, 4)
    lib.combine_float(x, y, threads=3)
    assert y[:2, 3].tolist() == [float("inf"), float("-inf")]
    assert y[2, 3].isnan()


def integers(lib: ShaderLibrary, a: int, b: int) -> list[int]:
    y = torch.zeros(6, dtype=torch.int32)
    lib.integers(torch.tensor([a, b], dtype=torch.int32), y, threads=1)
    return y.tolist()


def test_integer_division_never_traps(lib: ShaderLibrary) -> None:
    lowest = -(2**31)
    assert integers(lib, 7, 0)[:2] == [0, 0]
    assert integers(lib, 7, 0)[5] == 0
    assert integers(lib, lowest, -1)[:2] == [lowest, 0]
    assert integers(lib, -7, 2)[:2] == [-3, -1]


def test_shift_uses_the_low_bits_of_its_count(lib: ShaderLibrary) -> None:
    assert integers(lib, 5, 33)[2:4] == [10, 2]
    assert integers(lib, -8, 33)[3] == -4
    assert integers(lib, 1, -1)[2] == -(2**31)


def test_signed_overflow_wraps(lib: ShaderLibrary) -> None:
    assert integers(lib, 2**31 - 1, 1)[4] == -(2**31)


def test_conversion_out_of_range_is_the_nearest_integer(lib: ShaderLibrary) -> None:
    x = torch.tensor([3e9, -3e9, float("inf"), float("-inf"), float("nan"), -1.5, 300.0, 5e9])
    y = torch.zeros(8, dtype=torch.int32)
    z = torch.zeros(8, dtype=torch.int32)
    w = torch.zeros(8, dtype=torch.int8)
    lib.convert(x, y, z, w)
    top, bottom = 2**31 - 1, -(2**31)
    assert y.tolist() == [top, bottom, top, bottom, 0, -1, 300, top]
    unsigned = z.numpy().view(np.uint32).tolist()
    assert unsigned == [3_000_000_000, 0, 2**32 - 1, 0, 0, 0, 300, 2**32 - 1]
    assert w.tolist() == [127, -128, 127, -128, 0, -1, 127, 127]


@pytest.mark.parametrize("fast_math", [False, True])
def test_infinity_works_with_fast_math_too(fast_math: bool) -> None:
    x = torch.tensor([1.0, -1.0, float("nan"), float("inf")])
    y = torch.zeros(4)
    compile_shader(SOURCE, fast_math=fast_math).masked(x, y)
    assert y.tolist() == [1, 100, 1100, float("inf")]


def test_results_do_not_change_between_runs() -> None:
    source = """
    #include <metal_stdlib>
    using namespace metal;
    kernel void f(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
      y[i] = simd_sum(x[i]);
    }
    """
    kernel = compile_shader(source).f
    x = torch.randn(5000)
    first = torch.zeros(5000)
    kernel(x, first)
    for _ in range(5):
        again = torch.zeros(5000)
        kernel(x, again)
        assert torch.equal(first, again)
