"""Kernels for the engine that runs simdgroups as vectors, each a body between the same braces.

A body sees its thread's number `i` in the grid, `v` and `w` (an integer and a float that differ
from thread to thread), `lane`, `index`, `simd`, `group`, `in_group`, `size`, and writes to `out`.
"""

from __future__ import annotations

PROLOGUE = """#include <metal_stdlib>
using namespace metal;
"""
SIGNATURE = """
kernel void f(device const uint* x, device const float* y, device uint* out,
              device atomic_uint* counters,
              uint3 in_grid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
              uint3 in_group [[thread_position_in_threadgroup]],
              uint3 group [[threadgroup_position_in_grid]],
              uint3 size [[threads_per_threadgroup]],
              uint index [[thread_index_in_threadgroup]],
              uint lane [[thread_index_in_simdgroup]],
              uint simd [[simdgroup_index_in_threadgroup]],
              uint simds [[simdgroups_per_threadgroup]]) {
  const uint i = (in_grid.z * grid.y + in_grid.y) * grid.x + in_grid.x;
  const uint v = x[i];
  const float w = y[i];
"""


def source(body: str, before: str = "") -> str:
    return f"{PROLOGUE}{before}{SIGNATURE}{body}\n}}\n"


# Name -> body, or (body, declarations before the kernel).
CASES: dict[str, str | tuple[str, str]] = {
    "early_return": """
  if (v % 3 == 0) return;
  out[i] = simd_sum(v % 100);
  if (lane > 20) return;
  out[i] += simd_max(v) ^ popcount(v);""",
    "loop_left_by_break_and_continue": """
  uint total = 0;
  for (uint k = 0; k < v % 29; ++k) {
    if ((k + lane) % 4 == 1) continue;
    total += k * v;
    if (total % 7 == 3) break;
    total ^= simd_sum(k);
  }
  out[i] = total + simd_sum(total & 15);""",
    "uniform_loop_with_nested_divergence": """
  uint total = v;
  for (uint k = 0; k < 9; ++k) {
    if (total & 1) {
      if (total & 2) total = total / 2 + lane;
      else total += simd_sum(k + lane);
    } else if (k == 5) {
      total ^= simd_or(v);
    }
    total = total * 3 + k;
  }
  out[i] = total;""",
    "loops_in_loops_with_returns": """
  uint total = 0;
  for (uint a = 0; a < v % 5; ++a) {
    for (uint b = 0; b < w * 4; ++b) {
      total += a * b + simd_min(v % 50);
      if (total > 3000) { out[i] = total; return; }
      if (total % 5 == 4) break;
    }
    out[i] = total;
  }
  out[i] ^= 77;""",
    "switch_with_fall_through": """
  uint total = lane;
  switch (v % 7) {
    case 0: total += 5; break;
    case 1: total *= 3;
    case 2: total += simd_sum(lane); break;
    case 4: { for (uint k = 0; k < lane; ++k) total += k; } break;
    case 5: out[i] = 9; return;
    default: total ^= 1023;
  }
  out[i] = total;""",
    "private_array_with_varying_index": """
  uint history[13];
  for (uint k = 0; k < 13; ++k) history[k] = v + k * k;
  for (uint k = 0; k < 40; ++k) history[(v + k * lane) % 13] += history[(v >> k % 20) % 13] + k;
  uint total = 0;
  for (uint k = 0; k < 13; ++k) total = total * 31 + history[k];
  out[i] = total;""",
    "private_array_written_under_divergence": """
  uchar bytes[24];
  for (uint k = 0; k < 24; ++k) bytes[k] = uchar(k);
  if (v & 1) for (uint k = 0; k < v % 24; ++k) bytes[(k * 5 + lane) % 24] ^= uchar(v >> k % 8);
  uint total = 0;
  for (uint k = 0; k < 24; ++k) total = total * 7 + bytes[k];
  out[i] = total;""",
    "structures": (
        """
  Particle particles[3];
  for (uint k = 0; k < 3; ++k) {
    particles[k].place = float3(w, float(k), float(lane));
    particles[k].kind = short(v + k);
    particles[k].flag = (v >> k) & 1;
  }
  Particle chosen = particles[v % 3];
  if (chosen.flag) chosen = moved(chosen, particles[(v + 1) % 3]);
  particles[v % 2] = chosen;
  out[i] = as_type<uint>(particles[0].place.x + particles[1].place.z) ^ uint(particles[0].kind)
           ^ uint(particles[1].flag) << 20;""",
        """
struct Particle { float3 place; short kind; bool flag; };
Particle moved(Particle a, Particle b) {
  a.place += b.place * 0.5f;
  a.kind = a.kind > b.kind ? b.kind : short(a.kind + 1);
  return a;
}
""",
    ),
    "narrow_and_wide_types": """
  half h = half(w) * 1.5h + half(lane);
  bfloat b = bfloat(w) + bfloat(2.0f);
  char c = char(v) * char(3);
  short s = short(short(v) - short(c));
  long l = long(v) * 123456789012l - s;
  ulong u = ulong(l) >> (v % 40);
  half4 hs = half4(h, h + 1.0h, half(c), 2.0h);
  if (s > 0) { h = sqrt(abs(h)); b = -b * b; l /= (c | 1); }
  hs = select(hs, hs.wzyx, hs > 3.0h);
  out[i] = as_type<ushort>(h) ^ uint(as_type<ushort>(b)) << 16 ^ uint(l) ^ uint(l >> 32) ^ uint(u)
           ^ as_type<uint2>(hs).x ^ as_type<uint2>(hs).y ^ uint(c) ^ uint(s);""",
    "narrow_buffers": """
  device uchar* bytes = (device uchar*)(out + 4096);
  device half* halves = (device half*)(out + 8192);
  device const ushort* shorts = (device const ushort*)x;
  bytes[i] = uchar(shorts[i] + shorts[2 * i + 1]);
  if (v & 2) halves[i * 3 + v % 3] = half(w);
  out[i] = shorts[(v >> 3) % 64] + bytes[i];""",
    "vectors_of_four": """
  device const float4* rows = (device const float4*)y;
  device float4* results = (device float4*)(out + 4096);
  float4 row = rows[i % 200];
  results[i] = row.wxzy * 2.0f + float4(w);
  if (any(row > 0.9f)) results[i].y = dot(row, row);
  if (all(row.xyz > 0.2f)) results[i].zw = row.xy;
  device packed_float3* tight = (device packed_float3*)(out + 12288);
  tight[i] = row.xyz;
  out[i] = as_type<uint>(length(float3(tight[i])));""",
    "shuffles": """
  uint total = simd_shuffle(v, 5) + simd_shuffle_xor(v, 7) * 3 + simd_broadcast(v, 2);
  total ^= simd_shuffle(v, ushort(v % 32)) + simd_shuffle_up(v, 3);
  total += simd_shuffle_down(v, 1 + simd) + simd_shuffle_rotate_down(v, 9);
  total ^= quad_broadcast(v, 1) + quad_shuffle_xor(v, 2);
  if (v & 1) total += simd_broadcast_first(v) + simd_prefix_exclusive_sum(v % 9);
  out[i] = total ^ simd_prefix_inclusive_sum(v % 5);""",
    "votes": """
  uint total = simd_all(v > 2) * 2 + simd_any(v % 50 == 1) + simd_is_first() * 4;
  if (v % 3 == 1) total += uint(ulong(simd_ballot(v & 4))) + simd_is_first() * 8;
  out[i] = total ^ uint(ulong(simd_active_threads_mask()));""",
    "reductions_of_floats": """
  float total = simd_sum(w) + simd_max(w * 3.0f);
  if (v & 1) total -= simd_product(1.0f + w * 0.01f);
  out[i] = as_type<uint>(total);""",
    "barriers_in_loops": """
  threadgroup uint tile[1024];
  threadgroup uint sums[32];
  tile[index] = v % 1000;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint count = size.x * size.y * size.z;
  for (uint step = 1; step < count; step *= 2) {
    uint other = index >= step ? tile[index - step] : 0;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile[index] += other;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  uint part = simd_sum(v % 10);
  if (simd_is_first()) sums[simd] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint total = 0;
  for (uint k = 0; k < simds; ++k) total += sums[k];
  out[i] = tile[index] * 7 + total;""",
    "barrier_after_returns": """
  threadgroup uint tile[1024];
  tile[index] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (index % 3 == 1) return;
  uint other = tile[(index + 1) % (size.x * size.y * size.z)];
  for (uint k = 0; k < v % 4; ++k) other += simd_sum(k);
  out[i] = other;""",
    "atomics_of_all_lanes_at_one_place": """
  threadgroup atomic_uint a[8];
  threadgroup atomic_int b[2];
  if (index < 8) atomic_store_explicit(&a[index], index * 77777, memory_order_relaxed);
  if (index < 2) atomic_store_explicit(&b[index], -5, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int s = int(v % 4000) - 2000;
  uint r = atomic_fetch_add_explicit(&a[0], v, memory_order_relaxed);
  r = r * 3 + atomic_fetch_sub_explicit(&a[1], v % 5, memory_order_relaxed);
  r = r * 3 + atomic_fetch_and_explicit(&a[2], v | 0xf0f0, memory_order_relaxed);
  r = r * 3 + atomic_fetch_or_explicit(&a[3], v & 0x1111, memory_order_relaxed);
  r = r * 3 + atomic_fetch_xor_explicit(&a[4], v, memory_order_relaxed);
  r = r * 3 + atomic_fetch_min_explicit(&a[5], v, memory_order_relaxed);
  r = r * 3 + atomic_fetch_max_explicit(&a[6], v, memory_order_relaxed);
  r = r * 3 + uint(atomic_fetch_min_explicit(&b[0], s, memory_order_relaxed));
  r = r * 3 + uint(atomic_fetch_max_explicit(&b[1], s, memory_order_relaxed));
  if (v % 3) r += atomic_fetch_add_explicit(&a[7], 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = r ^ atomic_load_explicit(&a[index % 8], memory_order_relaxed)
             ^ uint(atomic_load_explicit(&b[index % 2], memory_order_relaxed));""",
    "atomics_that_commute": """
  atomic_fetch_add_explicit(&counters[v % 16], 1, memory_order_relaxed);
  if (v & 1) atomic_fetch_max_explicit(&counters[16], v, memory_order_relaxed);
  else atomic_fetch_xor_explicit(&counters[17 + lane % 3], v, memory_order_relaxed);
  out[i] = v;""",
    "recursion_under_divergence": (
        "if (v % 3) out[i] = fibonacci(v % 9) + hidden(int(v % 7), uchar(v), v & 8);",
        """
uint fibonacci(uint n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
static uint hidden(int n, uchar a, bool b) {
  return n <= 0 ? a * 2 + b : hidden(n - 1, uchar(a * 3), !b) + hidden(n - 2, uchar(a + n), b);
}
""",
    ),
    "recursion_with_structures": (
        """
  Big big;
  for (int k = 0; k < 12; ++k) big.a[k] = int(v) * k;
  if (v % 5 != 2) out[i] = uint(sum(big, int(v % 7))) + uint(made(int(v), int(v % 6)).a[3]);""",
        """
struct Big { int a[12]; };
int sum(Big big, int n) {
  if (n <= 0) return big.a[0] + big.a[11];
  big.a[n % 12] += n;
  return sum(big, n - 1) + big.a[(n + 1) % 12];
}
Big made(int v, int n) {
  Big big;
  if (n <= 0) { for (int k = 0; k < 12; ++k) big.a[k] = v * k; return big; }
  big = made(v + n, n - 1);
  big.a[n % 12] ^= v;
  return big;
}
""",
    ),
    "division_guarded_by_a_branch": """
  int divisor = int(v % 5) - 1;
  if (divisor != 0) out[i] = uint(int(v) / divisor + int(v >> 3) % divisor);
  if (v % 7) out[i] ^= 12345u % (v % 7);
  long wide = v & 1;
  if (wide) out[i] += uint(long(w * 100.0f) / wide);""",
    "sign_of_a_comparison_of_lanes": """
  out[i] = uint(-int(lane < 13)) + uint(int(v % 9 > lane) - int(v % 9 < lane)) * 100;""",
    "bits_below_and_above_the_lane": """
  device uint* pairs = out + 4096;
  pairs[index * 2 + ((lane & 1) ^ 1)] = v;
  out[i] = (index ^ 5) + (index | 64) * 3 + (index & 24) * 7 + (index >> 2);""",
    "index_that_wraps_around": """
  out[4096 + uchar(index + 250)] = v;
  out[i] = x[ushort(index + 65530) % 64] + x[(index - 3) % 50];""",
    "math": """
  out[i] = as_type<uint>(exp(w) + sin(w * 9.0f) * pow(w, 3.0f) - log(w + 1.0f)
           + fmod(w * 7.0f, 0.3f) + round(w * 5.0f) + clamp(w, 0.3f, 0.6f)
           + float(clz(v)) + rsqrt(w + 0.1f));""",
    "saturated_integers": """
  int a = int(v) * 123457;
  out[i] = uint(addsat(a, int(v) << 24) ^ subsat(a, 7) ^ madsat(a, 3, int(v)) ^ mulhi(a, int(~v)))
           ^ reverse_bits(v) ^ rotate(v, lane) ^ absdiff(v, 77u)
           ^ extract_bits(v, 3u, lane % 8);""",
    "pointers_to_one_of_two_arrays": """
  uint a[5], b[5];
  for (uint k = 0; k < 5; ++k) { a[k] = v + k; b[k] = v * k; }
  thread uint* varying = v & 1 ? a : b;
  varying[v % 5] += 3;
  thread uint* uniform = x[group.x] & 1 ? a : b;
  uniform[lane % 5] ^= 9;
  out[i] = a[lane % 5] + b[(v >> 3) % 5] * 3 + *varying;""",
    "tables_of_constants": (
        "out[i] = table[v % 10] + pairs[lane % 4].y + table[lane % 10] * table[3];",
        """
constant uint table[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
constant uint2 pairs[4] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
""",
    ),
    "loop_left_by_a_vote": """
  uint n = v % 50, rounds = 0;
  do {
    if (n > 3) n -= 3;
    ++rounds;
    if (simd_all(n < 20)) break;
  } while (rounds < 40);
  out[i] = n * 100 + rounds;""",
    "uniform_loops_under_divergence": """
  uint total = 0;
  if (v % 2) {
    uint k = 0;
    while (k < x[group.x] % 6 + 2) { total += x[k]; ++k; }
    total += k;
  } else {
    for (uint k = 0; k < 3; ++k) total ^= x[k + 5] * k;
  }
  out[i] = total + x[7];""",
    "addresses_that_step_through_loops": """
  uint total = 0, place = lane;
  for (uint k = 0; k < v % 6; ++k) { total += x[place]; place += 32; }
  for (uint k = i; k < 700; k += size.x) total ^= x[k];
  out[i] = total + place;""",
    "addresses_that_go_down": """
  out[i] = x[2000 - i * 2] + x[2001 - i * 2] + x[1000 - lane] + x[(31 - lane) * 4 + 2];
  out[9000 - i] = v;""",
    "nibbles": """
  device const uchar* bytes = (device const uchar*)x;
  device const ushort* shorts = (device const ushort*)x;
  uint total = 0;
  for (uint k = 0; k < 8; ++k) {
    uchar b = bytes[lane * 8 + k];
    total += (b & 15) * k + (b >> 4) * (k + 1);
  }
  for (uint k = 0; k < 4; ++k) total ^= shorts[lane * 4 + k] << k;
  out[i] = total;""",
    "histogram_of_a_threadgroup": """
  threadgroup atomic_uint bins[16];
  if (index < 16) atomic_store_explicit(&bins[index], 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (v % 3) atomic_fetch_add_explicit(&bins[v % 16], v % 5, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = index < 16 ? atomic_load_explicit(&bins[index], memory_order_relaxed) : v;""",
    "updates_whose_results_nobody_uses": """
  threadgroup atomic_uint bins[256], sums[256];
  threadgroup atomic_int marks[64];
  for (uint k = index; k < 256; k += size.x) {
    atomic_store_explicit(&bins[k], 3, memory_order_relaxed);
    atomic_store_explicit(&sums[k], k, memory_order_relaxed);
    if (k < 64) atomic_store_explicit(&marks[k], 500000, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uchar4 four = ((device const uchar4*)x)[i];
  atomic_fetch_add_explicit(&bins[four.w], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&bins[four.x], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&bins[four.y], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&bins[four.z], 1, memory_order_relaxed);
  const ushort2 two = ((device const ushort2*)x)[i];
  atomic_fetch_xor_explicit(&sums[two.x % 256], v, memory_order_relaxed);
  atomic_fetch_xor_explicit(&sums[two.y + lane], w * 9, memory_order_relaxed);
  atomic_fetch_min_explicit(&marks[v % 64], int(v) - 700000, memory_order_relaxed);
  atomic_fetch_min_explicit(&marks[i % 61], 700000 - int(v), memory_order_relaxed);
  if (lane < 9) atomic_fetch_min_explicit(&marks[v % 59], int(v) - 900000, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint total = 0;
  for (uint k = index; k < 256; k += size.x)
    total = total * 31 + atomic_load_explicit(&bins[k], memory_order_relaxed)
            + 7 * atomic_load_explicit(&sums[k], memory_order_relaxed)
            + atomic_load_explicit(&marks[k % 64], memory_order_relaxed);
  out[i] = total;""",
    "vectors_in_padded_rows": """
  threadgroup float4 tile[256 / 4 * 5];
  const uint place = index / 4 * 5 + index % 4;
  const float4 four = ((device const float4*)y)[i] * w;
  tile[place] = four + 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float4 mine = tile[place].wzyx;
  tile[place] = ((device const float4*)y)[i + 7];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float4 both = mine + tile[place] * float4(1, 2, 3, 4);
  out[i] = as_type<uint>(both.x) ^ as_type<uint>(both.y) * 3 ^ as_type<uint>(both.z + both.w);""",
    "vectors_at_varying_places": """
  threadgroup uint4 fours[256];
  threadgroup ushort4 shorts[256];
  const uint place = index * (2 * (x[0] % 8) + 1) % 256;
  uint4 four = uint4(lane), other = ((device const uint4*)x)[v % 8192];
  uint2 two = uint2(simd);
  ushort4 shorter = ushort4(lane);
  if (v % 3) {
    four = ((device const uint4*)x)[v * 5 % 8192];
    two = ((device const uint2*)x)[v % 16384];
    shorter = ((device const ushort4*)x)[v % 16384];
    fours[place] = four + other.wzyx;
    shorts[place] = shorter;
  } else {
    fours[place] = other;
    shorts[place] = ushort4(v);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint4 f = fours[index] * uint4(1, 3, 5, 7);
  const ushort4 h = shorts[index];
  out[i] = f.x ^ f.y ^ f.z ^ f.w ^ two.x ^ (two.y << 3) ^ h.x ^ (h.y << 4) ^ (h.z << 8) ^ h.w;
  ((device uint4*)(out + 4096))[v % 1024] = uint4(7);""",
    "copies": (
        """
  threadgroup Odd odd[256];
  threadgroup Long others[256];
  const uint place = index * (2 * (x[0] % 8) + 1) % 256;
  if (v % 5) odd[place] = ((device const Odd*)x)[v % 1000];
  else odd[place] = ((device const Odd*)x)[3];
  others[place] = ((device const Long*)x)[i];
  ((device Long*)(out + 4096))[i] = ((device const Long*)x)[v % 1000];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Odd mine = odd[index];
  out[i] = mine.c ^ mine.w[v % 5] ^ others[index].w[v % 12];""",
        """
struct Odd { uint w[5]; ushort h; uchar c; };
struct Long { uint w[12]; };
""",
    ),
    "matrices": """
  threadgroup float tile[64];
  for (uint k = lane; k < 64; k += 32) tile[k] = float(k % 11) * 0.25f;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8, 8>(1.0f);
  simdgroup_load(a, tile, 8);
  simdgroup_load(b, y, 8, ulong2(0), true);
  for (uint k = 0; k < 3; ++k) simdgroup_multiply_accumulate(c, a, b, c);
  c.thread_elements()[0] += float(lane);
  c.thread_elements()[1] *= 2.0f;
  simdgroup_half8x8 h, g;
  h.thread_elements() = half2(half(lane) * 0.1h, 1.0h);
  g = make_diagonal_simdgroup_matrix<half, 8, 8>(2.0h);
  simdgroup_multiply(h, h, g);
  simdgroup_store(c, (device float*)(out + 4096 + 128 * (group.x * simds + simd)), 8);
  out[i] = as_type<uint>(c.thread_elements()[1]) ^ as_type<ushort>(h.thread_elements()[0]);""",
    "matrices_two_by_two": """
  simdgroup_float8x8 sums[2][2], left[2], right[2], early;
  for (uint r = 0; r < 2; ++r)
    for (uint c = 0; c < 2; ++c)
      sums[r][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.5f * r - c);
#pragma unroll
  for (uint k = 0; k < 3; ++k) {
#pragma unroll
    for (uint r = 0; r < 2; ++r) {
      simdgroup_load(left[r], y + 8 * k + 64 * r, 8);
      simdgroup_load(right[r], y + 72 * k + 8 * r, 9);
    }
#pragma unroll
    for (uint r = 0; r < 2; ++r)
#pragma unroll
      for (uint c = 0; c < 2; ++c)
        simdgroup_multiply_accumulate(sums[r][c], left[r], right[c], sums[r][c]);
    if (k == 1) early = sums[0][1];
  }
  simdgroup_half8x8 h[2], g[2];
  for (uint r = 0; r < 2; ++r) {
    h[r].thread_elements() = half2(half(lane) * 0.1h, half(r));
    g[r].thread_elements() = half2(half(r) - 0.3h, half(lane % 5));
  }
  uint bits = as_type<uint>(early.thread_elements()[0]);
#pragma unroll
  for (uint r = 0; r < 2; ++r)
#pragma unroll
    for (uint c = 0; c < 2; ++c) {
      simdgroup_half8x8 once = make_filled_simdgroup_matrix<half, 8, 8>(0.7h);
      simdgroup_multiply_accumulate(once, h[r], g[c], once);
      simdgroup_multiply_accumulate(once, g[r], h[c], once);
      bits ^= as_type<uint>(sums[r][c].thread_elements()[1]) << c;
      bits ^= as_type<uint>(once.thread_elements()) * (3 + 2 * r);
    }
  out[i] = bits;""",
    "matrices_of_constants_in_both_arms": """
  device float* place = (device float*)(out + 4096 + 128 * (group.x * simds + simd));
  simdgroup_float8x8 a = make_filled_simdgroup_matrix<float, 8, 8>(1.5f), c;
  if (x[group.x] % 2) {
    simdgroup_multiply(c, a, make_filled_simdgroup_matrix<float, 8, 8>(2.0f));
    simdgroup_store(c, place, 8);
  } else {
    simdgroup_multiply(c, a, make_filled_simdgroup_matrix<float, 8, 8>(2.0f));
    simdgroup_store(c, place + 1, 8);
  }""",
}
MATRICES = frozenset(name for name in CASES if name.startswith("matrices"))
