// Variables of a thread that some path reads unset (wrong_), and what looks like that (right_).
// Every kernel has the same parameters; n is 1 and 3 in turn.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

#define KERNEL(NAME)                                                                    \
  kernel void NAME(device const float4* v, device const float* x, device float* y,      \
                   constant uint& n, uint i [[thread_position_in_grid]])

struct Best { float value; uint place; };
struct Mixed { float4 a; float3 b; uchar c; };
struct Padded { float3 v; half t; };
struct Tag {};

// ---- wrong -----------------------------------------------------------------------------------

KERNEL(wrong_scalar_sum) { float sum; for (int k = 0; k < 4; ++k) sum += x[k]; y[i] = sum; }

KERNEL(wrong_scalar_branch) { float s; if (x[i] > 0) s = x[i]; y[i] = s; }

KERNEL(wrong_rolling) {
  float next, sum = 0;
  for (uint k = 0; k < 4; ++k) {
    float cur = next;
    next = x[k];
    if (k > 0 || n > 0) sum += cur;
  }
  y[i] = sum;
}

KERNEL(wrong_handed_on) {
  float a, b, c = 1;
  for (uint k = 0; k < 4; ++k) {
    if (k == 1) c = b;
    b = a;
    a = x[k];
  }
  y[i] = c;
}

KERNEL(wrong_branch_on_it) { int a; if (n > 7) a = 1; int b = a; y[i] = 1; if (b > 3) y[i] = 2; }

KERNEL(wrong_vector_sum) { float4 sum; for (int k = 0; k < 4; ++k) sum += v[k]; y[i] = sum.x; }

KERNEL(wrong_vector_plus) { float4 sum; for (int k = 0; k < 4; ++k) sum = sum + v[k]; y[i] = sum.y; }

KERNEL(wrong_half_sum) { half2 sum; for (int k = 0; k < 2; ++k) sum += half2(x[k]); y[i] = sum.x; }

KERNEL(wrong_vector_branch) { float4 s; if (x[i] > 0) s = v[i]; y[i] = s.x; }

KERNEL(wrong_vector_part) { float4 s; s.x = x[i]; y[i] = s.x + s.y; }

KERNEL(wrong_vector_dot) { float4 s; s.xyz = float3(x[i]); y[i] = dot(s, s); }

KERNEL(wrong_int_part) { int2 s; s.y = 3; y[i] = s.x; }

KERNEL(wrong_struct) { Best s; s.value = x[i]; y[i] = s.value + s.place; }

KERNEL(wrong_struct_branch) { Best s; if (n > 7) s = {x[i], 1}; y[i] = s.value; }

KERNEL(wrong_array) { float a[3]; a[0] = x[i]; a[1] = 1; y[i] = a[0] + a[2]; }

KERNEL(wrong_matrix) { float2x2 m; m[0] = float2(x[i]); y[i] = m[1].x; }

static void add_to(thread float& sum, float more) { sum += more; }

KERNEL(wrong_by_reference) { float sum; add_to(sum, x[i]); y[i] = sum; }

// ---- right -----------------------------------------------------------------------------------

KERNEL(right_swizzle) { float4 s; s.xyz = float3(x[i]); float3 t = s.xyz; y[i] = dot(t, s.xyz); }

KERNEL(right_vector) {
  float4 s;
  s.x = x[i]; s.y = 1; s.z = 2; s.w = 3;
  float4 t = s;
  y[i] = dot(t, s);
}

KERNEL(right_branches) { float2 s; if (x[i] > 0) s = 1; else s = 2; y[i] = s.x + s.y; }

KERNEL(right_cases) {
  float3 s;
  switch (i % 3) {
    case 0: s = float3(1); break;
    case 1: s = float3(2); break;
    default: s = float3(3);
  }
  y[i] = s.x + s.y + s.z;
}

KERNEL(right_condition) { float2 s; bool have = x[i] > 0; if (have) s = x[i]; y[i] = have ? s.x * s.y : 0; }

KERNEL(right_copy) { Best s; s.value = x[i]; Best t = s; t.place = 1; y[i] = t.value + t.place; }

KERNEL(right_vector_copy) { float4 s; s.x = x[i]; s.y = 1; float4 t = s; t.z = 1; t.w = 2; y[i] = t.x + t.w; }

KERNEL(right_copy_and_part) {
  Best s;
  s.value = x[i];
  if (n > 2) s.place = 1;
  Best t = s;
  if (n <= 2) t.place = 2;
  y[i] = t.value + t.place + (n > 2 ? s.place : 0);
}

static void fill(thread float4& s, float a) { s = float4(a); }
static void fill_part(thread Best& s, float a) { s.value = a; }

KERNEL(right_by_reference) {
  float4 s;
  fill(s, x[i]);
  Best t;
  fill_part(t, x[i]);
  int exponent;
  float part = frexp(x[i], exponent), cosine, sine = sincos(x[i], cosine), whole, rest = modf(x[i], whole);
  y[i] = s.x + s.w + t.value + part + exponent + cosine + sine + whole + rest;
}

static float with(Tag tag, float a) { return a; }

KERNEL(right_empty) {
  Tag tag;
  Tag other = tag;
  auto same = [](float a) { return a; };
  auto copy = same;
  y[i] = with(other, x[i]) + copy(1);
}

static Padded padded(float a) { Padded p; p.v = float3(a); p.t = 1; return p; }
static Best half_made(float a) { Best s; s.value = a; return s; }

KERNEL(right_return) {
  Padded p = padded(x[i]), q;
  q = p;
  Best s = half_made(x[i]);
  y[i] = q.v.z + q.t + s.value;
}

KERNEL(right_arrays) {
  float a[4];
  for (int k = 0; k < 4; ++k) a[k] = x[k];
  float4 b[2];
  for (int k = 0; k < 2; ++k) b[k] = v[k];
  float4 c;
  for (int k = 0; k < 4; ++k) c[k] = a[k];
  y[i] = a[1] + b[1].x + c[i % 4];
}

KERNEL(right_first) {
  float4 best;
  bool any = false;
  for (int k = 0; k < 4; ++k)
    if (!any || v[k].x > best.x) {
      best = v[k];
      any = true;
    }
  y[i] = best.y;
}

KERNEL(right_best) {
  Best best;
  best.value = -INFINITY;
  for (uint k = 0; k < 8; ++k)
    if (x[k] > best.value) {
      best.value = x[k];
      best.place = k;
    }
  Best copy = best;
  y[i] = copy.value + copy.place;
}

KERNEL(right_mixed) {
  Mixed s;
  s.a = float4(x[i]); s.b = float3(1); s.c = 3;
  Mixed t = s;
  thread Mixed& r = t;
  r.a.x = 2;
  packed_float3 p;
  p.x = x[i]; p.y = 1; p.z = 2;
  float3 q = p;
  y[i] = t.a.x + t.b.z + t.c + s.a.y + q.x;
}

KERNEL(right_rolling) {
  float next, sum = 0;
  for (uint k = 0; k < 4; ++k) {
    float cur = next;
    next = x[k];
    if (k > 0) sum += cur;
  }
  y[i] = sum;
}

KERNEL(right_rolling_vector) {
  float4 next, sum = 0;
  for (uint k = 0; k < 4; ++k) {
    float4 cur = 2 * next;
    next = v[k];
    sum = k > 0 ? sum + cur : sum;
  }
  y[i] = sum.x;
}

KERNEL(right_handed_on) {
  float a, b, c = 1;
  for (uint k = 0; k < 4; ++k) {
    if (k > 2) c = b;
    b = a;
    a = x[k];
  }
  y[i] = c;
}

KERNEL(right_captured) {
  float2 low;
  float high;
  auto take = [&](float a) { low = float2(a); high = a; };
  take(x[i]);
  y[i] = low.x + high;
}

KERNEL(right_tiles) {
  simdgroup_float8x8 a, b, c;
  simdgroup_load(a, x, 8);
  simdgroup_load(b, x, 8);
  simdgroup_multiply(c, a, b);
  simdgroup_store(c, y, 8);
}
