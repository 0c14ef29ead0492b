"""Runs library functions on arrays and measures how far their results are from exact ones.

A kernel holds one line for each call, so that a type and a vector size cost one compilation.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from vector_model import HEADER, LETTERS, Array, array, blank, tensor

import anymetal

Doubles = npt.NDArray[np.float64]

SIZES = (1, 2, 3, 4)
GROUP = 64
ARGUMENTS = "xyz"
# dtype, bits of the mantissa, largest exponent
FORMATS = {"float": (np.float32, 24, 127), "half": (np.float16, 11, 15)}


def vector(scalar: str, size: int) -> str:
    return scalar if size == 1 else f"{scalar}{size}"


def evaluate(
    scalar: str,
    size: int,
    calls: list[str],
    inputs: tuple[Array, ...],
    result: str | None = None,
    prelude: str = "",
    fast_math: bool = False,
) -> Array:
    """One row of results for each call, an expression in x, y, z: vectors of the inputs' values.

    The inputs are values of the scalar type, the results of `result` (the same type by default).
    Whole simdgroups run: lanes that are not there would double the code, and are not the point.
    """
    result = result or scalar
    source = f"{HEADER}{prelude}\n{_kernel(scalar, size, calls, len(inputs), result)}"
    threads = -(-len(inputs[0]) // (size * GROUP)) * GROUP
    padded = [tensor(scalar, np.resize(values, threads * size)) for values in inputs]
    out = blank(result, len(calls) * threads * size)
    library = anymetal.compile_shader(source, fast_math=fast_math)
    library.evaluate(*padded, out, threads, threads=threads, group_size=GROUP)
    return array(result, out).reshape(len(calls), -1)[:, : len(inputs[0])]


def _kernel(scalar: str, size: int, calls: list[str], inputs: int, result: str) -> str:
    names = ARGUMENTS[:inputs]
    parameters = "".join(f"device const {scalar}* in_{name}, " for name in names)
    lines = [f"  {vector(scalar, size)} {name} = {_load(scalar, size, name)};" for name in names]
    for row, call in enumerate(calls):
        place = f"out + ({row} * count + i) * {size}"
        lines.append(f"  {{ {vector(result, size)} r = {call}; {_store(result, size, place)} }}")
    body = "\n".join(lines)
    return (
        f"kernel void evaluate({parameters}device {result}* out, constant uint& count,\n"
        f"                     uint i [[thread_position_in_grid]]) {{\n{body}\n}}\n"
    )


def _load(scalar: str, size: int, name: str) -> str:
    parts = ", ".join(f"in_{name}[i * {size} + {k}]" for k in range(size))
    return f"{vector(scalar, size)}({parts})"


def _store(result: str, size: int, place: str) -> str:
    if size == 1:
        return f"*({place}) = r;"
    parts = " ".join(f"p[{k}] = r.{LETTERS[k]};" for k in range(size))
    return f"device {result}* p = {place}; {parts}"


def wide(values: Array) -> Doubles:
    """In float64; signalling NaN among random bits raise no warning."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def unit_in_last_place(scalar: str, exact: Doubles) -> Doubles:
    """The distance of the type's values around each exact one."""
    _, bits, top = FORMATS[scalar]
    exponent = np.frexp(exact)[1] - 1
    return np.exp2(np.clip(exponent, 1 - top, top) - (bits - 1.0))


def ulps(scalar: str, got: Array, exact: Doubles) -> Doubles:
    """Errors in units of the last place. What overflows counts as the next power of two; a NaN
    where none belongs, a missing NaN and an exact zero of the wrong sign are infinitely wrong.
    """
    limit = 2.0 ** (FORMATS[scalar][2] + 1)
    values = wide(got)
    with np.errstate(invalid="ignore"):
        distance = np.abs(np.clip(values, -limit, limit) - np.clip(exact, -limit, limit))
        errors = distance / unit_in_last_place(scalar, np.clip(exact, -limit / 2, limit / 2))
    zeros = exact == 0
    errors[zeros & ((values != 0) | (np.signbit(values) != np.signbit(exact)))] = np.inf
    errors[np.isnan(exact)] = 0
    errors[np.isnan(exact) != np.isnan(values)] = np.inf
    return errors


def worst(scalar: str, got: Array, exact: Doubles, inputs: tuple[Array, ...]) -> tuple[float, str]:
    """The largest error and where it is, in words."""
    errors = ulps(scalar, got, exact)
    at = int(np.argmax(errors))
    values = ", ".join(float(values[at]).hex() for values in inputs)
    return float(errors[at]), f"({values}) gives {got[at]!r}, exactly {float(exact[at])!r}"


def edges(scalar: str) -> Array:
    """Zeros, denormals, the smallest and largest numbers, infinities, NaN, ties, whole numbers."""
    dtype, bits, top = FORMATS[scalar]
    tiny, normal = 2.0 ** (2 - top - bits), 2.0 ** (1 - top)
    largest = (2 - 2.0 ** (1 - bits)) * 2.0**top
    positive = [0, tiny, 2 * tiny, normal - tiny, normal, normal + tiny, largest / 2, largest]
    positive += [0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 10, 100, 2.0 ** (bits - 1), 2.0**bits]
    positive += [1 - 2.0**-bits, 1 + 2.0 ** (1 - bits), 0.5 - 2.0 ** (-1 - bits)]
    positive += [1e-3, 88.5, 89, 103.9, np.inf]
    values = np.array([*positive, *(-value for value in positive), np.nan])
    return values.astype(dtype)


def samples(scalar: str, count: int, seed: int) -> Array:
    """Edges, then every magnitude alike (random bits), then numbers of everyday size."""
    dtype = FORMATS[scalar][0]
    rng = np.random.default_rng(seed)
    width = np.dtype(dtype).itemsize
    bits = rng.integers(0, 256, (count // 2) * width, np.uint8).view(dtype)
    everyday = rng.standard_normal(count // 2) * rng.choice([0.1, 1, 30], count // 2)
    return np.concatenate([edges(scalar), bits, everyday.astype(dtype)])
