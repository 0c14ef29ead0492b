"""Vectors that lie at any element, as Metal lets them, on a GPU.

    python -m tests.cuda.unaligned --compile unaligned.bundle
    ANYMETAL_BUNDLE=unaligned.bundle python -m tests.cuda.unaligned

The first compiles the kernels on any machine; the second runs them and compares with torch.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import torch
from tests.cuda.bundling import write_kernels

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
# Vectors at any element, by casts: the rows of a matrix, threadgroup memory, a thread's own.
CASTS = """
template <typename T, uint N>
[[kernel]] void doubled(device const T* x, device T* y, constant uint& columns,
                        uint i [[thread_position_in_grid]]) {
  using V = vec<T, N>;
  const V value = *reinterpret_cast<device const V*>(x + i * columns);
  *reinterpret_cast<device V*>(y + i * columns) = value + value;
}
#define INSTANCES(T) \\
  template [[host_name("doubled_" #T "2")]] [[kernel]] decltype(doubled<T, 2>) doubled<T, 2>; \\
  template [[host_name("doubled_" #T "4")]] [[kernel]] decltype(doubled<T, 4>) doubled<T, 4>;
INSTANCES(uchar)
INSTANCES(char)
INSTANCES(half)
INSTANCES(bfloat)
INSTANCES(short)
INSTANCES(float)
INSTANCES(long)

kernel void turned(device const float* x, device float* y, constant uint& start,
                   uint i [[thread_index_in_threadgroup]]) {
  threadgroup float all[40];
  *reinterpret_cast<threadgroup float4*>(all + start + 4 * i) =
      *reinterpret_cast<device const float4*>(x + 4 * i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float4 other = *reinterpret_cast<threadgroup const float4*>(all + start + 4 * (7 - i));
  *reinterpret_cast<device packed_float4*>(y + 4 * i) = other;
}
kernel void widened(device const char* x, device int2* y, uint i [[thread_position_in_grid]]) {
  y[i] = int2(*reinterpret_cast<device const char2*>(x + 3 * i));
}
"""
TYPED = """
kernel void sums(device const float4* x, device float* y, uint i [[thread_position_in_grid]]) {
  const float4 value = x[i];
  y[i] = (value.x + value.y) + (value.z + value.w);
}
kernel void added(device half4* x, device const half4* by, uint i [[thread_position_in_grid]]) {
  x[i] += by[i];
}
kernel void rows_of_16(device const half* x, device half* y, constant float& by,
                       uint i [[thread_position_in_grid]]) {
  for (uint k = 0; k < 16; k += 4)
    *(device half4*)(y + 16 * i + k) = half(by) * *(device const half4*)(x + 16 * i + k);
}
kernel void both(constant array<device float4*, 2>& lists, uint i [[thread_position_in_grid]]) {
  lists[1][i] = lists[0][i] * 2;
}
struct Row { float4 values; uint number; };
kernel void rows(device const Row* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = dot(x[i].values, float4(1)) + x[i].number;
}
"""
TYPES = {
    "uchar": torch.uint8, "char": torch.int8, "half": torch.float16, "bfloat": torch.bfloat16,
    "short": torch.int16, "float": torch.float32, "long": torch.int64,
}  # fmt: skip


def library(text: str) -> anymetal.ShaderLibrary:
    return anymetal.compile_shader(HEADER + text)


def filled(dtype: torch.dtype, size: int) -> torch.Tensor:
    return torch.randint(-60 if dtype.is_signed else 0, 60, (size,)).to(dtype)


def vectors(type_: str, count: int, columns: int, device: str) -> bool:
    """Rows that begin at any element. What lies beside the vectors stays as it is."""
    x = filled(TYPES[type_], 9 * columns + 3)
    right = True
    for start in range(4):
        expected, y = torch.full_like(x, 99), torch.full_like(x, 99, device=device)
        for at in range(start, start + 9 * columns, columns):
            expected[at : at + count] = x[at : at + count] * 2
        run = getattr(library(CASTS), f"doubled_{type_}{count}")
        run(x.to(device)[start:], y[start:], columns, threads=9, group_size=9)
        right &= torch.equal(y.cpu(), expected)
    return right


def threadgroup_memory(start: int, device: str) -> bool:
    x, y = torch.randn(33, device=device), torch.zeros(33, device=device)
    library(CASTS).turned(x[1:], y[1:], start, threads=8, group_size=8)
    return torch.equal(y[1:], x[1:].reshape(8, 4).flip(0).reshape(-1)) and not y[0]


def signs(device: str) -> bool:
    x, y = filled(torch.int8, 40), torch.zeros(12, 2, dtype=torch.int32, device=device)
    library(CASTS).widened(x.to(device)[1:], y, threads=12, group_size=12)
    return torch.equal(y.cpu(), torch.stack([x[1:37:3], x[2:38:3]], 1).int())


def typed_parameters(offset: int, device: str) -> bool:
    """Tensors that begin anywhere, for parameters that are vectors."""
    kernels = library(TYPED)
    x, y = torch.randint(-9, 9, (64 + offset,), device=device).float(), torch.zeros(16).to(device)
    right = True
    for part in (x[offset:], x[:64], x[offset:]):
        kernels.sums(part, y, threads=16, group_size=16)
        right &= torch.equal(y, part.reshape(16, 4).sum(1))
    half, by = (filled(torch.half, 40).to(device) for _ in range(2))
    expected = half.clone()
    expected[offset : offset + 32] += by[1:33]
    kernels.added(half[offset:], by[1:], threads=8, group_size=8)
    right &= torch.equal(half, expected)
    for start in (0, offset):
        y = torch.full_like(half, 99)
        kernels.rows_of_16(half[start:], y[start:], 2.0, threads=2, group_size=2)
        right &= torch.equal(y[start : start + 32], 2 * half[start : start + 32])
        right &= bool((y[start + 32 :] == 99).all())
    return right


def lists_and_structs(offset: int, device: str) -> bool:
    kernels = library(TYPED)
    first, second = torch.randn(40, device=device), torch.zeros(40, device=device)
    kernels.both([first[offset:], second[offset + 1 :]], threads=8, group_size=8)
    rows, sums = torch.zeros(8 * 8 + 4, device=device), torch.zeros(8, device=device)
    rows[offset : offset + 64].view(8, 8)[:, :4] = 0.5
    kernels.rows(rows[offset:], sums, threads=8, group_size=8)
    doubled = torch.equal(second[offset + 1 : offset + 33], first[offset : offset + 32] * 2)
    return doubled and sums.tolist() == [2] * 8


def results(device: str) -> dict[str, bool]:
    """Whether each of these is right."""
    found = {
        f"{count} of {type_}, {columns} columns": vectors(type_, count, columns, device)
        for type_, count, columns in itertools.product(TYPES, (2, 4), (4, 5, 6, 7))
    }
    for start in range(5):
        found[f"threadgroup memory at {start}"] = threadgroup_memory(start, device)
    found["signs"] = signs(device)
    for offset in (1, 2, 3):
        found[f"parameters at {offset}"] = typed_parameters(offset, device)
        found[f"lists and structs at {offset}"] = lists_and_structs(offset, device)
    return found


def main() -> int:
    found = results("cuda")
    wrong = [name for name, right in found.items() if not right]
    print(f"{len(found) - len(wrong)} of {len(found)} right", *wrong, sep="\n  ")
    return len(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    options = parser.parse_args()
    if options.compile:
        write_kernels(options.compile, lambda: results("cpu"))
    else:
        sys.exit(main() > 0)
