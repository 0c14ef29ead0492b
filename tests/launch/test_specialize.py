"""Function constants, and threadgroup memory whose length a call decides."""

from __future__ import annotations

import math

import pytest
import torch

from anymetal import ShaderLibrary, compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

constant bool use_bias [[function_constant(0)]];
constant int power [[function_constant(1)]];
constant float slope [[function_constant(7)]];
constant uint never [[function_constant(9)]];

kernel void plain(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }

kernel void activate(device float* x [[buffer(0)]],
                     device const float* bias [[buffer(1), function_constant(use_bias)]],
                     uint i [[thread_position_in_grid]]) {
  float value = x[i];
  for (int turn = 1; turn < power; ++turn) value *= x[i];
  if (use_bias) value += bias[i];
  x[i] = value;
}
kernel void leaky(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] < 0 ? slope * x[i] : x[i];
}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


def test_constants_by_index_and_by_name(lib: ShaderLibrary) -> None:
    for constants in ({0: False, 1: 3}, {"use_bias": False, "power": 3}, {0: False, "power": 3}):
        x = torch.arange(5.0)
        lib.specialize("activate", constants)(x)
        assert torch.equal(x, torch.arange(5.0) ** 3)


def test_parameter_vanishes_where_its_constant_is_false(lib: ShaderLibrary) -> None:
    with_bias = lib.specialize("activate", {"use_bias": True, "power": 1})
    x = torch.zeros(4)
    with_bias(x, torch.full((4,), 2.0))
    assert x.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="uses argument 'bias'"):
        with_bias(x)
    lib.specialize("activate", {"use_bias": False, "power": 1})(x)
    assert x.tolist() == [2] * 4


def test_variants_are_cached_by_their_values(lib: ShaderLibrary) -> None:
    first = lib.specialize("activate", {0: False, 1: 2})
    assert lib.specialize("activate", {"power": 2, "use_bias": False}) is first
    assert lib.specialize("activate", {0: False, 1: 3}) is not first
    assert first.constants == {"use_bias": False, "power": 2}
    assert "power=2" in repr(first)


def test_unused_constant_may_be_left_unset(lib: ShaderLibrary) -> None:
    x = torch.zeros(3)
    lib.plain(x)
    lib.specialize("plain")(x)
    assert x.tolist() == [2] * 3


def test_used_constant_must_be_set(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match=r"Failed to create function state object for: leaky"):
        _ = lib.leaky
    with pytest.raises(RuntimeError, match="slope"):
        lib.specialize("leaky", {"power": 3})


def test_float_constant(lib: ShaderLibrary) -> None:
    for slope in (0.25, 2):
        x = torch.tensor([-4.0, 4.0])
        lib.specialize("leaky", {7: slope})(x)
        assert x.tolist() == [-4 * slope, 4]


def test_constants_are_checked(lib: ShaderLibrary) -> None:
    with pytest.raises(ValueError, match=r"no function constant 3; it has use_bias \(0\), power"):
        lib.specialize("activate", {3: 1})
    with pytest.raises(ValueError, match="no function constant 'powr'"):
        lib.specialize("activate", {"powr": 1})
    with pytest.raises(TypeError, match=r"'power' is a int, but its value is 1\.5"):
        lib.specialize("activate", {"power": 1.5})
    with pytest.raises(TypeError, match="'use_bias' is a bool, but its value is 'yes'"):
        lib.specialize("activate", {"use_bias": "yes"})  # type: ignore[dict-item]
    with pytest.raises(RuntimeError, match="Failed to create function state object for: missing"):
        lib.specialize("missing", {})


VECTORS = """
#include <metal_stdlib>
using namespace metal;
using real = float;
typedef metal::vec<half, 2> couple;

constant float4 scale [[function_constant(0)]];
constant vec<int, 3> steps [[function_constant(1)]];
constant bool2 on [[function_constant(2)]];
constant couple own [[function_constant(3)]];
constant real factor [[function_constant(4)]];
constant float4 doubled = scale * 2;

kernel void apply(device float4* x, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] * doubled + float4(float3(steps), on.x ? (on.y ? 3 : 2) : (on.y ? 1 : 0));
}
kernel void paired(device float* x, uint i [[thread_position_in_grid]]) {
  x[i] = x[i] * own.x + own.y + factor;
}
"""


def test_vectors() -> None:
    library = compile_shader(VECTORS)
    x = torch.ones(2, 4)
    constants = {"scale": (1, 0.5, -1.0, math.inf), 1: [3, -(2**31), 0], 2: (True, False)}
    library.specialize("apply", constants)(x, threads=2)
    assert x.tolist() == [[2 + 3, -(2.0**31), -2, math.inf]] * 2
    y = torch.tensor([3.0])
    library.specialize("paired", {"own": (0.5, -2), "factor": 0.25})(y)
    assert y.item() == -0.25


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("scale", 1.0, r"'scale' is a float4, but its value is 1\.0: expected 4 numbers"),
        (
            "scale",
            (1.0, 2.0, 3.0),
            r"is a float4, but its value is \(1\.0, 2\.0, 3\.0\): expected 4",
        ),
        ("scale", "1234", "is a float4, but its value is '1234': expected 4 numbers"),
        ("scale", (1, 2, 3, "4"), "'scale' is a float4, but its value is '4'"),
        ("steps", (1, 2, 0.5), r"'steps' is a vec<int, 3>, but its value is 0\.5"),
        ("on", (True, 1), "'on' is a bool2, but its value is 1"),
        ("factor", (1.0, 2.0), r"'factor' is a float, but its value is \(1\.0, 2\.0\)"),
    ],
)
def test_vectors_are_checked(name: str, value: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        compile_shader(VECTORS).specialize("apply", {name: value})  # type: ignore[dict-item]


def test_vectors_are_checked_against_their_elements_range() -> None:
    with pytest.raises(ValueError, match=r"'steps' is a vec<int, 3>, -2147483648 to 2147483647"):
        compile_shader(VECTORS).specialize("apply", {"steps": (0, 2**31, 0)})


def test_zeros_of_both_signs_are_two_values(lib: ShaderLibrary) -> None:
    for slope in (0.0, -0.0):
        x = torch.tensor([-4.0])
        lib.specialize("leaky", {7: slope})(x)
        assert math.copysign(1, x.item()) == -math.copysign(1, slope)


MEMORY = """
#include <metal_stdlib>
using namespace metal;
kernel void reverse(device float* x, threadgroup float* tile [[threadgroup(0)]],
                    threadgroup int* flags [[threadgroup(2)]],
                    uint i [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
  threadgroup float declared[4];
  declared[i % 4] = 0;
  tile[i] = x[i];
  flags[i] = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint other = size - 1 - i;
  x[i] = tile[other] + (flags[other] == int(other) ? 0 : 1000);
}
kernel void none(device float* x) { x[0] = 1; }
"""


@pytest.fixture(scope="module")
def memory() -> ShaderLibrary:
    return compile_shader(MEMORY)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 257])
def test_threadgroup_memory_length(memory: ShaderLibrary, size: int) -> None:
    x = torch.arange(float(size))
    length = -(-4 * size // 16) * 16
    memory.reverse(x, threadgroup_memory={0: length, 2: length})
    assert torch.equal(x, torch.arange(float(size)).flip(0))


def test_threadgroup_memory_must_be_given(memory: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match=r"'flags' \[\[threadgroup\(2\)\]\] needs its size"):
        memory.reverse(torch.zeros(4), threadgroup_memory={0: 16})
    with pytest.raises(RuntimeError, match=r"'tile' \[\[threadgroup\(0\)\]\] needs its size"):
        memory.reverse(torch.zeros(4))


@pytest.mark.parametrize("size", [0, -16, 10, 16.0, None])
def test_threadgroup_memory_is_a_multiple_of_16(memory: ShaderLibrary, size: object) -> None:
    with pytest.raises(ValueError, match="positive multiple of 16"):
        memory.reverse(torch.zeros(4), threadgroup_memory={0: size, 2: 16})


def test_threadgroup_memory_limit(memory: ShaderLibrary) -> None:
    with pytest.raises(ValueError, match=r"32784 bytes.*\(16 declared.*limit of 32768"):
        memory.reverse(torch.zeros(4), threadgroup_memory={0: 16384, 2: 16384})


def test_threadgroup_memory_for_no_parameter(memory: ShaderLibrary) -> None:
    with pytest.raises(ValueError, match=r"no \[\[threadgroup\(1\)\]\] parameter"):
        memory.none(torch.zeros(4), threadgroup_memory={1: 16})


_INTEGERS = {
    **{f"{kind}{bits}_t": bits for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{"char": 8, "uchar": 8, "short": 16, "ushort": 16, "int": 32, "uint": 32, "ulong": 64},
}


def test_constants_that_do_not_fit_are_refused() -> None:
    """Just inside and just outside of every integer type, and of the floating ones."""
    kinds = [*_INTEGERS, "half", "float"]
    declared = "".join(
        f"constant {kind} c{n} [[function_constant({n})]];\n" for n, kind in enumerate(kinds)
    )
    lib = compile_shader(
        f"#include <metal_stdlib>\nusing namespace metal;\n{declared}"
        "kernel void k(device float* x) { x[0] = 1; }"
    )
    for number, kind in enumerate(kinds):
        if kind in _INTEGERS:
            bits = _INTEGERS[kind]
            low = 0 if kind[0] == "u" else -(1 << bits - 1)
            high = low + (1 << bits) - 1
            wrong: list[float] = [low - 1, high + 1]
        else:
            wrong = [7e4, -7e4] if kind == "half" else [4e38, -4e38]
        for value in wrong:
            with pytest.raises(ValueError, match=f"'c{number}' is a {kind}"):
                lib.specialize("k", {number: value})
    inside = {n: (1 << bits - 1) - 1 for n, bits in enumerate(_INTEGERS.values())}
    lib.specialize("k", inside | {len(kinds) - 1: math.inf})


def test_bad_options_are_named() -> None:
    source = "#include <metal_stdlib>\nkernel void k(device float* x) { x[0] = 1; }"
    with pytest.raises(TypeError, match="include_dirs is 'inc', expected a list"):
        compile_shader(source, include_dirs="inc")
    for words in ({"name": "a\0b"}, {"source": source + "\0"}):
        with pytest.raises(ValueError, match=f"{next(iter(words))} has a zero byte"):
            compile_shader(**{"source": source, **words})
    most = 2**32 - 1
    with pytest.raises(ValueError, match="fewer than"):
        compile_shader(source).k(torch.zeros(1), threads=(most, most, most))
