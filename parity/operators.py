"""Which operator of torch a kernel of its metallib is, by name, and what numbers it takes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import special
from torch.nn import functional

Operator = Callable[..., Any]
_OF_TORCH = (
    *("abs", "acos", "angle", "asin", "atan", "bitwise_not", "cos", "cosh", "digamma", "erf"),
    *("erfc", "erfinv", "exp", "exp2", "expm1", "i0", "lgamma", "log", "log10", "log1p", "log2"),
    *("neg", "reciprocal", "round", "rsqrt", "sigmoid", "sin", "sinc", "sinh", "sqrt", "tan"),
    "tanh",
)
_OF_SPECIAL = ("entr", "erfcx", "i0e", "i1", "i1e", "spherical_bessel_j0")
_BESSEL = (
    *("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0"),
    *("modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
)
_OF_FUNCTIONAL = ("relu", "silu", "gelu", "hardsigmoid", "hardswish")
UNARY: dict[str, Operator] = {
    **{name: getattr(torch, name) for name in _OF_TORCH},
    **{name: getattr(special, name) for name in _OF_SPECIAL},
    **{f"{name}_forward": getattr(special, name) for name in _BESSEL},
    **{name: getattr(functional, name) for name in _OF_FUNCTIONAL},
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "sqr": lambda x: x * x,
    "copy_identity": lambda x: x,
    "copy_neg": lambda x: x if x.dtype == torch.bool else -x,
    "copy_conj": lambda x: x.conj().resolve_conj(),
    "trigamma": lambda x: torch.polygamma(1, x),
}
_OF_TWO = (
    *("add", "atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift"),
    *("bitwise_right_shift", "copysign", "eq", "fmax", "fmin", "fmod", "gcd", "ge", "gt", "hypot"),
    *("lcm", "le", "logaddexp", "logaddexp2", "lt", "maximum", "minimum", "mul", "ne"),
    *("nextafter", "remainder", "sub", "xlogy"),
)
_POLYNOMIALS = (
    *(f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he"),
)
_aten: Any = torch.ops.aten
BINARY: dict[str, Operator] = {
    **{name: getattr(torch, name) for name in _OF_TWO},
    **{name: getattr(special, name) for name in (*_POLYNOMIALS, "xlog1py", "zeta")},
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
    "div_true": torch.div,
    "div_floor": functools.partial(torch.div, rounding_mode="floor"),
    "div_trunc": functools.partial(torch.div, rounding_mode="trunc"),
    "silu_backward": lambda g, x: _aten.silu_backward(g, x),
    "gelu_backward": lambda g, x: _aten.gelu_backward(g, x),
    "gelu_tanh_backward": lambda g, x: _aten.gelu_backward(g, x, approximate="tanh"),
    "hardswish_backward": lambda g, x: _aten.hardswish_backward(g, x),
    "hardsigmoid_backward": lambda g, x: _aten.hardsigmoid_backward(g, x),
}
# What numbers an operator is given: positive ones, such in (-1, 1), or none that are large.
POSITIVE = re.compile(r"log|sqrt|lgamma|digamma|trigamma|bessel_[yk]|xlog|zeta|igamma|gamma|entr")
UNIT = re.compile(r"acos|asin|erfinv|polynomial")
SMALL = re.compile(r"^exp|cosh|sinh|i[01]|hypot")
# Functions whose approximations differ between libraries by more than a few units.
ROUGH = re.compile(r"bessel|polynomial|gamma|zeta|i[01]e?$|erfinv|erfcx|sinc|tan$")
