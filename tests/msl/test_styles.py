"""Sources in the styles of the projects that ship Metal kernels: they compile, and some are run."""

from __future__ import annotations

import pytest
import torch
from tests.msl.sources import HEADER, check_all, compiled, kernel, prepared

import anymetal
from anymetal.msl import prepare
from anymetal.nouns import Source

ARRAY_LIBRARY = """
#define LIB_CONST static constant constexpr const
#define LIB_UNROLL _Pragma("clang loop unroll(full)")

LIB_CONST int kReads = 4;
constant bool align_rows [[function_constant(200)]];
constant bool has_batch [[function_constant(10)]];

template <typename U>
struct Limits {
  static constexpr constant U min = metal::numeric_limits<U>::lowest();
};
template <>
struct Limits<float> {
  static constexpr constant float min = -metal::numeric_limits<float>::infinity();
};

template <typename T> struct Sum {
  template <typename U> METAL_FUNC U operator()(U a, U b) { return a + b; }
  static constexpr constant T init = T(0);
};
template <typename T> struct Max {
  template <typename U> METAL_FUNC U operator()(U a, U b) { return a > b ? a : b; }
  static constexpr constant T init = Limits<T>::min;
};

template <typename IdxT = long>
METAL_FUNC IdxT elem_to_loc(uint elem, constant const int* shape, constant const long* strides,
                            int ndim) {
  IdxT loc = 0;
  for (int i = ndim - 1; i >= 0 && elem > 0; --i) {
    loc += (elem % shape[i]) * IdxT(strides[i]);
    elem /= shape[i];
  }
  return loc;
}

template <typename T, short BROWS, short BCOLS, bool kAlign = false>
struct Loader {
  LIB_CONST short n_reads = (BCOLS * BROWS) / 32;
  LIB_CONST short TCOLS = BCOLS / n_reads;
  const int src_ld;
  const short bi;
  const short bj;
  threadgroup T* dst;
  const device T* src;

  METAL_FUNC Loader(const device T* src_, const int src_ld_, threadgroup T* dst_,
                    ushort lane [[thread_index_in_simdgroup]])
      : src_ld(src_ld_), bi(lane / TCOLS), bj(n_reads * (lane % TCOLS)),
        dst(dst_ + bi * BCOLS + bj), src(src_ + bi * src_ld + bj) {}

  METAL_FUNC void load() const {
    LIB_UNROLL
    for (short j = 0; j < n_reads; ++j) {
      dst[j] = src[j];
    }
  }
};

namespace lib {
namespace detail {
template <typename T, typename Acc, typename Op, int N = kReads>
[[kernel, max_total_threads_per_threadgroup(N * 64)]] void reduce_rows(
    const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
    constant const int& columns [[buffer(2)]],
    const constant long* batch [[buffer(3), function_constant(has_batch)]],
    uint3 gid [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup Acc shared[32];
  Op op;
  Acc total = Op::init;
  in += gid.x * columns + (has_batch ? batch[0] : 0);
  for (int c = lane; c < columns; c += 32) {
    total = op(static_cast<Acc>(in[c]), total);
  }
  shared[lane] = total;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) {
    for (int l = 1; l < 32; ++l) total = op(total, shared[l]);
    out[gid.x] = static_cast<T>(total);
  }
}
}  // namespace detail
}  // namespace lib

#define instantiate_kernel(name, func, ...) \\
  template [[host_name(name)]] [[kernel]] decltype(func<__VA_ARGS__>) func<__VA_ARGS__>;
#define instantiate_reduce(tname, type) \\
  instantiate_kernel("sum_" #tname, lib::detail::reduce_rows, type, float, Sum<float>) \\
  instantiate_kernel("max_" #tname, lib::detail::reduce_rows, type, type, Max<type>, 2)

instantiate_reduce(float32, float)
instantiate_reduce(bfloat16, bfloat)
"""


def test_array_library_style() -> None:
    library = anymetal.compile_shader(HEADER + ARRAY_LIBRARY)
    assert sorted(dir(library)) == ["max_bfloat16", "max_float32", "sum_bfloat16", "sum_float32"]
    x = torch.randn(5, 77).bfloat16()
    y = torch.zeros(5).bfloat16()
    kernel_ = library.specialize("max_bfloat16", {"has_batch": False})
    assert kernel_.max_threads_per_threadgroup == 128
    kernel_(x, y, 77, threads=(5 * 32, 1, 1), group_size=(32, 1, 1), arg_casts="int32")
    assert torch.equal(y, x.amax(1))


INFERENCE_LIBRARY = """
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define N_ROWS 2
typedef struct { int32_t ne00; int32_t ne01; uint64_t nb01; float scale; } kargs_mul;
typedef struct { half d; uint8_t qs[4]; } block_q;
typedef half half4x4_alias;

template <typename type4x4>
void dequantize_q(device const block_q* xb, short il, thread type4x4& reg) {
  device const uint16_t* qs = ((device const uint16_t*)xb + 1);
  const float d = xb->d;
  for (int i = 0; i < 2; i++) {
    reg[i / 2][2 * (i % 2) + 0] = d * (qs[i] & 0xFF);
    reg[i / 2][2 * (i % 2) + 1] = d * (qs[i] >> 8);
  }
}

template <typename T0, typename T1, short NR0, typename args_t>
static inline void mul_mv_impl(args_t args, device const char* src0, device const char* src1,
                               device char* dst, threadgroup char* shmem, uint3 tgpig,
                               ushort tiisg) {
  device const T1* y = (device const T1*)src1;
  device float* dst_f32 = (device float*)dst;
  threadgroup float* shmem_f32 = (threadgroup float*)shmem;
  float sumf[NR0] = {0.f};
#pragma unroll(MIN(4, NR0))
  for (short row = 0; row < NR0; ++row) {
    device const T0* x = (device const T0*)(src0 + (tgpig.x * NR0 + row) * args.nb01);
    for (int i = tiisg; i < args.ne00; i += 32) sumf[row] += (float)x[i] * (float)y[i];
    sumf[row] = simd_sum(sumf[row]);
    if (tiisg == 0 && tgpig.x * NR0 + row < (uint)args.ne01) {
      shmem_f32[row] = sumf[row] * args.scale;
      dst_f32[tgpig.x * NR0 + row] = shmem_f32[row];
    }
  }
}

template <typename T0, typename T1>
kernel void kernel_mul_mv(constant kargs_mul& args, device const char* src0,
                          device const char* src1, device char* dst,
                          threadgroup char* shmem [[threadgroup(0)]],
                          uint3 tgpig [[threadgroup_position_in_grid]],
                          ushort tiisg [[thread_index_in_simdgroup]]) {
  mul_mv_impl<T0, T1, N_ROWS, constant kargs_mul&>(args, src0, src1, dst, shmem, tgpig, tiisg);
}

typedef decltype(kernel_mul_mv<half, half>) mul_mv_t;
template [[host_name("mul_mv_f32")]] kernel mul_mv_t kernel_mul_mv<float, float>;
template [[host_name("mul_mv_f16")]] kernel mul_mv_t kernel_mul_mv<half, float>;

template <typename block_t, short nl,
          void (*dequantize)(device const block_t*, short, thread float4x4&)>
kernel void kernel_get_rows(device const void* src0, device float* dst,
                            uint i [[thread_position_in_grid]]) {
  float4x4 temp = float4x4(0);
  dequantize(((device const block_t*)src0) + i / nl, i % nl, temp);
  *(((device float4x4*)dst) + i) = temp;
}
typedef decltype(kernel_get_rows<block_q, 1, dequantize_q>) get_rows_t;
template [[host_name("get_rows_q")]] kernel get_rows_t kernel_get_rows<block_q, 1, dequantize_q>;
"""


def test_inference_library_style() -> None:
    library = anymetal.compile_shader(HEADER + INFERENCE_LIBRARY)
    assert sorted(dir(library)) == ["get_rows_q", "mul_mv_f16", "mul_mv_f32"]
    matrix, vector = torch.randn(4, 40).half(), torch.randn(40)
    arguments = torch.zeros(24, dtype=torch.uint8)
    arguments[:8].view(torch.int32)[:] = torch.tensor([40, 4])
    arguments[8:16].view(torch.int64)[:] = 80
    arguments[16:20].view(torch.float32)[:] = 2.0
    out = torch.zeros(4)
    library.mul_mv_f16(
        arguments,
        matrix,
        vector,
        out,
        threads=(64, 1, 1),
        group_size=(32, 1, 1),
        threadgroup_memory={0: 32},
    )
    torch.testing.assert_close(out, 2 * (matrix.float() @ vector), rtol=1e-5, atol=1e-5)


TORCH_OPERATOR = """
#include <c10/metal/indexing.h>
#include <c10/metal/special_math.h>
#include <c10/metal/utils.h>
#include <metal_stdlib>
using namespace metal;

struct scaled_erf_functor {
  template <typename T>
  inline enable_if_t<::metal::is_floating_point_v<T>, T> operator()(const T a, const T b) {
    return static_cast<T>(::c10::metal::erf(static_cast<float>(a)) * static_cast<float>(b));
  }
};

template <typename T, typename F>
kernel void apply_binary(device T* out [[buffer(0)]], constant T* a [[buffer(1)]],
                         constant T* b [[buffer(2)]], uint index [[thread_position_in_grid]]) {
  F f;
  out[index] = f(a[index], b[index]);
}
#define REGISTER(NAME, TYPE)                                             \\
  template [[host_name(#NAME "_" #TYPE)]] kernel void                    \\
  apply_binary<TYPE, NAME##_functor>(device TYPE * out [[buffer(0)]],    \\
                                     constant TYPE * a [[buffer(1)]],    \\
                                     constant TYPE * b [[buffer(2)]],    \\
                                     uint index [[thread_position_in_grid]])
REGISTER(scaled_erf, float);
REGISTER(scaled_erf, half);
REGISTER(scaled_erf, bfloat);
"""


def test_torch_operator_style() -> None:
    library = anymetal.compile_shader(TORCH_OPERATOR)
    a, b = torch.randn(100).half(), torch.randn(100).half()
    out = torch.zeros(100).half()
    library.scaled_erf_half(out, a, b)
    expected = torch.erf(a.float()) * b.float()
    torch.testing.assert_close(out.float(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "source",
    [
        # local classes, enums and unions
        kernel(
            "struct P { float a; float sum(float b) const { return a + b; } }; x[i] = P{1}.sum(2);"
        ),
        kernel("enum { A = 2, B }; union { uint u; float f; } v; v.f = x[i]; x[i] = v.u + A;"),
        # lambdas in and around templates
        kernel(
            "auto scan = [&](auto f, thread float& seed) -> float { return f(seed) + x[i]; };"
            " float s = 1; x[i] = scan([=](float v) { return v * 2; }, s);"
        ),
        "constant auto square = [](float a) { return a * a; };\n" + kernel("x[i] = square(x[i]);"),
        # nested and variadic templates
        "template <template <typename> class Op, typename T> T run(T a) { return Op<T>()(a); }\n"
        "template <typename T> struct Twice { T operator()(T a) const { return a + a; } };\n"
        + kernel("x[i] = run<Twice>(x[i]);"),
        "template <typename... Ts> float sum(Ts... v) { return (0.0f + ... + v); }\n"
        + kernel("x[i] = sum(1, 2.0h, 3.0);"),
        "template <int... N> struct list {}; template <int... N> int count(list<N...>) "
        "{ return sizeof...(N); }\n" + kernel("x[i] = count(list<1, 2, 3>());"),
        # variable templates and constants in classes
        "template <typename T> constant constexpr T third = T(1) / T(3);\n"
        + kernel("x[i] = third<float> + third<half>;"),
        "struct C { static constant constexpr int n = 4; static constant constexpr float v[2] = "
        "{1, 2}; };\n" + kernel("float a[C::n] = {}; x[i] = a[0] + C::v[i % 2];"),
        # argument buffers
        "struct Arguments { device float* data [[id(0)]]; constant uint* sizes [[id(1)]]; };\n"
        + kernel(
            "a.data[i] = a.sizes[0];",
            "constant Arguments& a [[buffer(0)]], uint i [[thread_position_in_grid]]",
        ),
        kernel(
            "p[1][i] = p[0][i];",
            "constant array<device float*, 2>& p, uint i [[thread_position_in_grid]]",
        ),
        kernel(
            "p[1][i] = p[0][i];",
            "device float* const device* p, uint i [[thread_position_in_grid]]",
        ),
        # control flow that looks like declarations
        kernel(
            "for (uint n = 0, m = 4; n < m; ++n, --m) { switch (n) { case 0: { break; } "
            "default: continue; } }"
        ),
        kernel("if (auto v = x[i]; v > 0) x[i] = -v; else if (v < 0) x[i] = v;"),
        kernel("do { x[i] *= 2; } while (x[i] < 10 && x[i] > (float)0.5);"),
        kernel("float a[] = {1, 2}; for (thread auto& v : a) v = 1; auto [p, q] = float2(1);"),
        # attributes everywhere
        kernel("[[maybe_unused]] float a = 1; if (i) [[likely]] x[i] = 1;"),
        "[[nodiscard]] inline float f(float a [[maybe_unused]]) { return 1; }\n"
        + kernel("x[i] = f(1);"),
        "struct __attribute__((packed)) P { char a; int b; };\n" + kernel("x[i] = sizeof(P);"),
        "struct alignas(16) P { int b; };\n" + kernel("x[i] = alignof(P);"),
        # comparisons that look like templates
        kernel("int a = 1, b = 2, c = 3; bool t = a < b && b > (c); x[i] = t ? a < b : a > b;"),
        # operators
        "struct V { float a; V operator+(V b) const { return V{a + b.a}; } bool operator<(V b) "
        "const { return a < b.a; } operator float() const { return a; } float operator()(int n) "
        "const { return n; } };\n" + kernel("V v{1}; x[i] = (v + v < v) + float(v) + v(2);"),
        "struct V { float a; };\nthread V& operator+=(thread V& a, V b) { a.a += b.a; return a; }\n"
        + kernel("V v{1}; v += v; x[i] = v.a;"),
        # out of class, forward declarations, prototypes
        "struct S; float get(thread const S& s);\nstruct S { float v; float twice() const; };\n"
        "float S::twice() const { return 2 * v; }\nfloat get(thread const S& s) { return s.v; }\n"
        + kernel("S s{2}; x[i] = get(s) + s.twice();"),
        "kernel void k(device float* x, uint i);\n".replace("kernel ", "inline ")
        + kernel("x[i] = 1;").replace("k(", "other("),
        # preprocessor
        "#if __METAL_VERSION__ >= 310 && defined(__METAL__)\n#define YES 1\n#endif\n"
        + kernel("x[i] = YES;"),
        "#ifdef __HAVE_BFLOAT__\n#define B bfloat\n#endif\n" + kernel("x[i] = float(B(1));"),
        # recursion
        "uint factorial(uint n) { return n < 2 ? 1 : n * factorial(n - 1); }\n"
        + kernel("x[i] = factorial(3);"),
    ],
)
def test_construct_compiles(source: str) -> None:
    unit = prepared(source)
    compiled(source, next(iter(unit.entry_points)))


def test_metal_without_using_namespace() -> None:
    source = "#include <metal_stdlib>\n" + kernel(
        "x[i] = metal::exp(x[i]) + metal::simd_sum(1.0f);",
        "device float* x, metal::uint3 p [[thread_position_in_grid]], "
        "uint i [[thread_index_in_simdgroup]]",
    )
    check_all(prepare(Source(source)))
