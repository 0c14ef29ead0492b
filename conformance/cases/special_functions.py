"""torch's own Metal functions (c10/metal/special_math.h and others) against torch in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from conformance.case import (
    EXACT,
    FLOAT,
    FLOAT_SUM,
    Launch,
    Tolerance,
    case,
    check,
    normal,
    unwritten,
)

FILE = "c10_kernels.metal"
SERIES = Tolerance(2e-5, "torch's float series on the Mac are no better than some ten ulp")

Function = Callable[[torch.Tensor], torch.Tensor]
special = torch.special
ONE = torch.ones((), dtype=torch.float64)

# Name, reference, the interval the values are taken from.
FUNCTIONS: list[tuple[str, Function, float, float]] = [
    ("erf", special.erf, -4, 4),
    ("erfc", special.erfc, -4, 4),
    ("erfinv", special.erfinv, -0.99, 0.99),
    ("erfcx", special.erfcx, -2, 20),
    ("i0", special.i0, -5, 5),
    ("i0e", special.i0e, -20, 20),
    ("i1", special.i1, -5, 5),
    ("i1e", special.i1e, -20, 20),
    ("log_gamma", special.gammaln, 0.2, 30),
    ("digamma", special.digamma, 0.2, 30),
    ("trigamma", lambda x: special.polygamma(1, x), 0.2, 30),
    ("polygamma", lambda x: special.polygamma(2, x), 0.5, 10),
    ("zeta", lambda x: special.zeta(x + 2, 1.5 * ONE), 0, 10),
    ("sinc", special.sinc, -4, 4),
    ("spherical_bessel_j0", special.spherical_bessel_j0, -10, 10),
    ("logaddexp", lambda x: torch.logaddexp(x, ONE), -20, 20),
    ("logaddexp2", lambda x: torch.logaddexp2(x, ONE), -20, 20),
    ("xlogy", lambda x: special.xlogy(x, 2 * ONE), -4, 4),
    ("xlog1py", lambda x: special.xlog1py(x, 2 * ONE), -4, 4),
    ("entr", special.entr, 0, 4),
    ("bessel_j0", special.bessel_j0, -20, 20),
    ("bessel_y0", special.bessel_y0, 0.1, 20),
    ("bessel_j1", special.bessel_j1, -20, 20),
    ("bessel_y1", special.bessel_y1, 0.1, 20),
    ("modified_bessel_i0", special.modified_bessel_i0, -5, 5),
    ("modified_bessel_i1", special.modified_bessel_i1, -5, 5),
    ("modified_bessel_k0", special.modified_bessel_k0, 0.1, 10),
    ("modified_bessel_k1", special.modified_bessel_k1, 0.1, 10),
    ("scaled_bessel_k0", special.scaled_modified_bessel_k0, 0.1, 30),
    ("scaled_bessel_k1", special.scaled_modified_bessel_k1, 0.1, 30),
    ("chebyshev_t", lambda x: special.chebyshev_polynomial_t(x, 5), -1, 1),
    ("chebyshev_u", lambda x: special.chebyshev_polynomial_u(x, 5), -1, 1),
    ("chebyshev_v", lambda x: special.chebyshev_polynomial_v(x, 5), -1, 1),
    ("chebyshev_w", lambda x: special.chebyshev_polynomial_w(x, 5), -1, 1),
    ("hermite_h", lambda x: special.hermite_polynomial_h(x, 5), -3, 3),
    ("hermite_he", lambda x: special.hermite_polynomial_he(x, 5), -3, 3),
    ("igamma", lambda x: special.gammainc(x, 2 * ONE), 0.1, 10),
    ("igammac", lambda x: special.gammaincc(x, 2 * ONE), 0.1, 10),
]


def elementwise(function: Function, low: float, high: float) -> Launch:
    count = 1001
    x, y = torch.rand(count) * (high - low) + low, unwritten(count)
    return Launch((x, y), (count,), (128,), [check("y", y, function(x.double()))])


for _name, _function, _low, _high in FUNCTIONS:
    case(FILE, f"special_{_name}", SERIES)(partial(elementwise, _function, _low, _high))
case(
    FILE,
    "special_expm1f",
    FLOAT,
    known_wrong="torch's header promises one ulp, but takes only the high part of a multiple of "
    "log 2 away from the argument: 50 ulp at 2.5",
)(partial(elementwise, torch.expm1, -3, 3))


def reductions(dtype: torch.dtype, size: int) -> Launch:
    """Sum, product, maximum, minimum and place of the maximum over one threadgroup."""
    # Values near one: the product of a few hundred stays in range.
    x = (1 + 0.02 * torch.randn(size)).to(dtype)
    y = unwritten(5)
    wide = x.double()
    place = torch.nonzero(wide == wide.amax())[0].double()
    expected = [wide.sum()[None], wide.prod()[None], wide.amax()[None], wide.amin()[None], place]
    return Launch((x, y), (size,), (size,), [check("y", y, torch.cat(expected))])


case(FILE, "reductions_float", FLOAT_SUM, "256 threads")(lambda: reductions(torch.float32, 256))
case(FILE, "reductions_float", FLOAT_SUM, "77 threads: a partial simdgroup")(
    lambda: reductions(torch.float32, 77)
)
case(FILE, "reductions_half", FLOAT_SUM, "200 threads")(lambda: reductions(torch.float16, 200))
case(FILE, "reductions_bfloat", FLOAT_SUM, "200 threads")(lambda: reductions(torch.bfloat16, 200))


def atomic_sums(dtype: torch.dtype, *pair: int) -> Launch:
    """1500 additions of small integers to 13 places: exact in every type, in any order."""
    sums = torch.zeros(14, *pair, dtype=dtype)
    places = torch.randint(13, (1500,), dtype=torch.int32)
    x = torch.randint(0, 2, (1500, *pair)).to(dtype)
    expected = sums.double().index_add(0, places.long(), x.double())
    expected = expected.clamp(max=1) if dtype == torch.bool else expected
    return Launch((sums, x, places), (1500,), (256,), [check("sums", sums, expected)])


ATOMICS = {
    "float": torch.float32,
    "int": torch.int32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
    "long": torch.int64,
}
for _name, _dtype in ATOMICS.items():
    case(FILE, f"atomic_sums_{_name}", EXACT, "compare and exchange where Metal has no add")(
        partial(atomic_sums, _dtype)
    )
case(FILE, "atomic_sums_float2", EXACT)(lambda: atomic_sums(torch.float32, 2))


@case(FILE, "hypotenuse_strided_float_float", FLOAT_SUM, "a transposed operand")
def strided_operator() -> Launch:
    rows, columns = 13, 9
    a, b, out = normal(rows, columns), normal(columns, rows), unwritten(rows, columns)
    step = a.element_size()
    # The innermost dimension first, strides in bytes.
    strides = [[step, columns * step], [step, columns * step], [rows * step, step]]
    layout = [torch.tensor(numbers) for numbers in ([columns, rows], *strides)]
    dimensions = torch.tensor([2, 0, 0, 0], dtype=torch.int32)
    expected = torch.hypot(a.double(), b.T.double())
    arguments = (out, a, b, *layout, dimensions)
    return Launch(arguments, (rows * columns,), (64,), [check("out", out, expected)])
