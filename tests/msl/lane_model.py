"""What collectives should give, computed by numpy: values and active lanes enter, results leave.

An array of one simdgroup has the shape (32, components). Lanes outside the mask do not take part,
and their results mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

Lanes = npt.NDArray[np.generic]
Mask = npt.NDArray[np.bool_]
Operation = Callable[[Lanes, Lanes], Lanes]

LANES = 32
SCALARS: dict[str, type[np.generic]] = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "half": np.float16,
    "float": np.float32,
}


def is_float(dtype: np.dtype[np.generic] | type[np.generic]) -> bool:
    return np.issubdtype(dtype, np.floating)


def tensor(array: npt.NDArray[np.generic]) -> torch.Tensor:
    """A tensor over the array's own memory; unsigned types torch lacks go in as signed ones."""
    return torch.from_numpy(array.reshape(-1).view(f"i{array.itemsize}"))


def sample(
    rng: np.random.Generator, dtype: type[np.generic], shape: tuple[int, ...]
) -> npt.NDArray[np.generic]:
    """Integers over their whole range; floats small enough for a product of 32 of them in half."""
    if is_float(dtype):
        return rng.uniform(0.5, 1.8, shape).astype(dtype) * rng.choice([-1, 1], shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


# ---- Operations and their neutral elements ------------------------------------------------------


def _is_nan(values: Lanes) -> Mask:
    return np.isnan(values) if is_float(values.dtype) else np.zeros(values.shape, bool)


def _minimum(a: Lanes, b: Lanes) -> Lanes:
    return np.where((b < a) | _is_nan(a), b, a)  # type: ignore[operator]


def _maximum(a: Lanes, b: Lanes) -> Lanes:
    return np.where((a < b) | _is_nan(a), b, a)  # type: ignore[operator]


def _neutral(name: str, dtype: np.dtype[np.generic]) -> object:
    if name in ("min", "max"):
        if is_float(dtype):
            return np.nan
        limits = np.iinfo(dtype)  # type: ignore[arg-type]
        return limits.max if name == "min" else limits.min
    if name == "and":
        return np.array(-1).astype(dtype)
    return 1 if name == "product" else 0


OPERATIONS: dict[str, Operation] = {
    "sum": np.add,
    "product": np.multiply,
    "min": _minimum,
    "max": _maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
FLOAT_REDUCTIONS = ("sum", "product", "min", "max")


# ---- Collectives over groups of `width` lanes ----------------------------------------------------


def reduce(name: str, values: Lanes, active: Mask, width: int = LANES) -> Lanes:
    """A tree: the upper half of each group onto its lower half, until one lane is left."""
    neutral = np.asarray(_neutral(name, values.dtype)).astype(values.dtype)
    groups = np.where(active[:, None], values, neutral).reshape(LANES // width, width, -1)
    half = width // 2
    with np.errstate(all="ignore"):
        while half:
            groups = OPERATIONS[name](groups[:, :half], groups[:, half : 2 * half])
            half //= 2
    return np.repeat(groups, width, axis=1).reshape(values.shape).astype(values.dtype)


def scan(name: str, values: Lanes, active: Mask, inclusive: bool, width: int = LANES) -> Lanes:
    """From the lowest lane of each group upwards."""
    result = np.empty_like(values)
    start = np.full_like(values[0], _neutral(name, values.dtype))
    with np.errstate(all="ignore"):
        for lane in range(LANES):
            if lane % width == 0:
                so_far = start
            after = OPERATIONS[name](so_far, values[lane]) if active[lane] else so_far
            result[lane] = after if inclusive else so_far
            so_far = after
    return result


def read(values: Lanes, active: Mask, source: npt.NDArray[np.int_], width: int = LANES) -> Lanes:
    """Each lane reads lane `source` of its group; its own value where that is no active lane."""
    lane = np.arange(LANES)
    inside = (source >= 0) & (source < width)
    absolute = lane // width * width + np.where(inside, source, 0)
    readable = inside & active[absolute]
    return values[np.where(readable, absolute, lane)]


def first_active(active: Mask, width: int = LANES) -> npt.NDArray[np.int_]:
    """The lane within its group that is the first active one."""
    groups = active.reshape(LANES // width, width)
    return np.repeat(groups.argmax(axis=1), width)


def fill(values: Lanes, filling: Lanes, active: Mask, distance: int, modulo: int) -> Lanes:
    """Shifts each `modulo` lanes by `distance`; filling values run in from the other edge."""
    lane = np.arange(LANES)
    position = lane % modulo + distance
    source = lane // modulo * modulo + position % modulo
    outside = (position < 0) | (position >= modulo)
    result = np.where(outside[:, None], filling[source], values[source])
    return np.where(active[source][:, None], result, values)
