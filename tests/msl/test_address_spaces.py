"""Address spaces followed through calls and casts: what Apple's compiler refuses, and its twins."""

from __future__ import annotations

import pytest
from tests.msl.sources import HEADER, kernel

import anymetal
from anymetal.engines.cpu.target import HOST
from anymetal.errors import KernelSyntaxError
from anymetal.msl import prepare
from anymetal.msl.check_spaces import check_spaces
from anymetal.nouns import Source

THREAD = "float first(thread float* p) { return p[0]; }\n"
GENERIC = "template <typename T> T first(const thread T* p) { T a = p[0]; return a; }\n"
TILE = "template <typename T> T first(threadgroup T* p) { return p[0]; }\n"
CAST = r"C-style cast from 'thread float \*' to 'device float \*' converts between mismatching"

# A refused source, the message, and its accepted twin.
ROWS = {
    "call": (
        kernel("x[i] = first(x);", before=THREAD),
        "no matching function for call to 'first'",
        kernel("float a = x[i]; x[i] = first(&a);", before=THREAD),
    ),
    "call-template": (
        kernel("x[i] = first(x);", before=GENERIC),
        "no matching function for call to 'first'",
        kernel("float a[2] = {x[i]}; x[i] = first(a) + first(&a[1]);", before=GENERIC),
    ),
    "call-threadgroup-template": (
        kernel("x[i] = first(x);", before=TILE),
        "no matching function for call to 'first'",
        kernel("threadgroup float t[4]; t[0] = 1; x[i] = first(t) + first(&t[0]);", before=TILE),
    ),
    "call-overloads": (
        kernel("x[i] = first(x);", before=THREAD + "float first(threadgroup float* p, int n);\n"),
        "no matching function for call to 'first'",
        kernel(
            "x[i] = first(x);", before=THREAD + "float first(device float* p) { return p[0]; }\n"
        ),
    ),
    "array-of-a-constant": (
        kernel("x[i] = first(table);", before=THREAD + "constant float table[2] = {1, 2};\n"),
        "no matching function for call to 'first'",
        kernel(
            "x[i] = first(table);",
            before="float first(constant float* p) { return p[0]; }\n"
            "constant float table[2] = {1, 2};\n",
        ),
    ),
    "c-cast": (
        kernel("float a = 1; device float* p = (device float*)&a; x[i] = *p;"),
        CAST,
        kernel("float a = 1; thread uint* p = (thread uint*)&a; x[i] = *p + *(device uint*)x;"),
    ),
    "reinterpret-cast": (
        kernel("float a = 1; x[i] = *reinterpret_cast<device float*>(&a);"),
        r"reinterpret_cast from 'thread float \*' to 'device float \*' is not allowed",
        kernel("x[i] = *reinterpret_cast<const device uint*>(x + 1);"),
    ),
    "returned": (
        kernel("x[i] = *same(x);", before="thread float* same(device float* p) { return p; }\n"),
        r"cannot initialize return object of type 'thread float \*' with an lvalue of type"
        r" 'device float \*'",
        kernel("x[i] = *same(x);", before="device float* same(device float* p) { return p; }\n"),
    ),
    "assigned": (
        kernel("threadgroup float t[4]; t[i] = 1; device float* p = x; p = t; x[i] = *p;"),
        "assigning to 'device float",
        kernel("threadgroup float t[4]; t[i] = 1; threadgroup float* p = t; p = t + 1;"),
    ),
    "member": (
        kernel("S s; s.p = x; x[i] = *s.p;", before="struct S { thread float* p; };\n"),
        "changes address space of pointer",
        kernel("S s; s.p = x; x[i] = *s.p;", before="struct S { device float* p; };\n"),
    ),
}

# Right, and near to what a checker without Metal's own headers gets wrong.
ACCEPTED = """
#include <metal_simdgroup_matrix>
struct Pair {
  float a, b;
  device float* first() device { return &a; }
  float sum() const { return a + b; }
  float sum() const device { return a + b; }
  float sum() const constant { return a + b; }
};
struct Loader {
  const device float4* source;
  threadgroup float* tile;
  Loader(const device float4* s, threadgroup float* t) : source(s), tile(t) {}
  void load(uint i) { tile[i] = source[i].x + source[i].yz.x; }
};
template <typename T, typename P> void copy(P from, device T* to) { *to = T(*from); }
template <typename T> T get(device T* p) { return *p; }
template <typename T> T get(threadgroup T* p) { return *p; }
template <typename T> T get(const constant T* p) { return *p; }
constant constexpr uint N = 32;
constant float table[N] = {1};
kernel void k(device float* x [[buffer(0)]], const device float4* v [[buffer(1)]],
              constant Pair& pair [[buffer(2)]], device Pair* pairs [[buffer(3)]],
              device atomic_uint* count [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  threadgroup float tile[N];
  threadgroup float4 wide[N / 4];
  Loader loader(v, tile);
  loader.load(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float4 value = v[i] * 2 + float4(pair.a);
  auto place = tile + 1;
  const device float* elements = (const device float*)v;
  device float* from_number = (device float*)(ulong)x;
  copy(place, x);
  copy(elements, x);
  *pairs[i].first() = pairs[i].sum() + pair.sum();
  Pair mine = pairs[i];
  thread float* inside = &mine.a;
  simdgroup_float8x8 matrix;
  simdgroup_load(matrix, x);
  simdgroup_store(matrix, tile, 8);
  wide[0] = v[0];
  threadgroup float* flat = (threadgroup float*)wide;
  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
  x[i] = get(x) + get(tile) + get(table) + value.x + *inside + flat[0] + mine.sum() +
         *(i > 1 ? x : x + 1) + from_number[0];
}
"""


@pytest.mark.parametrize("row", ROWS)
def test_row(row: str) -> None:
    refused, message, accepted = ROWS[row]
    with pytest.raises(KernelSyntaxError, match=message):
        check_spaces(prepare(Source(HEADER + refused)), HOST)
    check_spaces(prepare(Source(HEADER + accepted)), HOST)


def test_right_kernels_pass() -> None:
    check_spaces(prepare(Source(HEADER + ACCEPTED)), HOST)


def test_compile_shader_looks_unless_told_otherwise() -> None:
    refused, message, accepted = ROWS["call"]
    anymetal.compile_shader(HEADER + accepted)
    anymetal.compile_shader(HEADER + refused, strict=False)
    with pytest.raises(SyntaxError, match=message) as caught:
        anymetal.compile_shader(HEADER + refused)
    assert "<shader>:5:10: error:" in str(caught.value)
    assert "  x[i] = first(x);\n         ^" in str(caught.value)
    assert "cannot pass pointer to address space 'device' as a pointer to" in str(caught.value)
    with pytest.raises(TypeError, match="strict is 1"):
        anymetal.compile_shader(HEADER + accepted, strict=1)  # type: ignore[arg-type]
