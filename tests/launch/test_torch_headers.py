"""Headers of the installed torch, as PyTorch's own kernels and inductor include them."""

from __future__ import annotations

import math

import pytest
import torch

from anymetal import compile_shader

HEADERS = (
    "atomic",
    "common",
    "error",
    "expm1f",
    "igamma",
    "indexing",
    "random",
    "reduction_utils",
    "special_math",
    "utils",
)


@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header: str) -> None:
    source = f"""
    #include <c10/metal/{header}.h>
    #include <metal_stdlib>
    kernel void f(device float* out) {{ out[0] = 1; }}
    """
    out = torch.zeros(1)
    compile_shader(source).f(out)
    assert out.item() == 1


def test_headers_compile_together() -> None:
    includes = "\n".join(f"#include <c10/metal/{header}.h>" for header in HEADERS)
    source = includes + "\nkernel void f(device float* out) { out[0] = 1; }"
    assert dir(compile_shader(source)) == ["f"]


def test_threadgroup_reduction() -> None:
    source = """
    #include <c10/metal/reduction_utils.h>
    #include <metal_stdlib>
    kernel void total(device const float* x, device float* out,
                      uint i [[thread_position_in_threadgroup]],
                      uint size [[threads_per_threadgroup]]) {
      threadgroup float shared[32];
      float sum = c10::metal::threadgroup_sum(shared, x[i], i, size);
      if (i == 0) out[0] = sum;
    }
    """
    kernel = compile_shader(source).total
    for size in (1, 31, 32, 33, 257, 1024):
        x, out = torch.arange(float(size)), torch.zeros(1)
        kernel(x, out, threads=size, group_size=size)
        assert out.item() == size * (size - 1) / 2


def test_special_functions() -> None:
    source = """
    #include <c10/metal/special_math.h>
    #include <metal_stdlib>
    kernel void f(device const float* x, device float* out,
                  uint i [[thread_position_in_grid]]) {
      out[3 * i] = c10::metal::erf(x[i]);
      out[3 * i + 1] = c10::metal::log_gamma(x[i]);
      out[3 * i + 2] = c10::metal::i0(x[i]);
    }
    """
    x = torch.tensor([0.25, 0.5, 1.5, 2.75, 4.0])
    out = torch.zeros(15)
    compile_shader(source).f(x, out, threads=5)
    exact = x.double()
    expected = torch.stack(
        [torch.erf(exact), torch.lgamma(exact), torch.special.i0(exact)], dim=1
    ).reshape(-1)
    torch.testing.assert_close(out.double(), expected, rtol=3e-6, atol=3e-6)


def test_random_numbers_are_uniform() -> None:
    source = """
    #include <c10/metal/random.h>
    #include <metal_stdlib>
    kernel void f(device float* out, constant long2& seed, uint i [[thread_position_in_grid]]) {
      out[i] = c10::metal::rand(seed.x, i);
    }
    """
    out = torch.zeros(20_000)
    compile_shader(source).f(out, [42, 0])
    assert out.min() >= 0 and out.max() < 1
    assert abs(out.mean().item() - 0.5) < 5 / math.sqrt(12 * len(out))
    assert len(out.unique()) > 19_000


def test_atomic_add_of_halves() -> None:
    source = """
    #include <c10/metal/atomic.h>
    #include <metal_stdlib>
    kernel void f(device c10::metal::AtomicType_t<half>* out,
                  uint i [[thread_position_in_grid]]) {
      c10::metal::AtomicType<half>::atomic_add(out, i % 3, half(1));
    }
    """
    out = torch.zeros(4, dtype=torch.float16)
    compile_shader(source).f(out, threads=300)
    assert out.tolist() == [100, 100, 100, 0]
