"""What people get wrong most around and inside a kernel: each with a right twin.

A row calls a kernel of mistakes.metal in a wrong way, which must be found as what it is, and in a
right one, about which nothing may be found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Call:
    """A kernel and its arguments, made anew for each run."""

    kernel: str
    make: Callable[[], list[Any]]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mistake:
    """A wrong call with the finding it must give, and a right one."""

    name: str
    kind: str
    severity: str
    wrong: Call
    right: Call
    words: str = ""  # of the message
    also: frozenset[str] = frozenset()  # kinds that follow from the mistake, in any severity
    raises: bool = False


def call(kernel: str, *makers: Any, **options: Any) -> Call:
    """Each argument is a value, or a function that makes one: of the arguments before it."""

    def make() -> list[Any]:
        made: list[Any] = []
        for maker in makers:
            made.append(maker(made) if callable(maker) else maker)
        return made

    return Call(kernel, make, options)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[list[Any]], torch.Tensor]:
    return lambda made: torch.randn(*shape).add(2).to(dtype)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[list[Any]], torch.Tensor]:
    return lambda made: torch.zeros(*shape, dtype=dtype)


def again(number: int, first: int = 0) -> Callable[[list[Any]], torch.Tensor]:
    """An argument once more, or what is behind its first elements."""
    return lambda made: made[number][first:]


def of(*values: Any, dtype: torch.dtype) -> Callable[[list[Any]], torch.Tensor]:
    return lambda made: torch.tensor(list(values), dtype=dtype)


def scalar(value: float, dtype: torch.dtype) -> Callable[[list[Any]], torch.Tensor]:
    return lambda made: torch.tensor(value, dtype=dtype)


HALF, BFLOAT, INT, LONG = torch.float16, torch.bfloat16, torch.int32, torch.int64
X, Y = floats(8), zeros(8)
LAST = torch.channels_last
ODD = of(3, 1, 2, 0, 7, 5, 6, 4, dtype=INT)
FIELDS = {"rows": 1, "columns": 2, "scale": 0.5, "padding": list(range(10))}


def slices(made: list[Any]) -> torch.Tensor:
    return torch.randn(4, 8)[:, :4]


def seconds(made: list[Any]) -> torch.Tensor:
    return torch.randn(4, 8)[:, ::2]


def transposed(made: list[Any]) -> torch.Tensor:
    return torch.randn(8, 4).t()


def like_first(made: list[Any]) -> torch.Tensor:
    return torch.empty_like(made[0])


def image(made: list[Any]) -> torch.Tensor:
    return torch.randn(2, 3, 4, 4).to(memory_format=LAST)


def pair(dtype: torch.dtype) -> Callable[[list[Any]], list[torch.Tensor]]:
    return lambda made: [torch.ones(8), torch.ones(8, dtype=dtype)]


def shifted(count: int, dtype: torch.dtype) -> Callable[[list[Any]], torch.Tensor]:
    return lambda made: torch.zeros(count + 1, dtype=dtype)[1:]


SCALE = call("scale", X, Y, 2.0, 8)
HALVES = call("scale_half", floats(8, dtype=HALF), zeros(8, dtype=HALF), 2.0, arg_casts="fp16")
SIZES = call("sizes", Y, [2, 3], arg_casts={1: "int32"})
VOLUME = call("volume", Y, [2, 3, 4], arg_casts="int32")
CORNER = call("corner", Y, [1, 2, 3], arg_casts="int32")
PAD = call("pad", Y, FIELDS)
ROWS = call("sum_rows", floats(4, 8), zeros(4), 8, threads=4)
STRIDED = call("sum_strided_rows", slices, zeros(4), 4, {"scale": 1.0, "row_stride": 8}, threads=4)
NEGATE = call("negate", X, Y)
MISALIGNED = frozenset(("misaligned",))
ALONE = frozenset(("collective_divergence",))
BEYOND = frozenset(("out_of_bounds",))

ARGUMENTS = [
    Mistake(
        "int32 for float", "argument_type", "error",
        call("scale", zeros(8, dtype=INT), Y, 2.0, 8), SCALE,
        "pointer to float; the tensor is int32",
    ),
    Mistake(
        "float for int", "argument_type", "error",
        call("take", X, floats(8), Y), call("take", X, ODD, Y), "pointer to int",
    ),
    Mistake(
        "bfloat for half", "argument_type", "error",
        call("scale_half", floats(8, dtype=BFLOAT), zeros(8, dtype=HALF), 2.0, arg_casts="fp16"),
        HALVES,
    ),
    Mistake(
        "half for bfloat", "argument_type", "error",
        call("widen", floats(8, dtype=HALF), Y), call("widen", floats(8, dtype=BFLOAT), Y),
    ),
    Mistake(
        "output of integers", "argument_type", "error",
        call("scale", X, zeros(8, dtype=INT), 2.0, 8), SCALE, "argument 'y' (buffer 1)",
    ),
    Mistake(
        "counts in floats", "argument_type", "error",
        call("count", X, zeros(2), threads=8), call("count", X, zeros(2, dtype=INT), threads=8),
    ),
    Mistake(
        "bool for float", "element_size", "error",
        call("scale", zeros(8, dtype=torch.bool), Y, 2.0, 8), SCALE, also=BEYOND,
    ),
    Mistake(
        "long indices", "element_size", "error",
        call("take", X, zeros(8, dtype=LONG), Y), call("take", X, ODD, Y),
    ),
    Mistake(
        "mask of floats", "element_size", "error",
        call("masked", X, X, Y), call("masked", X, zeros(8, dtype=torch.bool), Y),
    ),
    Mistake(
        "bias in half", "element_size", "error",
        call("with_bias", X, floats(8, dtype=HALF), Y, True),
        call("with_bias", X, floats(8, dtype=HALF), Y, False),  # it is never read
        also=BEYOND,
    ),
    Mistake(
        "int for float&", "argument_type", "error", call("scale", X, Y, 2, 8), SCALE, "the int 2"
    ),
    Mistake(
        "zero for float&", "argument_type", "warning", call("scale", X, Y, 0, 8),
        call("scale", X, Y, 0.0, 8),
    ),
    Mistake(
        "float for uint&", "argument_type", "error", call("scale", X, Y, 2.0, 8.0), SCALE,
        "it arrives as float32",
    ),
    Mistake(
        "negative for uint&", "argument_type", "error", call("scale", X, Y, 2.0, -1), SCALE,
        "it is negative",
    ),
    Mistake(
        "too large for uint&", "argument_type", "error", call("scale", X, Y, 2.0, 1 << 40), SCALE,
        "it does not fit",
    ),
    Mistake(
        "float for half&", "argument_type", "error",
        call("scale_half", floats(8, dtype=HALF), zeros(8, dtype=HALF), 2.0), HALVES,
    ),
    Mistake(
        "int for half&", "argument_type", "error",
        call("scale_half", floats(8, dtype=HALF), zeros(8, dtype=HALF), 2), HALVES,
    ),
    Mistake(
        "two for bool&", "argument_type", "error", call("with_bias", X, X, Y, 2),
        call("with_bias", X, X, Y, 1),
    ),
    Mistake(
        "tensor of an int for float&", "argument_type", "error",
        call("scale", X, Y, scalar(2, LONG), 8), call("scale", X, Y, scalar(2, torch.float64), 8),
    ),
    Mistake(
        "tensor of a float for uint&", "argument_type", "error",
        call("scale", X, Y, 2.0, scalar(8, torch.float32)),
        call("scale", X, Y, 2.0, scalar(8, LONG)),
    ),
    Mistake(
        "list of ints for uint*", "argument_type", "error", call("sizes", Y, [2, 3]), SIZES,
        "they arrive as int64",
    ),
    Mistake(
        "list of floats for uint*", "argument_type", "error", call("sizes", Y, [2.0, 3.0]), SIZES
    ),
    Mistake(
        "list of ints for float*", "argument_type", "error", call("weights", Y, [1, 2]),
        call("weights", Y, [1.0, 2]),
    ),
    Mistake(
        "negative in a list", "argument_type", "error",
        call("sizes", Y, [2, -3], arg_casts={1: "int32"}), SIZES, "it is negative",
    ),
    Mistake(
        "two numbers for three", "argument_size", "error",
        call("volume", Y, [2, 3], arg_casts="int32"), VOLUME, "gets 2 numbers, uint3 has 3",
    ),
    Mistake(
        "four numbers for three", "argument_size", "error",
        call("corner", Y, [1, 2, 3, 4], arg_casts="int32"), CORNER, "gets 4 numbers, int[3] has 3",
    ),
    Mistake(
        "columns of three without their fourth", "argument_size", "error",
        call("turn", Y, [1.0] * 9), call("turn", Y, [1.0] * 12), "gets 9 numbers, float3x3 has 12",
    ),
    Mistake("one number for three", "argument_size", "error", call("volume", Y, 2), VOLUME),
    Mistake(
        "bytes of an older struct", "argument_size", "error",
        call("pad", Y, zeros(44, dtype=torch.uint8)), call("pad", Y, zeros(52, dtype=torch.uint8)),
        "argument 'conv' (buffer 1) has 44 bytes, Conv has 52",
    ),
    Mistake(
        "list for a struct", "argument_size", "error", call("pad", Y, [0] * 5), PAD, "has 40 bytes"
    ),
    Mistake("number for a struct", "argument_size", "error", call("pad", Y, 5), PAD, "has 8 bytes"),
    Mistake(
        "list of ints for a struct", "argument_type", "error", call("pad", Y, [0] * 13), PAD,
        "a list of 13 numbers of int64: no field of Conv",
    ),
    Mistake(
        "torch.tensor of ints for a struct", "argument_type", "error",
        call("pad", Y, zeros(13, dtype=LONG)), call("pad", Y, zeros(13, dtype=INT)),
        "a tensor of int64: no field of Conv",
    ),
    Mistake(
        "one argument too many", "argument_size", "warning", call("scale", X, Y, 2.0, 8, 8), SCALE
    ),
    Mistake(
        "one argument too few", "argument_size", "error", call("scale", X, Y, 2.0), SCALE,
        "the kernel uses argument 'n' (buffer 3)", raises=True,
    ),
    Mistake(
        "list with a half tensor", "element_size", "error",
        call("sum_of_two", pair(HALF), Y, threads=8),
        call("sum_of_two", pair(torch.float32), Y, threads=8), also=BEYOND,
    ),
    Mistake(
        "list of one tensor for two", "argument_size", "error",
        call("sum_of_two", lambda made: [torch.ones(8)], Y, threads=8),
        call("sum_of_two", pair(torch.float32), Y, threads=8), also=BEYOND,
    ),
]  # fmt: skip

LAYOUTS = [
    Mistake(
        "rows of a transposed tensor", "layout", "warning",
        call("sum_rows", transposed, zeros(4), 8, threads=4), ROWS, "strides (1, 4)",
    ),
    Mistake(
        "half of the columns", "layout", "warning",
        call("sum_rows", slices, zeros(4), 4, threads=4), STRIDED, "strides (8, 1)",
    ),
    Mistake(
        "every second column", "layout", "warning",
        call("sum_rows", seconds, zeros(4), 4, threads=4), ROWS, "strides (8, 2)",
    ),
    Mistake(
        "expanded rows", "layout", "warning",
        call("sum_rows", lambda made: torch.randn(8).expand(4, 8), zeros(4), 8, threads=4), ROWS,
        "strides (0, 1)", also=BEYOND,
    ),
    Mistake(
        "transposed into contiguous", "layout", "warning",
        call("negate", transposed, zeros(4, 8), threads=32),
        call("negate", transposed, like_first, threads=32),
    ),
    Mistake(
        "channels last into contiguous", "layout", "warning",
        call("negate", image, zeros(2, 3, 4, 4), threads=96),
        call("scale_channels", image, floats(3), like_first, 3, threads=96),
    ),
    Mistake(
        "written beside a view", "layout", "error",
        call("fill", slices, 1.0, threads=16), call("fill_rows", slices, 1.0, 8, threads=(4, 4)),
        also=frozenset(("unwritten_output",)),
    ),
    Mistake(
        "red of every pixel as a plane", "layout", "warning",
        call("negate", lambda made: torch.randn(8, 3)[:, 0], Y, threads=8),
        call("red", lambda made: torch.randn(8, 3)[:, 0], Y, threads=8),
    ),
]  # fmt: skip

SHARED = [
    Mistake(
        "in place through two arguments", "aliasing", "warning",
        call("negate", X, again(0)), call("negate_in_place", X), "'y' and 'x' are the same memory",
    ),
    Mistake(
        "in place by a grid of several threadgroups", "aliasing", "warning",
        call("negate", floats(70), again(0), threads=70, group_size=32),
        call("negate_knowingly", floats(70), again(0), threads=70, group_size=32),
    ),
    Mistake(
        "added to itself", "aliasing", "warning", call("accumulate", X, again(0)),
        call("accumulate", X, X), "is read through 'x' and then written",
    ),
    Mistake(
        "read after it is written", "aliasing", "error", call("both", X, again(0), Y),
        call("both", X, Y, Y), "this read", frozenset({"aliasing"}),
    ),
    Mistake(
        "two outputs in one tensor", "aliasing", "error", call("two", X, Y, again(1)),
        call("two", X, Y, Y), "this write",
    ),
    Mistake(
        "reversed in place behind a barrier", "aliasing", "error",
        call("reverse", X, again(0), threads=8, group_size=8),
        call("reverse", X, Y, threads=8, group_size=8),
    ),
    Mistake(
        "shifted in place", "race", "error", call("shift", floats(9), again(0), threads=8),
        call("shift", floats(9), Y, threads=8), "which 'x' is bound to as well",
        also=frozenset(("unwritten_output",)),
    ),
    Mistake(
        "output that begins inside the input", "race", "error",
        call("negate", floats(9), again(0, 1), threads=8),
        # Halves of one tensor share no bytes.
        call("negate", lambda made: torch.randn(16)[:8], lambda made: torch.randn(16)[8:]),
    ),
    Mistake(
        "permuted in place", "race", "error", call("scatter", X, ODD, again(0)),
        call("scatter", X, ODD, Y), also=frozenset(("aliasing",)),
    ),
    Mistake(
        "product over its own operand", "race", "error",
        call("square", floats(4, 4), again(0), 4, threads=(4, 4)),
        call("square", floats(4, 4), zeros(4, 4), 4, threads=(4, 4)),
        also=frozenset(("aliasing",)),
    ),
]  # fmt: skip

INSIDE = [
    Mistake(
        "sum that starts with nothing", "uninitialised", "error",
        call("sum_unset", floats(32), Y, threads=8), call("sum_set", floats(32), Y, threads=8),
    ),
    Mistake(
        "set in one branch", "uninitialised", "error",
        call("one_branch", of(1.0, -1.0, dtype=torch.float32), zeros(2)),
        call("both_branches", of(1.0, -1.0, dtype=torch.float32), zeros(2)),
    ),
    Mistake(
        "copied vectors", "misaligned", "warning",
        call("copy_vectors", shifted(16, torch.float32), zeros(16), threads=4),
        call("copy_vectors", zeros(16), zeros(16), threads=4), "read of a vector",
    ),
    Mistake(
        "vectors copied to an odd place", "misaligned", "warning",
        call("copy_half_vectors", zeros(16, dtype=HALF), shifted(16, HALF), threads=4),
        call("copy_half_vectors", zeros(16, dtype=HALF), zeros(16, dtype=HALF), threads=4),
        "write of a vector",
    ),
    Mistake(
        "doubled vectors", "misaligned", "warning",
        call("double_vectors", shifted(16, torch.float32), zeros(16), threads=4),
        call("double_vectors", zeros(16), zeros(16), threads=4),
    ),
    Mistake(
        "index of a row far down", "arithmetic", "error",
        call("mark", Y, 1 << 16, 1 << 16, outputs=()),
        call("mark_far", Y, 1 << 16, 1 << 16, outputs=()), "signed overflow in an index",
    ),
    Mistake(
        "sum of two large indices", "arithmetic", "error",
        call("mark_sum", Y, 1 << 30, 1 << 30, outputs=()),
        call("mark_sum", Y, 1 << 30, 5, outputs=()),
        "signed overflow in an index",
    ),
    *(
        Mistake(
            f"by zero: {kernel}", "arithmetic", severity,
            call(kernel, ODD, zeros(8, dtype=INT), 0),
            call(kernel, ODD, zeros(8, dtype=INT), 3), words,
        )
        for kernel, severity, words in (
            ("divide", "error", "division by zero"),
            ("divide_for_some", "error", "division by zero"),
            ("divide_to_choose", "error", "division by zero"),
            ("divide_vectors", "error", "division by zero"),
            ("remainder_of_vectors", "error", "division by zero"),
            ("divide_vectors_unused", "warning", "whose result is never used"),
            ("divide_unused", "warning", "whose result is never used"),
            ("divide_guarded", "warning", "whose result is never used"),
            ("divide_chosen", "warning", "whose result is never used"),
            ("divide_in_rounds", "warning", "whose result is never used"),
        )
    ),
    Mistake(
        "lane 32", "shuffle", "error", call("read_lane", floats(64), zeros(64), 32, threads=64),
        call("read_lane", floats(64), zeros(64), 31, threads=64), "lane 32 is read",
    ),
    Mistake(
        "lane of a threadgroup that is smaller", "shuffle", "warning",
        call("read_lane", X, Y, 8), call("read_lane", X, Y, 7), "lane 8 is read",
    ),
    Mistake(
        "butterfly past the simdgroup", "shuffle", "error",
        call("butterfly", floats(64), zeros(64), 32, threads=64),
        call("butterfly", floats(64), zeros(64), 16, threads=64),
    ),
    Mistake(
        "butterfly over a part of a simdgroup", "shuffle", "warning",
        call("butterfly", floats(20), zeros(20), 16, threads=20, group_size=20),
        call("butterfly", floats(20), zeros(20), 1, threads=20, group_size=20),
    ),
    Mistake(
        "neighbour of the last thread", "shuffle", "warning",
        call("next_lane", floats(20), zeros(20), threads=20, group_size=20),
        call("next_lane", floats(32), zeros(32), threads=32, group_size=32),
    ),
    Mistake(
        "fifth lane of a quad", "shuffle", "error",
        call("read_quad", X, Y, 4), call("read_quad", X, Y, 3),
    ),
    Mistake(
        "broadcast from outside the branch", "shuffle", "warning",
        call("broadcast", floats(32), zeros(32), 20, threads=32),
        call("broadcast", floats(32), zeros(32), 32, threads=32), also=ALONE,
    ),
    Mistake(
        "barrier inside a guard", "barrier_divergence", "error",
        call("guarded", floats(64), zeros(64), 40, threads=64, group_size=64, outputs=()),
        call("guarded", floats(64), zeros(64), 64, threads=64, group_size=64),
        "24 threads of the threadgroup never come to this barrier",
    ),
    Mistake(
        "barrier in a loop of its own length", "barrier_divergence", "error",
        call("rounds", floats(100), zeros(64), 100, threads=64, group_size=64),
        call("rounds", floats(128), zeros(64), 128, threads=64, group_size=64),
        "28 threads of the threadgroup never come to this barrier",
    ),
    Mistake(
        "barrier in the other branch", "barrier_divergence", "error",
        call("otherwise", floats(64), zeros(64), 40, threads=64, group_size=64, outputs=()),
        call("otherwise", floats(64), zeros(64), 64, threads=64, group_size=64),
        "40 threads of the threadgroup never come to this barrier",
    ),
    Mistake(
        "return before a barrier", "barrier_divergence", "warning",
        call("returns", floats(64), zeros(64), 40, threads=64, group_size=64, outputs=()),
        call("returns", floats(64), zeros(64), 64, threads=64, group_size=64),
        "24 threads of the threadgroup had returned before this barrier",
    ),
]  # fmt: skip

MISTAKES = [*ARGUMENTS, *LAYOUTS, *SHARED, *INSIDE]

# Calls that look like mistakes, and are none.
UNUSUAL = [
    call("copy_bits", floats(8), zeros(8)),
    call("copy_bytes", floats(8), zeros(8), threads=32),
    call("bits_of_bfloat", floats(8, dtype=BFLOAT), Y),
    call("magnitude", lambda made: torch.randn(8, dtype=torch.complex64), Y),
    call("with_gap", X, 5, Y),
    call("with_gap", X, X, Y),
    call("take", X, zeros(8, dtype=torch.uint32), Y),
    call("masked", X, zeros(8, dtype=torch.uint8), Y),
    call("weights", Y, of(1.0, 2.0, dtype=torch.float32)),
    call("sizes", Y, of(2, 3, dtype=INT)),
    call("pad", Y, zeros(13, dtype=INT)),
    call("scale", X, Y, of(2.0, dtype=torch.float32), of(8, dtype=INT)),
    call("negate", lambda made: torch.randn(9)[::8], zeros(9), threads=1, outputs=()),
    call("negate", lambda made: torch.randn(4, 8)[1:3], zeros(2, 8), threads=16),
    call("negate", lambda made: torch.randn(8, 1).t(), zeros(1, 8), threads=8),
    call("sum_rows", lambda made: torch.randn(8).expand(1, 8), zeros(1), 8, threads=1),
    call("both", X, Y, Y, threads=8, group_size=4),
]  # fmt: skip
