// Loads and stores of every dtype through float: kernels compute in float and round once.
#pragma once
#include <metal_stdlib>
using namespace metal;

// One kernel function template, one instance a dtype: INSTANTIATE(silu) gives silu_float, silu_half
// and silu_bfloat.
#define INSTANTIATE_ONE(name, type) \
  template [[host_name(#name "_" #type)]] [[kernel]] decltype(name<type>) name<type>;
#define INSTANTIATE(name) \
  INSTANTIATE_ONE(name, float) INSTANTIATE_ONE(name, half) INSTANTIATE_ONE(name, bfloat)
