// The kernels of the example: one for each pattern.
#include <metal_stdlib>
using namespace metal;

// Elementwise: variants by function constants, four elements a thread. Vectors are for tensors that
// begin at a multiple of their size.
constant bool clamped [[function_constant(0)]];
constant bool biased [[function_constant(1)]];
constant bool vectors [[function_constant(2)]];

template <typename T>
kernel void scale(device const T* x, device const T* bias, device T* out, constant float& factor,
                  constant uint& columns, constant uint& count,
                  uint thread_index [[thread_position_in_grid]]) {
  const uint first = thread_index * 4;
  if (vectors && first + 4 <= count) {
    const vec<T, 4> loaded = reinterpret_cast<device const vec<T, 4>*>(x)[thread_index];
    float4 value = float4(loaded) * factor;
    if (biased) {
      for (uint i = 0; i < 4; ++i) value[i] += float(bias[(first + i) % columns]);
    }
    if (clamped) value = max(value, 0.0f);
    reinterpret_cast<device vec<T, 4>*>(out)[thread_index] = vec<T, 4>(value);
    return;
  }
  for (uint i = first; i < min(first + 4, count); ++i) {
    float value = float(x[i]) * factor;
    if (biased) value += float(bias[i % columns]);
    if (clamped) value = max(value, 0.0f);
    out[i] = T(value);
  }
}
template [[host_name("scale_float")]] kernel void scale<float>(device const float*,
                                                               device const float*, device float*,
                                                               constant float&, constant uint&,
                                                               constant uint&, uint);
template [[host_name("scale_half")]] kernel void scale<half>(device const half*, device const half*,
                                                             device half*, constant float&,
                                                             constant uint&, constant uint&, uint);
template [[host_name("scale_bfloat")]] kernel void scale<bfloat>(device const bfloat*,
                                                                 device const bfloat*,
                                                                 device bfloat*, constant float&,
                                                                 constant uint&, constant uint&,
                                                                 uint);

// Sums of rows. A threadgroup adds up one part of a row; where rows are long there are several
// parts, and the second phase adds those.
kernel void row_sums(device const float* x, device float* sums, constant uint& columns,
                     constant uint& part_length, threadgroup float* partial [[threadgroup(0)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint2 groups [[threadgroups_per_grid]],
                     uint2 place [[thread_position_in_threadgroup]],
                     uint2 size [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simd [[simdgroup_index_in_threadgroup]]) {
  const uint begin = group.x * part_length;
  const uint end = min(begin + part_length, columns);
  float sum = 0;
  for (uint i = begin + place.x; i < end; i += size.x) sum += x[group.y * columns + i];
  sum = simd_sum(sum);
  if (lane == 0) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (place.x == 0) {
    float total = 0;
    for (uint i = 0; i < size.x / 32; ++i) total += partial[i];
    sums[group.y * groups.x + group.x] = total;
  }
}

// One step of SGD with momentum on one parameter.
kernel void sgd_step(device float* parameter, device const float* gradient, device float* momentum,
                     constant float2& rates, constant uint& count,
                     uint i [[thread_position_in_grid]]) {
  if (i >= count) return;
  const float velocity = rates.y * momentum[i] + gradient[i];
  momentum[i] = velocity;
  parameter[i] -= rates.x * velocity;
}

// x * silu(gate), and its gradients.
kernel void gated_silu(device const float* x, device const float* gate, device float* out,
                       constant uint& count, uint i [[thread_position_in_grid]]) {
  if (i >= count) return;
  const float sigmoid = 1 / (1 + exp(-gate[i]));
  out[i] = x[i] * gate[i] * sigmoid;
}

kernel void gated_silu_backward(device const float* grad, device const float* x,
                                device const float* gate, device float* grad_x,
                                device float* grad_gate, constant uint& count,
                                uint i [[thread_position_in_grid]]) {
  if (i >= count) return;
  const float sigmoid = 1 / (1 + exp(-gate[i]));
  grad_x[i] = grad[i] * gate[i] * sigmoid;
  grad_gate[i] = grad[i] * x[i] * sigmoid * (1 + gate[i] * (1 - sigmoid));
}
