"""Scalar types of MSL and how tests hand their values to kernels: numpy arrays enter and leave.

numpy has no bfloat: its values travel as float32 arrays whose low 16 bits are zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

import anymetal

Array = npt.NDArray[np.generic]

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SIZES = (2, 3, 4)
LETTERS = "xyzw"
COLOURS = "rgba"

SCALARS: dict[str, type[np.generic]] = {
    "bool": np.bool_,
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "half": np.float16,
    "bfloat": np.float32,
    "float": np.float32,
}
INTEGERS = tuple(name for name, dtype in SCALARS.items() if np.issubdtype(dtype, np.integer))
FLOATS = ("half", "bfloat", "float")
BYTES = {
    name: 2 if name == "bfloat" else np.dtype(dtype).itemsize for name, dtype in SCALARS.items()
}


def rounded(scalar: str, values: Array) -> Array:
    """float32 values to the nearest of the type, ties to even, by torch."""
    if scalar == "bfloat":
        return torch.from_numpy(np.ascontiguousarray(values)).bfloat16().float().numpy()
    return values.astype(SCALARS[scalar])


def samples(scalar: str, shape: tuple[int, ...], seed: int) -> Array:
    """Integers over their whole range, bools, floats between -8 and 8."""
    rng = np.random.default_rng(seed)
    dtype = SCALARS[scalar]
    if scalar == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if scalar in INTEGERS:
        limits = np.iinfo(dtype)  # type: ignore[arg-type]
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rounded(scalar, rng.uniform(-8, 8, shape).astype(np.float32))


def tensor(scalar: str, array: Array) -> torch.Tensor:
    """The values as a kernel reads them, in memory that is aligned for any vector."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if scalar == "bfloat":
        return torch.from_numpy(flat.astype(np.float32)).bfloat16()
    return torch.from_numpy(flat.view(f"i{flat.itemsize}")).clone()


def array(scalar: str, values: torch.Tensor) -> Array:
    """What a kernel wrote, as values of the type."""
    if scalar == "bfloat":
        return values.float().numpy()
    return values.numpy().view(SCALARS[scalar])


def blank(scalar: str, count: int) -> torch.Tensor:
    """Room for results, filled with a pattern that no test expects."""
    return tensor(scalar, np.full(count * BYTES[scalar], 0x55, np.uint8).view(_storage(scalar)))


def _storage(scalar: str) -> npt.DTypeLike:
    return np.int16 if scalar == "bfloat" else f"i{BYTES[scalar]}"


def values_of(scalar: str, expressions: list[str], prelude: str = "") -> Array:
    """The values of expressions, all computed by one thread of one kernel."""
    lines = "\n".join(f"  out[{index}] = {text};" for index, text in enumerate(expressions))
    source = f"{HEADER}{prelude}\nkernel void evaluate(device {scalar}* out) {{\n{lines}\n}}\n"
    results = blank(scalar, len(expressions))
    anymetal.compile_shader(source).evaluate(results, threads=1)
    return array(scalar, results)


def refusal(statements: str, prelude: str = "") -> str | None:
    """The compiler's message for a kernel with these statements; None when it compiles."""
    source = f"{HEADER}{prelude}\nkernel void attempt(device float* out) {{\n{statements}\n}}\n"
    try:
        anymetal.compile_shader(source).attempt  # noqa: B018  (compiles on access)
    except SyntaxError as error:
        return str(error)
    return None


def accepted(statements: list[str], prelude: str = "") -> list[str]:
    """Those of the statements that compile. Ten go into one kernel, each with a line of its own."""
    passed: list[str] = []
    for start in range(0, len(statements), 10):
        group = statements[start : start + 10]
        message = refusal("\n".join(f"{{ {text} }}" for text in group), prelude) or ""
        first = HEADER.count("\n") + prelude.count("\n") + 3
        refused = {int(line) for line in re.findall(r"^[^:\n]*:(\d+):\d+: error", message, re.M)}
        # An error may keep the compiler from seeing others: what it did not name is tried alone.
        unnamed = [text for line, text in enumerate(group, first) if line not in refused]
        passed += [text for text in unnamed if refusal(text, prelude) is None]
    return passed


def same(left: Array, right: Array) -> bool:
    """Equal bit for bit, except that all NaN are one."""
    if not np.issubdtype(left.dtype, np.floating):
        return bool(np.array_equal(left, right))
    nan = np.isnan(left) & np.isnan(right)  # type: ignore[arg-type]
    bits = left.view(f"i{left.itemsize}") == right.view(f"i{right.itemsize}")
    return bool(np.all(nan | bits))


def named(types: Mapping[str, object]) -> list[str]:
    """The vector types of these scalars: float2, float3 and so on."""
    return [f"{name}{size}" for name in types for size in SIZES]
