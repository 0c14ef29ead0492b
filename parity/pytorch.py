"""PyTorch's own kernels, as Apple compiled them, run here against the same operators of torch CPU.

The kernels of a family are called alike (torch's c10/metal/indexing.h for elementwise ones): a form
says what a kernel's arguments are, a table which operator it is.
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from anymetal.errors import AnymetalError
from anymetal.launch.metallib import load_metallib
from anymetal.launch.shader import ShaderLibrary
from parity import wheels
from parity.operators import BINARY, POSITIVE, ROUGH, SMALL, UNARY, UNIT
from parity.verdict import Verdict

Tensor = torch.Tensor
COUNT = 97
_T = r"(float2|float|half|bfloat|long|int|short|char|uchar|bool)"
_DTYPES = {
    "float2": torch.complex64,
    "float": torch.float32,
    "half": torch.float16,
    "bfloat": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "uchar": torch.uint8,
    "bool": torch.bool,
}
_SCALAR_TYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.complex64: 9,
    torch.bool: 11,
    torch.bfloat16: 15,
}


@dataclass(frozen=True)
class Launch:
    """Arguments and shape of one launch, where its result lies, and what it should be."""

    arguments: list[Any]
    threads: tuple[int, ...]
    output: Tensor
    expected: Tensor
    group_size: tuple[int, ...] | None = None
    rough: bool = False
    computed: torch.dtype | None = None  # where that is less exact than the result's type


Case = Callable[[re.Match[str], torch.Generator], Launch | None]
_CASES: list[tuple[re.Pattern[str], Case]] = []


def _case(pattern: str) -> Callable[[Case], Case]:
    def add(function: Case) -> Case:
        _CASES.append((re.compile(pattern), function))
        return function

    return add


def launch_of(kernel: str) -> Launch | None:
    """The call of a kernel; None where there is no case for it, or torch CPU has no such call."""
    generator = torch.Generator().manual_seed(zlib.crc32(kernel.encode()))
    for pattern, make in _CASES:
        if match := pattern.fullmatch(kernel):
            try:
                return make(match, generator)
            except (RuntimeError, TypeError, NotImplementedError):
                return None  # torch's own operator does not take this dtype
    return None


def has_case(kernel: str) -> bool:
    return any((match := pattern.fullmatch(kernel)) and match[1] in _KNOWN for pattern, _ in _CASES)


# ---- numbers -------------------------------------------------------------------------------------


def values(
    name: str,
    dtype: torch.dtype,
    generator: torch.Generator,
    count: int = COUNT,
    *,
    second: bool = False,
) -> Tensor:
    """Numbers that an operator takes: in its domain, where results are not huge."""
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        return _whole(name, dtype, generator, count, second)
    numbers = torch.randn(count, generator=generator) * 3
    if second and "polynomial" in name:
        return torch.randint(0, 6, (count,), generator=generator).to(dtype)
    if POSITIVE.search(name):
        numbers = numbers.abs() + (1.1 if "zeta" in name and not second else 0.1)
    if UNIT.search(name):
        numbers = numbers.clamp(-0.95, 0.95)
    elif SMALL.search(name):
        numbers = numbers.clamp(-6, 6)
    if dtype.is_complex:
        return torch.complex(numbers, torch.randn(count, generator=generator)).to(dtype)
    return numbers.to(dtype)


def _whole(
    name: str, dtype: torch.dtype, generator: torch.Generator, count: int, second: bool
) -> Tensor:
    is_shift = "shift" in name
    low = 0 if dtype == torch.uint8 or POSITIVE.search(name) or is_shift else -9
    if second and re.search(r"div|mod|remainder|gcd|lcm", name):
        low = 1
    return torch.randint(low, 7 if is_shift else 10, (count,), generator=generator).to(dtype)


def _wide(x: Tensor) -> Tensor:
    """In the precision that a reference is computed in."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def reference(function: Callable[..., Any], result: torch.dtype, *inputs: Tensor) -> Tensor:
    found: Tensor = function(*(_wide(x) for x in inputs))
    return found.to(result)


def _integers(*numbers: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(numbers, dtype=dtype)


def _quarter(count: int) -> tuple[int]:
    return (-(-count // 4),)


# ---- elementwise ---------------------------------------------------------------------------------


_SIZES = (8, 3, 4)  # innermost first


def _strided(x: Tensor) -> tuple[Tensor, Tensor]:
    """96 numbers as a tensor with gaps, and the byte strides of its dimensions."""
    room = torch.zeros(4, 3, 16, dtype=x.dtype)
    view = room[:, :, ::2]
    view.copy_(x[:96].reshape(4, 3, 8))
    steps = [step * x.element_size() for step in reversed(view.stride())]
    return room, _integers(*steps, dtype=torch.int64)


def _unary_form(form: str, x: Tensor, out: Tensor) -> tuple[list[Any], tuple[int, ...]] | None:
    kind, size = _SCALAR_TYPES[out.dtype], out.element_size()
    match form:
        case "dense":
            return [out, x, _integers(len(x))], _quarter(len(x))
        case "dense_scalar":
            return [out, x], (len(x),)
        case "dense_castout":
            return [out, x, _integers(size, kind)], (len(x),)
        case "dense_castout_ilp":
            return [out, x, _integers(size, kind, len(x), 0)], _quarter(len(x))
        case "strided" | "strided_castout":
            room, steps = _strided(x)
            dense = _integers(size, 8 * size, 24 * size, dtype=torch.int64)
            sizes = _integers(*_SIZES, dtype=torch.int64)
            last = _integers(3, kind) if form.endswith("castout") else _integers(3)
            return [out, room, sizes, steps, dense, last], (8, 12)
    return None


@_case(rf"(\w+?)_(dense|dense_scalar|strided)_{_T}_{_T}")
def _elementwise(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, form, result, source = match.groups()
    if name in BINARY:
        return _binary(match, generator)
    if name not in UNARY:
        return None
    return _unary(name, form, _DTYPES[source], _DTYPES[result], generator)


@_case(rf"(\w+?)_(dense_castout|dense_castout_ilp|strided_castout)_{_T}")
def _castout(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, form, source = match.groups()
    if name not in UNARY or _DTYPES[source].is_complex:
        return None
    return _unary(name, form, _DTYPES[source], torch.float32, generator)


def _unary(
    name: str, form: str, source: torch.dtype, result: torch.dtype, generator: torch.Generator
) -> Launch | None:
    x = values(name, source, generator, 96)
    out = torch.zeros(96, dtype=result)
    expected = reference(UNARY[name], result, x)
    if "castout" in form and source.is_floating_point:
        expected = reference(UNARY[name], source, x).to(result)
    made = _unary_form(form, x, out)
    if made is None:
        return None
    rough = bool(ROUGH.search(name))
    return Launch(made[0], made[1], out, expected, rough=rough, computed=source)


@_case(
    r"(\w+?)_(dense_ilp4|dense_broadcast|dense_broadcast_rhs|dense_scalar_lhs|dense_cast"
    rf"|dense_broadcast_cast|dense_broadcast_rhs_cast|strided_cast)_{_T}_{_T}"
)
def _binary(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, form, result, source = match.groups()
    if name not in BINARY:
        return None
    a = values(name, _DTYPES[source], generator, 96)
    b = values(name, _DTYPES[source], generator, 96, second=True)
    out = torch.zeros(96, dtype=_DTYPES[result])
    made = _binary_form(form, a, b, out)
    if made is None:
        return None
    arguments, threads, left, right = made
    expected = reference(BINARY[name], out.dtype, left, right)
    return Launch(arguments, threads, out, expected, rough=bool(ROUGH.search(name)))


def _binary_form(
    form: str, a: Tensor, b: Tensor, out: Tensor
) -> tuple[list[Any], tuple[int, ...], Tensor, Tensor] | None:
    """Arguments, threads, and what the operator's two operands are then."""
    kind, size = _SCALAR_TYPES[a.dtype], a.element_size()
    types = _integers(size, size, kind, kind)
    count = _integers(8, dtype=torch.int64)
    many = b[:8].repeat(12)
    match form:
        case "dense":
            return [out, a, b], (96,), a, b
        case "dense_ilp4":
            return [out, a, b, _integers(96)], _quarter(96), a, b
        case "dense_cast":
            return [out, a, b, types], (96,), a, b
        case "dense_scalar":
            return [out, a, b[:1].clone()], (96,), a, b[:1].expand(96)
        case "dense_scalar_lhs":
            safe = b[1].clone() if bool(b[1] != 0) else b[0].clone()
            return [out, safe.reshape(1).clone(), b], (96,), safe.expand(96), b
        case "dense_broadcast":
            return [out, a, b[:8].clone(), count], (96,), a, many
        case "dense_broadcast_rhs":
            return [out, b[:8].clone(), b, count], (96,), many, b
        case "dense_broadcast_cast":
            return [out, a, b[:8].clone(), count, types], (96,), a, many
        case "dense_broadcast_rhs_cast":
            return [out, b[:8].clone(), b, count, types], (96,), many, b
        case "strided" | "strided_cast":
            (left, steps), (right, more) = _strided(a), _strided(b)
            each = out.element_size()
            dense = _integers(each, 8 * each, 24 * each, dtype=torch.int64)
            sizes = _integers(*_SIZES, dtype=torch.int64)
            last = _integers(3, kind, kind, 0) if form.endswith("cast") else _integers(3, 0, 0, 0)
            return [out, left, right, sizes, dense, steps, more, last], (96,), a, b
    return None


# ---- reductions, scans, norms, sorts, indices, products ------------------------------------------

_OTHERS = frozenset(
    (
        *("sum", "all", "any", "count_nonzero", "cumsum", "cumprod", "cummax", "cummin"),
        *("logcumsumexp", "layer_norm", "rms_norm", "sort_block", "triu", "tril", "eye"),
        *("gather", "matmul", "fill_scalar"),
    )
)
_KNOWN = _OTHERS | UNARY.keys() | BINARY.keys()
ROWS, COLUMNS = 5, 64


def _matrix(name: str, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    return values(name, dtype, generator, ROWS * COLUMNS).reshape(ROWS, COLUMNS)


@_case(rf"(sum|all|any|count_nonzero)_reduction_inner_{_T}_{_T}")
def _reduction(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, source, result = match.groups()
    if _DTYPES[source].is_complex:
        return None
    x = _matrix(name, _DTYPES[source], generator)
    out = torch.zeros(ROWS, dtype=_DTYPES[result])
    function = getattr(torch, name)
    expected = function(_wide(x), 1).to(out.dtype)
    arguments = [x, out, _integers(ROWS, COLUMNS)]
    if name in ("sum", "count_nonzero"):
        arguments.append(torch.ones(1))
    return Launch(arguments, (32 * ROWS,), out, expected, (32,), rough=True)


@_case(rf"(cumsum|cumprod|logcumsumexp)_innermost_{_T}")
def _scan(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, source = match.groups()
    if _DTYPES[source].is_complex:
        return None
    x = _matrix(name, _DTYPES[source], generator)
    if name == "cumprod":
        x = (x / 3).to(x.dtype) if x.is_floating_point() else x.clamp(-1, 1)
    out = torch.zeros_like(x)
    function = getattr(torch, name)
    expected = function(_wide(x), 1).to(x.dtype)
    size = _integers(COLUMNS, dtype=torch.int64)
    return Launch([x, out, size], (32, ROWS, 1), out, expected, (32, 1, 1), rough=True)


@_case(rf"(cummax|cummin)_innermost_{_T}")
def _extreme(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    name, source = match.groups()
    x = _matrix(name, _DTYPES[source], generator)
    out, where = torch.zeros_like(x), torch.zeros(ROWS, COLUMNS, dtype=torch.int64)
    expected = getattr(torch, name)(x, 1).values
    size = _integers(COLUMNS, dtype=torch.int64)
    return Launch([x, out, where, size], (32, ROWS, 1), out, expected, (32, 1, 1))


@_case(r"(layer_norm)_(single_row|looped)_(float|half|bfloat)")
def _layer_norm(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    dtype = _DTYPES[match[3]]
    threads = 1024 if match[2] == "looped" else 32  # it reads what 32 simdgroups have left
    x = _matrix("", dtype, generator)
    weight, bias = (values("", dtype, generator, COLUMNS) for _ in range(2))
    out, mean, deviation = (
        torch.zeros_like(x),
        torch.zeros(ROWS, dtype=dtype),
        torch.zeros(ROWS, dtype=dtype),
    )
    exact = functional.layer_norm(x.float(), (COLUMNS,), weight.float(), bias.float(), 1e-5)
    arguments = [x, out, mean, deviation, COLUMNS, 1e-5, 1, 1, weight, bias]
    return Launch(arguments, (threads * ROWS,), out, exact.to(dtype), (threads,), rough=True)


@_case(r"(rms_norm)(?:_looped)?_(float|half|bfloat)")
def _rms_norm(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    dtype = _DTYPES[match[2]]
    x, weight = _matrix("", dtype, generator), values("", dtype, generator, COLUMNS)
    out = torch.zeros_like(x)
    expected = functional.rms_norm(x.float(), (COLUMNS,), weight.float(), 1e-5).to(dtype)
    return Launch(
        [x, weight, out, 1e-5, COLUMNS, 1], (32 * ROWS,), out, expected, (32,), rough=True
    )


@_case(rf"(sort_block)_{_T}_tptg(\d+)(?:_stable)?")
def _sort(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    dtype, threads = _DTYPES[match[2]], int(match[3])
    if dtype.is_complex:
        return None
    x = _matrix("", dtype, generator)
    out, where = torch.zeros_like(x), torch.zeros(ROWS, COLUMNS, dtype=torch.int64)
    steps = _integers(1, COLUMNS, dtype=torch.int64)
    arguments = [x, out, where, COLUMNS, steps, torch.tensor([False])]
    expected = x.sort(1).values
    return Launch(arguments, (threads, ROWS, 1), out, expected, (threads, 1, 1))


@_case(rf"(triu|tril)_int_{_T}")
def _triangle(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    x = values("", _DTYPES[match[2]], generator, 64).reshape(8, 8)
    out = torch.zeros_like(x)
    expected = getattr(torch, match[1])(x, 1)
    steps, sizes = _integers(1, 8), _integers(8, 8)
    return Launch([out, x, steps, steps, sizes, _integers(1, 2)], (8, 8, 1), out, expected)


@_case(rf"(eye)_{_T}")
def _eye(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    out = torch.full((7, 7), 1, dtype=_DTYPES[match[2]])
    steps = [_integers(n, dtype=torch.int64) for n in (7, 1)]
    return Launch([out, *steps], (7, 7), out, torch.eye(7, dtype=out.dtype))


@_case(rf"(gather)_dense_{_T}_(int|long)")
def _gather(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    x = values("", _DTYPES[match[2]], generator, 80).reshape(2, 8, 5)
    index = torch.randint(0, 8, (2, 3, 5), generator=generator).to(_DTYPES[match[3]])
    out = torch.zeros(2, 3, 5, dtype=x.dtype)
    sizes = [_integers(n, dtype=torch.int64) for n in (5, 3, 8, 0)]
    errors = torch.zeros(15364, dtype=torch.uint8)
    return Launch([out, x, index, *sizes, errors], (30,), out, x.gather(1, index.long()))


@_case(rf"(fill_scalar)_dense_{_T}")
def _fill(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    dtype = _DTYPES[match[2]]
    value, out = values("", dtype, generator, 2)[:1], torch.zeros(96, dtype=dtype)
    return Launch([out, value, _integers(96)], (96,), out, value.expand(96))


@_case(rf"(matmul)_{_T}")
def _matmul(match: re.Match[str], generator: torch.Generator) -> Launch | None:
    dtype = _DTYPES[match[2]]
    a = values("", dtype, generator, 17 * 23).reshape(17, 23)
    b = values("", dtype, generator, 23 * 19).reshape(23, 19)
    out = torch.zeros(17, 19, dtype=dtype)
    strides = _integers(23, 1, 19, 1, 19, 1, dtype=torch.int64)
    expected = (_wide(a) @ _wide(b)).to(dtype)
    arguments = [a, b, out, strides, _integers(17, 23, 19, 0)]
    return Launch(arguments, (32, 32), out, expected, (16, 16), rough=True)


# ---- judged --------------------------------------------------------------------------------------

_TOLERANCES = {
    torch.float32: 2e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.complex64: 1e-4,
}
_ROUGHER = 20.0


def judge(names: Iterable[str]) -> Iterator[Verdict]:
    """Runs kernels of torch's metallib that have a case."""
    library = _library()
    for name in names:
        launch = launch_of(name)
        if launch is None:
            continue
        yield Verdict(
            name, family=_family(name), results=(("torch", _outcome(library, name, launch)),)
        )


def _family(name: str) -> str:
    return re.sub(rf"(_{_T})+$", "", name)


@functools.cache
def _library() -> ShaderLibrary:
    return load_metallib(wheels.torch_library(0))


def kernels() -> Sequence[str]:
    return dir(_library())


def _outcome(library: ShaderLibrary, name: str, launch: Launch) -> str:
    try:
        kernel = ShaderLibrary(library._compiler).specialize(name)
        kernel(*launch.arguments, threads=launch.threads, group_size=launch.group_size)
    except (AnymetalError, RuntimeError, ValueError, TypeError) as error:
        return f"not run: {str(error)[:200]}"
    return compared(launch)


def compared(launch: Launch) -> str:
    """`equal`, `close`, or by how much a result is off."""
    found, expected = launch.output.flatten(), launch.expected.flatten()
    if torch.equal(found, expected):
        return "equal"
    kinds = (found.dtype, launch.computed)
    tolerance = max((_TOLERANCES[kind] for kind in kinds if kind in _TOLERANCES), default=None)
    if tolerance is None or found.dtype not in _TOLERANCES:
        return f"{int((found != expected).sum())} elements differ"
    tolerance *= _ROUGHER if launch.rough else 1.0
    wide = torch.complex128 if found.dtype.is_complex else torch.float64
    a, b = found.to(wide), expected.to(wide)
    off = ((a - b).abs() / (b.abs() + 1.0)).nan_to_num(0.0)
    differs = (a.isnan() != b.isnan()) | (a.isinf() != b.isinf()) | (off > tolerance)
    if not bool(differs.any()):
        return "close"
    at = int(differs.nonzero()[0])
    return f"{int(differs.sum())} off, first {found[at].item()} for {expected[at].item()}"
