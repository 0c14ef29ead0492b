// Kernels that use what torch's c10/metal headers offer, so that their templates are compiled.
#include <c10/metal/atomic.h>
#include <c10/metal/error.h>
#include <c10/metal/expm1f.h>
#include <c10/metal/igamma.h>
#include <c10/metal/indexing.h>
#include <c10/metal/random.h>
#include <c10/metal/reduction_utils.h>
#include <c10/metal/special_math.h>
#include <c10/metal/utils.h>

#include <metal_stdlib>
using namespace metal;
using namespace c10::metal;

// indexing.h: elementwise operators over dense, strided and cast tensors.

struct cube_functor {
  template <typename T>
  T operator()(const T x) {
    return x * x * x;
  }
};

struct square_plus_functor {
  template <typename T>
  T operator()(const T x, const T bias) {
    return x * x + bias;
  }
};

struct hypotenuse_functor {
  template <typename T>
  T operator()(const T a, const T b) {
    return static_cast<T>(::metal::precise::sqrt(float(a) * float(a) + float(b) * float(b)));
  }
};

struct scaled_sum_functor {
  template <typename T, typename U>
  T operator()(const T a, const T b, const U scale) {
    return static_cast<T>(a + b * T(scale));
  }
};

struct fused_functor {
  template <typename T>
  T operator()(const T a, const T b, const T c) {
    return static_cast<T>(a * b + c);
  }
};

REGISTER_UNARY_OP(cube, float, float);
REGISTER_UNARY_OP(cube, half, half);
REGISTER_UNARY_OP(cube, bfloat, bfloat);
REGISTER_UNARY_OP(cube, int, int);
REGISTER_UNARY_ALPHA_OP(square_plus, float, float, float);
REGISTER_UNARY_ALPHA_OP(square_plus, half, half, half);
REGISTER_OPMATH_BINARY_OP(hypotenuse, float, float);
REGISTER_OPMATH_BINARY_OP(hypotenuse, half, half);
REGISTER_OPMATH_BINARY_OP(hypotenuse, bfloat, bfloat);
REGISTER_BINARY_ALPHA_OP(scaled_sum, float, float, float);
REGISTER_BINARY_ALPHA_OP(scaled_sum, long, long, long);
REGISTER_TERNARY_OP(fused, float, float);
REGISTER_OPMATH_TERNARY_OP(fused, half, half);

// special_math.h, igamma.h, expm1f.h: one kernel a function.

#define ONE_ARGUMENT(NAME, CALL)                                                                 \
  kernel void special_##NAME(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], \
                             uint i [[thread_position_in_grid]]) {                               \
    y[i] = CALL;                                                                                 \
  }

ONE_ARGUMENT(erf, c10::metal::erf(x[i]))
ONE_ARGUMENT(erfc, c10::metal::erfc(x[i]))
ONE_ARGUMENT(erfinv, c10::metal::erfinv(x[i]))
ONE_ARGUMENT(erfcx, c10::metal::erfcx(x[i]))
ONE_ARGUMENT(i0, c10::metal::i0(x[i]))
ONE_ARGUMENT(i0e, c10::metal::i0e(x[i]))
ONE_ARGUMENT(i1, c10::metal::i1(x[i]))
ONE_ARGUMENT(i1e, c10::metal::i1e(x[i]))
ONE_ARGUMENT(log_gamma, c10::metal::log_gamma(x[i]))
ONE_ARGUMENT(gamma, c10::metal::gamma(x[i]))
ONE_ARGUMENT(digamma, c10::metal::digamma(x[i]))
ONE_ARGUMENT(trigamma, c10::metal::trigamma(x[i]))
ONE_ARGUMENT(polygamma, c10::metal::polygamma(2, x[i]))
ONE_ARGUMENT(zeta, c10::metal::zeta(x[i] + 2.0f, 1.5f))
ONE_ARGUMENT(sinc, c10::metal::sinc(x[i]))
ONE_ARGUMENT(spherical_bessel_j0, c10::metal::spherical_bessel_j0(x[i]))
ONE_ARGUMENT(logaddexp, c10::metal::logaddexp(x[i], 1.0f))
ONE_ARGUMENT(logaddexp2, c10::metal::logaddexp2(x[i], 1.0f))
ONE_ARGUMENT(xlogy, c10::metal::xlogy(x[i], 2.0f))
ONE_ARGUMENT(xlog1py, c10::metal::xlog1py(x[i], 2.0f))
ONE_ARGUMENT(entr, c10::metal::entr(x[i]))
ONE_ARGUMENT(bessel_j0, c10::metal::bessel_j0_forward(x[i]))
ONE_ARGUMENT(bessel_y0, c10::metal::bessel_y0_forward(x[i]))
ONE_ARGUMENT(bessel_j1, c10::metal::bessel_j1_forward(x[i]))
ONE_ARGUMENT(bessel_y1, c10::metal::bessel_y1_forward(x[i]))
ONE_ARGUMENT(modified_bessel_i0, c10::metal::modified_bessel_i0_forward(x[i]))
ONE_ARGUMENT(modified_bessel_i1, c10::metal::modified_bessel_i1_forward(x[i]))
ONE_ARGUMENT(modified_bessel_k0, c10::metal::modified_bessel_k0_forward(x[i]))
ONE_ARGUMENT(modified_bessel_k1, c10::metal::modified_bessel_k1_forward(x[i]))
ONE_ARGUMENT(scaled_bessel_k0, c10::metal::scaled_modified_bessel_k0_forward(x[i]))
ONE_ARGUMENT(scaled_bessel_k1, c10::metal::scaled_modified_bessel_k1_forward(x[i]))
ONE_ARGUMENT(chebyshev_t, c10::metal::chebyshev_polynomial_t_forward(x[i], 5))
ONE_ARGUMENT(chebyshev_u, c10::metal::chebyshev_polynomial_u_forward(x[i], 5))
ONE_ARGUMENT(chebyshev_v, c10::metal::chebyshev_polynomial_v_forward(x[i], 5))
ONE_ARGUMENT(chebyshev_w, c10::metal::chebyshev_polynomial_w_forward(x[i], 5))
ONE_ARGUMENT(shifted_t, c10::metal::shifted_chebyshev_polynomial_t_forward(x[i], 5))
ONE_ARGUMENT(shifted_u, c10::metal::shifted_chebyshev_polynomial_u_forward(x[i], 5))
ONE_ARGUMENT(shifted_v, c10::metal::shifted_chebyshev_polynomial_v_forward(x[i], 5))
ONE_ARGUMENT(shifted_w, c10::metal::shifted_chebyshev_polynomial_w_forward(x[i], 5))
ONE_ARGUMENT(hermite_h, c10::metal::hermite_polynomial_h_forward(x[i], 5))
ONE_ARGUMENT(hermite_he, c10::metal::hermite_polynomial_he_forward(x[i], 5))
ONE_ARGUMENT(igamma, c10::metal::igamma(x[i], 2.0f))
ONE_ARGUMENT(igammac, c10::metal::igammac(x[i], 2.0f))
ONE_ARGUMENT(expm1f, c10::metal::expm1f(x[i]))

// random.h

kernel void random_values(device float4* out [[buffer(0)]], constant long& seed [[buffer(1)]],
                          uint i [[thread_position_in_grid]]) {
  out[i] = float4(c10::metal::randn(seed, i), c10::metal::rand(seed, i),
                  float(c10::metal::randint64(seed, i, 3, 90)),
                  c10::metal::box_muller_from_philox(philox4::rand(seed, i).xy).x);
}

// reduction_utils.h: every reduction of a threadgroup, in the types it is used with.

template <typename T>
kernel void reductions(device const T* x [[buffer(0)]], device float* y [[buffer(1)]],
                       uint i [[thread_index_in_threadgroup]],
                       uint size [[threads_per_threadgroup]]) {
  threadgroup opmath_t<T> sums[32];
  threadgroup opmath_t<T> products[32];
  threadgroup T largest[32];
  threadgroup T smallest[32];
  threadgroup T best[32];
  threadgroup int places[32];
  const float sum = float(threadgroup_sum(sums, x[i], i, size));
  const float product = float(threadgroup_prod(products, x[i], i, size));
  const float maximum = float(c10::metal::threadgroup_max(largest, x[i], i, size));
  const float minimum = float(c10::metal::threadgroup_min(smallest, x[i], i, size));
  const int place = threadgroup_argmax(best, places, x[i], int(i), i, size);
  if (i == 0) {
    y[0] = sum;
    y[1] = product;
    y[2] = maximum;
    y[3] = minimum;
    y[4] = float(place);
  }
}

#define REDUCTIONS(T)                                                                 \
  template [[host_name("reductions_" #T)]] kernel void reductions<T>(device const T*, \
                                                                     device float*, uint, uint);

REDUCTIONS(float)
REDUCTIONS(half)
REDUCTIONS(bfloat)
REDUCTIONS(int)
REDUCTIONS(long)

// atomic.h

template <typename T>
kernel void atomic_sums(device AtomicType_t<T>* sums [[buffer(0)]], device const T* x [[buffer(1)]],
                        device const int* places [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  AtomicType<T>::atomic_add(sums, places[i], x[i]);
}

#define ATOMIC_SUMS(T)                                                  \
  template [[host_name("atomic_sums_" #T)]] kernel void atomic_sums<T>( \
      device AtomicType_t<T>*, device const T*, device const int*, uint);

ATOMIC_SUMS(float)
ATOMIC_SUMS(int)
ATOMIC_SUMS(half)
ATOMIC_SUMS(bfloat)
ATOMIC_SUMS(short)
ATOMIC_SUMS(char)
ATOMIC_SUMS(uchar)
ATOMIC_SUMS(bool)
ATOMIC_SUMS(long)
ATOMIC_SUMS(float2)
ATOMIC_SUMS(half2)

// error.h

kernel void reports_negative(device const int* x [[buffer(0)]],
                             device ErrorMessages* errors [[buffer(1)]],
                             uint i [[thread_position_in_grid]]) {
  if (x[i] < 0) TORCH_REPORT_ERROR(errors, "negative value ", long(x[i]), " at ", long(i));
}

// utils.h

kernel void arithmetic(device const float2* x [[buffer(0)]], device float4* y [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  const float a = x[i].x;
  const float b = x[i].y;
  y[i] = float4(c10::metal::floor_divide(a, b), c10::metal::fmod(a, b), c10::metal::max(a, b),
                c10::metal::min(a, b));
}
