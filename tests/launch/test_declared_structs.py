"""Structs that declare their fields: ctypes, numpy and `anymetal.struct`, checked by reflection."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy
import pytest
import torch

import anymetal

SOURCE = """
#include <metal_stdlib>
using namespace metal;

struct Inner { ushort a; half b; };
struct Numbers { uint n; float3 v; float eps; long shape[2]; Inner inner; bool flag; };

kernel void unpack(device float* out, constant Numbers& p) {
  out[0] = p.n; out[1] = p.v.x; out[2] = p.v.z; out[3] = p.eps;
  out[4] = p.shape[0]; out[5] = p.shape[1]; out[6] = p.inner.a; out[7] = p.inner.b;
  out[8] = p.flag;
}

struct Small { uint n; float eps; };
kernel void small(device float* out, constant Small& p) { out[0] = p.n; out[1] = p.eps; }
"""
EXPECTED = [3, 1, 3, 0.5, 40, 50, 7, 1.5, 1]


@pytest.fixture(scope="module")
def library() -> Any:
    return anymetal.compile_shader(SOURCE)


def run(kernel: Any, argument: Any, count: int) -> list[float]:
    out = torch.zeros(count)
    kernel(out, argument, threads=1)
    with anymetal.check() as report:
        kernel(out, argument, threads=1)
    assert not report.findings
    return out.tolist()


def test_numpy_records_are_laid_out_as_metal_does(library: Any) -> None:
    inner = [("a", "u2"), ("b", "f2")]
    kind = [("n", "u4"), ("v", "f4", 3), ("eps", "f4"), ("shape", "i8", 2), ("inner", inner)]
    value = numpy.zeros((), dtype=[*kind, ("flag", "?")])[()]
    value["n"], value["v"], value["eps"], value["shape"] = 3, (1, 2, 3), 0.5, (40, 50)
    value["inner"], value["flag"] = (7, 1.5), True
    assert run(library.unpack, value, 9) == EXPECTED


def test_ctypes_structures_go_by_their_fields(library: Any) -> None:
    class Small(ctypes.Structure):
        _fields_ = (("eps", ctypes.c_float), ("n", ctypes.c_uint32))  # in any order

    assert run(library.small, Small(0.5, 3), 2) == [3, 0.5]

    class Wrong(ctypes.Structure):
        _fields_ = (("n", ctypes.c_float), ("eps", ctypes.c_float))

    with pytest.raises(TypeError, match=r"'p' .* field 'n' is uint, but the struct has f4"):
        library.small(torch.zeros(2), Wrong(3, 0.5), threads=1)

    class Short(ctypes.Structure):
        _fields_ = (("n", ctypes.c_uint32),)

    with pytest.raises(TypeError, match="got no value for field 'eps'"):
        library.small(torch.zeros(2), Short(3), threads=1)


def test_declared_struct_is_checked_against_the_kernels(library: Any) -> None:
    good = anymetal.struct("uint n; float eps", n=3, eps=0.5)
    assert run(library.small, good, 2) == [3, 0.5]
    for wrong in ("float eps; uint n", "uint n; float eps; int more"):
        given = {"n": 3, "eps": 0.5, **({"more": 1} if "more" in wrong else {})}
        with pytest.raises(TypeError, match="is declared as 'uint n; float eps'"):
            library.small(torch.zeros(2), anymetal.struct(wrong, **given), threads=1)
    with pytest.raises(TypeError, match="field 'n' is uint, but the struct has int"):
        library.small(torch.zeros(2), anymetal.struct("int n; float eps", n=3, eps=1.0), threads=1)
    with pytest.raises(ValueError, match=r"field 'n' .*: -1 does not fit"):
        library.small(torch.zeros(2), anymetal.struct("uint n; float eps", n=-1, eps=1), threads=1)


def test_mistakes_in_a_declaration_are_named() -> None:
    with pytest.raises(ValueError, match="'uint' is no field"):
        anymetal.struct("uint", n=3)
    with pytest.raises(ValueError, match="field 'n' is declared twice"):
        anymetal.struct("uint n; float n", n=3)
    with pytest.raises(TypeError, match="no value for 'float eps'"):
        anymetal.struct("uint n; float eps", n=3)
    with pytest.raises(TypeError, match="a value for 'm', which is not declared"):
        anymetal.struct("uint n", n=3, m=4)
    assert repr(anymetal.struct("uint n[2]", n=[1, 2])) == "struct(uint[2] n = [1, 2])"
