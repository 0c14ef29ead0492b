// Loads and stores of every dtype through float: kernels compute in float and round once.
#pragma once
#include <metal_stdlib>
using namespace metal;

// Hosts choose kernels that access several elements at once where every row begins at a multiple of
// so many: a device that cannot take vectors elsewhere need not look.
#if __has_include(<anymetal/ahead.h>)
#include <anymetal/ahead.h>
#endif
#ifdef anymetal_vectors_are_aligned
anymetal_vectors_are_aligned;
#endif

// One kernel function template, one instance a dtype: INSTANTIATE(silu) gives silu_float, silu_half
// and silu_bfloat.
#define INSTANTIATE_ONE(name, type) \
  template [[host_name(#name "_" #type)]] [[kernel]] decltype(name<type>) name<type>;
#define INSTANTIATE(name) \
  INSTANTIATE_ONE(name, float) INSTANTIATE_ONE(name, half) INSTANTIATE_ONE(name, bfloat)
