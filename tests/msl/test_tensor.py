"""Metal 4's tensors and matmul2d from source: layout, edges, transposes, element types."""

from __future__ import annotations

import pytest
import torch

import anymetal

HEADER = """
#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
using namespace mpp;
using namespace mpp::tensor_ops;
"""
TYPES = {"half": torch.float16, "bfloat": torch.bfloat16, "float": torch.float32}


def compiled(text: str) -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(HEADER + text, language="4.0")


# Operands in registers, as MLX's kernels have them: which lane holds what is known.
REGISTERS = """
template <typename L, typename R, bool TransposeLeft, bool TransposeRight>
kernel void multiply(device const L* a [[buffer(0)]], device const R* b [[buffer(1)]],
                     device float* d [[buffer(2)]]) {
  const ushort lane = __metal_get_thread_index_in_simdgroup(ushort());
  constexpr auto descriptor = matmul2d_descriptor(
      16, 32, 16, TransposeLeft, TransposeRight, true,
      matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, metal::execution_simdgroup> op;
  auto left = op.template get_left_input_cooperative_tensor<L, R, float>();
  auto right = op.template get_right_input_cooperative_tensor<L, R, float>();
  auto sum = op.template get_destination_cooperative_tensor<
      metal::remove_addrspace_t<decltype(left)>, metal::remove_addrspace_t<decltype(right)>,
      float>();
  const ushort q = lane / 4;
  const ushort row = (q & 4) | (lane / 2 % 4), column = 4 * ((q & 2) | (lane & 1));
  metal::vec<L, 8> fragment(L(0));
  for (ushort i = 0; i < 8; i++)
    fragment[i] = a[(row + 8 * (i / 4)) * 16 + column + i % 4];
  for (ushort i = 0; i < 8; i++) left[i] = fragment[i];
  for (ushort i = 0; i < 16; i++) {
    const ushort across = TransposeRight ? 0 : i / 8 * 16, down = TransposeRight ? i / 8 * 16 : 0;
    right[i] = b[(row + 8 * (i / 4 % 2) + down) * (TransposeRight ? 16 : 32) + column + i % 4 +
                 across];
    sum[i] = d[(row + 8 * (i / 4 % 2)) * 32 + column + i % 4 + i / 8 * 16];
  }
  op.run(left, right, sum);
  for (ushort i = 0; i < sum.get_capacity(); i++) {
    auto at = sum.get_multidimensional_index(i);
    if (sum.is_valid_element(i)) d[at[1] * 32 + at[0]] = sum[i];
  }
}
#define INSTANCE(L, R, TL, TR) \
  template [[host_name(#L "_" #R "_" #TL #TR)]] kernel void multiply<L, R, TL, TR>( \
      device const L*, device const R*, device float*);
INSTANCE(float, float, 0, 0)
INSTANCE(half, half, 0, 1)
INSTANCE(bfloat, bfloat, 1, 0)
INSTANCE(float, bfloat, 1, 1)
"""


@pytest.mark.parametrize(
    "name", ["float_float_00", "half_half_01", "bfloat_bfloat_10", "float_bfloat_11"]
)
def test_product_in_registers(name: str) -> None:
    left, right, flags = name.split("_")
    a, b = torch.randn(16, 16).to(TYPES[left]), torch.randn(16, 32).to(TYPES[right])
    d = torch.randn(16, 32)
    wanted = d.double() + a.double() @ b.double()
    stored = (a.T if flags[0] == "1" else a, b.T if flags[1] == "1" else b)
    getattr(compiled(REGISTERS), name)(*(one.contiguous() for one in stored), d, threads=32)
    torch.testing.assert_close(d.double(), wanted, rtol=1e-5, atol=1e-5)


# Operands in memory: k is read from the tensors, and edges are clipped, as llama.cpp relies on.
MEMORY = """
kernel void multiply(device half* a [[buffer(0)]], device half* b [[buffer(1)]],
                     device float* d [[buffer(2)]], constant int* sizes [[buffer(3)]],
                     uint2 tile [[threadgroup_position_in_grid]]) {
  const int rows = sizes[0], columns = sizes[1], depth = sizes[2];
  auto left = tensor(a, dextents<int, 2>(depth, rows), array<int, 2>{1, depth + 1});
  auto right = tensor<device half, dextents<int, 2>, tensor_inline>(
      b, dextents<int, 2>(depth, columns));
  auto out = tensor(d, dextents<int, 2>(columns, rows));
  constexpr auto descriptor = matmul2d_descriptor(
      32, 64, static_cast<int>(dynamic_extent), false, true, false,
      matmul2d_descriptor::mode::multiply);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto my_left = left.slice(0, int(tile.y) * 32);
  auto my_right = right.slice(0, int(tile.x) * 64);
  auto sum = op.get_destination_cooperative_tensor<decltype(my_left), decltype(my_right), float>();
  op.run(my_left, my_right, sum);
  for (auto it = sum.begin(); it != sum.end(); ++it) *it *= 2;
  auto place = out.slice(int(tile.x) * 64, int(tile.y) * 32);
  sum.store(place);
}
kernel void staged(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
                   device float* d [[buffer(2)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float tile[32 * 16];
  for (uint k = i; k < 32 * 16; k += 32) tile[k] = a[k];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  using staged_t = tensor<threadgroup float, extents<int, 16, 32>, tensor_inline>;
  staged_t left(tile, extents<int, 16, 32>());
  auto whole = tensor(b, dextents<int, 2>(48, 16));
  auto right = whole.slice<32, 16>(8, 0);
  auto out = tensor(d, dextents<int, 2>(32, 32));
  matmul2d<matmul2d_descriptor(32, 32, 16, false, false, false,
                               matmul2d_descriptor::mode::multiply_accumulate),
           execution_simdgroup> op;
  op.run(left, right, out);
}
kernel void tail(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
                 device float* d [[buffer(2)]], constant int& depth [[buffer(3)]]) {
  auto left = tensor(a, dextents<int, 2>(depth, 16));
  auto right = tensor(b, dextents<int, 2>(16, depth));
  auto out = tensor(d, dextents<int, 2>(16, 16));
  matmul2d<matmul2d_descriptor(16, 16, 32, false, false, false,
                               matmul2d_descriptor::mode::multiply_accumulate),
           execution_simdgroup> op;
  for (int k = 0; k < depth; k += 32) {
    auto some = left.slice<dynamic_extent, 16>(k, 0);
    auto others = right.slice<16, dynamic_extent>(0, k);
    op.run(some, others, out);
  }
}
kernel void alone(device char* a [[buffer(0)]], device char* b [[buffer(1)]],
                  device int* d [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  auto left = tensor(a, dextents<int, 2>(8, 4)), right = tensor(b, dextents<int, 2>(4, 8));
  auto out = tensor(d + i * 16, dextents<int, 2>(4, 4));
  matmul2d<matmul2d_descriptor(4, 4, 8), execution_thread>().run(left, right, out);
}
"""


@pytest.mark.parametrize("sizes", [(32, 64, 8), (33, 70, 17), (5, 3, 0)])
def test_product_in_memory_is_clipped(sizes: tuple[int, int, int]) -> None:
    rows, columns, depth = sizes
    a = torch.randn(rows, depth + 1).half()
    b = torch.randn(columns, depth).half()
    d = torch.full((rows * columns + 8,), -1.0)
    grid = (-(-columns // 64) * 128, -(-rows // 32))
    compiled(MEMORY).multiply(
        *(a, b, d, list(sizes)), threads=grid, group_size=(128, 1), arg_casts={3: "int32"}
    )
    wanted = 2 * (a[:, :depth].double() @ b.double().T)
    found = d[: rows * columns].view(rows, columns).double()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert d[rows * columns :].tolist() == [-1] * 8


def test_a_step_along_k_is_clipped() -> None:
    """As MLX relies on: the last step of a k that is known takes what the tensors have left."""
    a, b, d = torch.randn(16, 45), torch.randn(45, 16), torch.randn(16, 16)
    wanted = d.double() + a.double() @ b.double()
    compiled(MEMORY).tail(a, b, d, 45, threads=32, group_size=32, arg_casts={3: "int32"})
    torch.testing.assert_close(d.double(), wanted, rtol=1e-5, atol=1e-5)


def test_products_of_threadgroup_memory_and_of_one_thread() -> None:
    lib = compiled(MEMORY)
    a, b, d = torch.randn(32, 16), torch.randn(16, 48), torch.randn(32, 32)
    wanted = d.double() + a.double() @ b[:, 8:40].double()
    lib.staged(a, b, d, threads=32)
    torch.testing.assert_close(d.double(), wanted, rtol=1e-5, atol=1e-5)
    a8, b8 = (torch.randint(-128, 128, shape).to(torch.int8) for shape in ((4, 8), (8, 4)))
    out = torch.zeros(3, 4, 4, dtype=torch.int32)
    lib.alone(a8, b8, out, threads=3)
    assert torch.equal(out, (a8.int() @ b8.int()).expand(3, 4, 4))


CHAINED = """
kernel void chained(device float* a [[buffer(0)]], device float* b [[buffer(1)]],
                    device float* c [[buffer(2)]], device float* d [[buffer(3)]]) {
  matmul2d<matmul2d_descriptor(16, 32, 16), execution_simdgroup> first;
  matmul2d<matmul2d_descriptor(16, 16, 32), execution_simdgroup> second;
  auto left = tensor(a, extents<int, 16, 16>());
  auto right = tensor(b, extents<int, 32, 16>());
  auto sum = first.get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
  first.run(left, right, sum);
  auto again = second.get_left_input_cooperative_tensor(sum);
  auto other = second.get_right_input_cooperative_tensor<float, float, float>();
  other.load(tensor(c, extents<int, 16, 32>()));
  auto out = tensor(d, extents<int, 16, 16>());
  second.run(again, other, out);
}
"""


def test_a_result_is_an_input_of_the_next_product() -> None:
    a, b, c = torch.randn(16, 16), torch.randn(16, 32), torch.randn(32, 16)
    d = torch.zeros(16, 16)
    compiled(CHAINED).chained(a, b, c, d, threads=32)
    torch.testing.assert_close(
        d.double(), a.double() @ b.double() @ c.double(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auto a = op.get_left_input_cooperative_tensor<float, float, float>();", "execution_simd"),
        ("auto t = tensor(x, extents<int, 4, 4>()); op.run(t, t, i);", "element types"),
    ],
)
def test_what_the_operation_does_not_take_is_said(text: str, message: str) -> None:
    source = f"""kernel void f(device char* x, device float* y) {{
  matmul2d<matmul2d_descriptor(4, 4, 4), execution_simdgroups<2>> op;
  auto i = tensor(y, extents<int, 4, 4>());
  {text}
}}"""
    with pytest.raises(SyntaxError, match=message):
        compiled(source)
