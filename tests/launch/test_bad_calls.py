"""Calls that no kernel can be called with: each is an error that names what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anymetal
from anymetal import ShaderLibrary, check, compile_shader

SOURCE = """#include <metal_stdlib>
using namespace metal;
constant uchar small [[function_constant(0)]];
constant float factor [[function_constant(1)]];
constant bool on [[function_constant(2)]];
constant uint many [[function_constant(3)]];
struct Pair { float a; uint n; };
kernel void k(device const float* x, device float* y, constant uint& n, constant Pair& pair,
              uint i [[thread_position_in_grid]]) {
  if (i < n) y[i] = x[i] + pair.a;
}
kernel void c(device float* y) { y[0] = small * factor + on + many; }
"""
NAN, INFINITY = math.nan, math.inf
OBJECT = object()
META = torch.ones(1, device="meta")

THREADS: list[Any] = [
    "64", -1, 1.5, NAN, INFINITY, 1 << 64, (1 << 33, 1 << 33), 10**30, (1, 1, 1, 1), (), ((1,),),
    ["a"], OBJECT, {}, (None,), (4, -4), {1: 2}, b"64", 1j,
]  # fmt: skip
GROUP_SIZES: list[Any] = [
    "64", 0, -1, 1.5, NAN, 2048, (32, 32, 32), 1 << 40, (1, 1, 1, 1), (), OBJECT, (32, 0), [[1]],
]  # fmt: skip
BUFFERS: list[Any] = [
    None, "x", OBJECT, {}, {1}, print, int, ["a"], b"abc", 1j, torch.nn.Linear(1, 1), [None],
    torch.zeros(4, device="meta"), torch.zeros(4).to_sparse(), torch.zeros(4, dtype=torch.float64),
    torch.zeros(4, dtype=torch.complex128), range(3), [torch.zeros(4), 1.0],
]  # fmt: skip
NUMBERS: list[Any] = [
    None,
    "x",
    OBJECT,
    1j,
    1 << 70,
    -(1 << 70),
    {},
    ["a"],
    torch.ones(1).to("meta"),
]
STRUCTS: list[Any] = [
    None,
    "x",
    ["a", 1],
    {"z": 1},
    {"a": 1.0},
    {"a": "x", "n": 1},
    {"a": 1, "n": -1},
]
CONSTANTS: list[Any] = [
    {"small": 300}, {"small": -1}, {"small": 1.5}, {"small": "a"}, {"small": None}, {"zz": 1},
    {99: 1}, {None: 1}, {"factor": "x"}, {"factor": 1e60}, {"factor": 1j}, {"on": 5}, {"on": 1.0},
    {"many": 1 << 32}, {"many": -1}, {"many": NAN}, {"small": OBJECT}, [1], "small", 5, {(): 1},
]  # fmt: skip
OPTIONS: dict[str, list[Any]] = {
    "include_dirs": ["inc", Path("inc"), 5, [5], None, ["a\0b"], [b"x"]],
    "defines": [
        "X", ["X"], 5, {5: 1}, {"A B": 1}, {"1A": 1}, {"": 1}, {"A": "b\0c"}, {"A": "b\nc"},
        {"a\0": 1}, {"A": OBJECT}, {"A": None}, {"A=1 -DB": 2}, {"A": [1]},
    ],
    "fast_math": ["yes", 7, NAN, [], 1],
    "name": ["a\0b", None, 5, "a\nb", b"x"],
}  # fmt: skip
CHECKS: dict[str, list[Any]] = {
    "outputs": [5, "x", ["a"], torch.ones(1), True],
    "severity": [{"nothing": "error"}, {"race": "bad"}, {"race": None}, "x", 5, ["race"]],
    "nan": ["x", 5, None],
    "raise_on_error": ["x", 5, None],
}


@pytest.fixture(scope="module")
def library() -> ShaderLibrary:
    return compile_shader(SOURCE)


Call = Callable[[Any], object]


def bad_calls(library: ShaderLibrary) -> Iterator[tuple[str, list[Any], Call]]:
    """A word that the message must have, values, and the call that each is wrong for."""
    x, y, pair = torch.ones(4), torch.zeros(4), {"a": 1.0, "n": 2}
    k = library.k
    yield "threads", THREADS, lambda v: k(x, y, 4, pair, threads=v)
    yield "group_size", GROUP_SIZES, lambda v: k(x, y, 4, pair, threads=4, group_size=v)
    yield "'x'", BUFFERS, lambda v: k(v, y, 1, pair, threads=1)
    yield "'y'", BUFFERS, lambda v: k(x, v, 1, pair, threads=1)
    yield "'n'", NUMBERS, lambda v: k(x, y, v, pair, threads=1)
    yield "'pair'", STRUCTS, lambda v: k(x, y, 1, v, threads=1)
    yield "constant", CONSTANTS, lambda v: library.specialize("c", v)
    yield "source", [None, 5, b"kernel", ["x"], Path("x")], compile_shader
    yield "The source has: k, c", ["nothing", "", "k ", None, 5], library.specialize
    yield "argument", [(), (x,), (x, y), (x, y, 1)], lambda v: k(*v, threads=1)
    yield "nonsense", [1, None], lambda v: k(x, y, 1, pair, threads=1, nonsense=v)
    yield "path", [5, None, b"x"], anymetal.load_library
    yield "/", ["/nonexistent", "/", __file__], anymetal.load_library
    for option, values in OPTIONS.items():
        yield option, values, with_option(lambda **given: compile_shader(SOURCE, **given), option)
    for option, values in CHECKS.items():
        yield option, values, with_option(check, option)


def with_option(function: Callable[..., object], option: str) -> Call:
    return lambda value: function(**{option: value})


def wrong_end(word: str, value: Any, call: Call) -> str:
    """What is wrong with how a bad call ended."""
    try:
        call(value)
    except (TypeError, ValueError, RuntimeError, OSError, SyntaxError) as error:
        fault = "" if word in str(error) else f"{type(error).__name__}: {error}"
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    else:
        fault = "accepted"
    return fault and f"{word} is {value!r:.60}: {fault}"


def test_bad_calls_name_what_is_wrong(library: ShaderLibrary) -> None:
    """One test for all of them: they fail before anything is compiled or launched."""
    ends = [
        wrong_end(word, value, call)
        for word, values, call in bad_calls(library)
        for value in values
    ]
    assert not any(ends), "\n".join(filter(None, ends))
    assert len(ends) >= 135
