"""Struct arguments: named values become the bytes Metal lays out, and wrong ones are named."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import anymetal
from anymetal import ShaderLibrary, compile_shader
from anymetal.launch.structs import Fixed, Layout, Structs, reflected
from anymetal.nouns import Argument, Source

SOURCE = """
#include <metal_stdlib>
using namespace metal;
enum Mode : uchar { fast, slow };
constant int COUNT = 3;
struct Numbers { uint m; ushort n; long k; float scale; };
kernel void plain(device float* out [[buffer(0)]], constant Numbers& numbers [[buffer(2)]]) {
  out[0] = numbers.m; out[1] = numbers.n; out[2] = numbers.k; out[3] = numbers.scale;
}
struct Inner { half weight; packed_float3 p; bool flags[2]; };
typedef struct { float a; } Plain;
template <typename T>
struct All {
  char small; float3 v; uint counts[COUNT][2]; Inner inner[2]; Plain plain; T t; half2x2 matrix;
  Mode mode; bfloat low; ulong last;
  float total() const { return v.x + v.y + v.z; }
  static constexpr constant int unused = 4;
};
using Everything = All<half>;
kernel void all(constant Everything& all [[buffer(0)]], device float* out [[buffer(1)]]) {
  out[0] = all.small; out[1] = all.total(); out[2] = all.counts[2][1]; out[3] = all.counts[0][1];
  out[4] = all.inner[1].weight; out[5] = all.inner[1].p.z; out[6] = all.inner[0].flags[1];
  out[7] = all.plain.a; out[8] = all.t; out[9] = all.matrix[1][0]; out[10] = all.mode;
  out[11] = all.low; out[12] = all.last == 0xFFFFFFFFFFFFFFFFul;
}
template <typename T>
kernel void typed(constant All<T>& all, device float* out) { out[0] = all.t; }
template [[host_name("typed_float")]] kernel void typed<float>(constant All<float>&, device float*);
struct Base { float a; };
struct Derived : Base { float b; };
struct Bits { uint a : 3; uint b : 5; };
struct Address { device float* x; };
kernel void derived(constant Derived& value, device float* out) { out[0] = value.b; }
kernel void bits(constant Bits& value, device float* out) { out[0] = value.b; }
kernel void address(constant Address& value, device float* out) { out[0] = value.x[0]; }
"""

NUMBERS = {"m": 4_000_000_000, "n": 2, "k": -3, "scale": 0.5}
ALL: dict[str, Any] = {
    "small": -1,
    "v": (1.0, 2.0, 3.0),
    "counts": [[1, 2], [3, 4], [5, 6]],
    "inner": [
        {"weight": 0.5, "p": (1.0, 2.0, 3.0), "flags": (False, True)},
        {"weight": 0.25, "p": (4.0, 5.0, 6.0), "flags": (True, False)},
    ],
    "plain": {"a": 7.0},
    "t": 8.0,
    "matrix": [[1.0, 2.0], [9.0, 10.0]],
    "mode": 1,
    "low": 11.0,
    "last": 2**64 - 1,
}


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


def argument(lib: ShaderLibrary, kernel: str) -> Argument:
    return next(a for a in getattr(lib, kernel).arguments if a.space == "constant")


@dataclass(frozen=True)
class NumbersData:
    k: int
    m: int
    n: int
    scale: float


class NumbersTuple(NamedTuple):
    scale: float
    m: int
    n: int
    k: int


@pytest.mark.parametrize(
    "values",
    [NUMBERS, NumbersData(-3, 4_000_000_000, 2, 0.5), NumbersTuple(0.5, 4_000_000_000, 2, -3)],
    ids=["dict", "dataclass", "NamedTuple"],
)
def test_named_values_arrive_whatever_their_order(lib: ShaderLibrary, values: object) -> None:
    out = torch.zeros(4)
    lib.plain(out, 0, values, threads=1)
    assert out.tolist() == [4e9, 2, -3, 0.5]


def test_values_that_do_not_change_are_packed_once(lib: ShaderLibrary) -> None:
    numbers = lib.plain.arguments[1]
    first, other = Layout("plain", numbers), Layout("other", numbers)
    values = Fixed({"m": 1, "n": 2, "k": 3, "scale": 0.5})
    assert first.pack(values) is first.pack(values)
    assert other.pack(values) == first.pack(dict(values)) == first.pack(values)
    with pytest.raises(TypeError, match="got no value for field 'n'"):
        first.pack(Fixed({"m": 1}))


def test_every_kind_of_field_arrives(lib: ShaderLibrary) -> None:
    out = torch.zeros(13)
    lib.all(ALL, out, threads=1)
    assert out.tolist() == [-1, 6, 6, 2, 0.25, 6, 1, 7, 8, 9, 1, 11, 1]


def test_fields_of_a_template_follow_its_instance(lib: ShaderLibrary) -> None:
    types = {field.name: field.type for field in argument(lib, "typed_float").fields}
    assert types["t"] == "float"
    assert {f.name: f.type for f in argument(lib, "all").fields}["t"] == "half"
    out = torch.zeros(1)
    lib.typed_float(ALL | {"t": 0.1}, out, threads=1)
    assert out.item() == torch.tensor(0.1).item()


def test_fields_are_described_with_type_offset_and_shape(lib: ShaderLibrary) -> None:
    fields = {field.name: field for field in argument(lib, "all").fields}
    assert (fields["v"].type, fields["v"].offset, fields["v"].size) == ("float3", 16, 16)
    assert (fields["counts"].type, fields["counts"].shape) == ("uint", (3, 2))
    assert [f.name for f in fields["inner"].fields] == ["weight", "p", "flags"]
    assert [f.offset for f in fields["inner"].fields] == [0, 4, 16]
    assert fields["mode"].type == "uchar"


def test_enumerator_goes_by_its_name(lib: ShaderLibrary) -> None:
    out = torch.zeros(13)
    lib.all(ALL | {"mode": "slow"}, out, threads=1)
    assert out[10] == 1
    with pytest.raises(ValueError, match=r"field 'mode' \(uchar\): 'brisk' is none of fast, slow"):
        lib.all(ALL | {"mode": "brisk"}, out, threads=1)


def test_checked_run_takes_named_values(lib: ShaderLibrary) -> None:
    out = torch.zeros(4)
    with anymetal.check() as report:
        lib.plain(out, 0, NUMBERS, threads=1)
    assert not report.findings
    assert out[3] == 0.5


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"m": -1}, ValueError, r"field 'm' \(uint\): -1 does not fit"),
        ({"n": 65536}, ValueError, r"field 'n' \(ushort\): 65536 does not fit"),
        ({"k": 1.5}, TypeError, r"field 'k' \(long\): the value is 1.5"),
        ({"scale": "x"}, TypeError, r"field 'scale' \(float\): the value is 'x'"),
        ({"scale": 1e300}, ValueError, r"field 'scale' \(float\): 1e\+300 does not fit"),
        ({"l": 1}, TypeError, "has no field 'l'; it has 'm', 'n', 'k', 'scale'"),
    ],
)
def test_wrong_value_is_named(
    lib: ShaderLibrary, changes: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=rf"plain: argument 'numbers' \(buffer 2\) .*{text}"):
        lib.plain(torch.zeros(4), 0, NUMBERS | changes, threads=1)


def test_missing_value_is_named(lib: ShaderLibrary) -> None:
    values = {name: NUMBERS[name] for name in ("m", "n", "scale")}
    with pytest.raises(TypeError, match=r"plain: argument 'numbers' .* no value for field 'k'"):
        lib.plain(torch.zeros(4), 0, values, threads=1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"v": (1.0, 2.0)}, r"field 'v' \(float3\): 3 values are expected, got 2"),
        ({"inner": [ALL["inner"][0], {"weight": 1.0}]}, r"field 'inner.p' \(packed_float3\)"),
        ({"plain": 3}, r"field 'plain' \(Plain\): values by name are expected, got int"),
        ({"inner": [ALL["inner"][0] | {"flags": (1, 0)}] * 2}, r"'inner.flags' \(bool\[2\]\)"),
        ({"mode": None}, r"field 'mode' \(uchar\): the value is None"),
    ],
)
def test_wrong_inner_value_is_named(
    lib: ShaderLibrary, changes: dict[str, object], text: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        lib.all(ALL | changes, torch.zeros(13), threads=1)


@pytest.mark.parametrize("kernel", ["derived", "bits"])
def test_struct_of_unknown_fields_is_refused(lib: ShaderLibrary, kernel: str) -> None:
    with pytest.raises(RuntimeError, match=r"Unsupported argument type dict.*without bases"):
        getattr(lib, kernel)({"b": 1}, torch.zeros(1), threads=1)


def test_pointer_in_a_struct_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(TypeError, match=r"has a field 'x' \(float \*\) that takes no value"):
        lib.address({"x": 1}, torch.zeros(1), threads=1)


def test_infinity_and_nan_are_numbers(lib: ShaderLibrary) -> None:
    out = torch.zeros(4)
    lib.plain(out, 0, NUMBERS | {"scale": -math.inf}, threads=1)
    assert out[3] == -math.inf


def test_kernel_of_torch_gets_the_struct_as_words(lib: ShaderLibrary) -> None:
    """torch.mps copies a list of ints as 64-bit words: the same bytes, padded."""
    received: list[Any] = []
    arguments = reflected(Source(SOURCE))["plain"]
    assert arguments == lib.plain.arguments
    kernel = Structs(lambda *args, **_: received.extend(args), "plain", arguments)
    out = torch.zeros(4)
    kernel(out, 0, NUMBERS, threads=1)
    assert all(type(word) is int for word in received[2])
    lib.plain(*received, threads=1)
    assert out.tolist() == [4e9, 2, -3, 0.5]


def test_words_are_padded_to_eight_bytes(lib: ShaderLibrary) -> None:
    layout = Layout("all", argument(lib, "all"))
    assert len(layout.words(ALL)) * 8 >= argument(lib, "all").element_size
    assert len(layout.pack(ALL)) % 8 == 0
