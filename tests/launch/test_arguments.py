"""What each kind of Python argument becomes in the kernel, and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

from anymetal import ShaderLibrary, compile_shader

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void copy(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = x[i];
}
kernel void bytes(constant uchar* value, device uchar* out, uint i [[thread_position_in_grid]]) {
  out[i] = value[i];
}
kernel void read_uint(constant uint& value, device uint* out) { out[0] = value; }
kernel void read_float(constant float& value, device float* out) { out[0] = value; }
kernel void read_float2(constant float2& value, device float* out) { out[0] = value.x + value.y; }
kernel void read_float3(constant float3& value, device float* out) {
  out[0] = value.x; out[1] = value.y; out[2] = value.z;
}
kernel void same_address(device float* a, device float* b, device int* out) { out[0] = a == b; }
kernel void increment(device float* x) { x[0] += 1; }
kernel void increment_reference(device float& x) { x += 1; }
struct Inputs { array<device float*, 3> tensors; };
kernel void sum_all(device float* out, constant Inputs& inputs,
                    uint i [[thread_position_in_grid]]) {
  out[i] = inputs.tensors[0][i] + inputs.tensors[1][i] + inputs.tensors[2][i];
}
struct Options { float scale; int offset; uchar flag; };
kernel void use_struct(constant Options& options, device float* out) {
  out[0] = options.scale; out[1] = options.offset; out[2] = options.flag;
}
kernel void gap(device float* x [[buffer(0)]], device float* y [[buffer(3)]],
                device float* unused [[buffer(7)]], uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i];
}
kernel void load_float4(device const float4* x, device float4* y,
                        uint i [[thread_position_in_grid]]) {
  y[i] = x[i] * 2;
}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE)


def bytes_of(lib: ShaderLibrary, value: object, count: int, **keywords: object) -> bytes:
    """The first `count` bytes the kernel sees for an argument."""
    out = torch.zeros(count, dtype=torch.uint8)
    lib.bytes(value, out, threads=count, **keywords)
    return bytes(out.tolist())


# Tensors


def test_tensor_is_a_buffer_at_its_storage_offset(lib: ShaderLibrary) -> None:
    base = torch.arange(20.0)
    out = torch.full((20,), -1.0)
    lib.copy(base[5:], out[7:], threads=4)
    assert out.tolist() == [-1] * 7 + [5, 6, 7, 8] + [-1] * 9


def test_strides_are_not_passed(lib: ShaderLibrary) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    out = torch.zeros(6)
    lib.copy(x.t(), out, threads=6)
    assert out.tolist() == [0, 1, 2, 3, 4, 5]


def test_same_tensor_twice_gives_equal_pointers(lib: ShaderLibrary) -> None:
    x, y, out = torch.zeros(4), torch.zeros(4), torch.zeros(1, dtype=torch.int32)
    lib.same_address(x, x, out, threads=1)
    assert out.item() == 1
    lib.same_address(x, y, out, threads=1)
    assert out.item() == 0


def test_tensor_that_requires_grad_is_fine(lib: ShaderLibrary) -> None:
    x = torch.nn.Parameter(torch.arange(3.0))
    out = torch.zeros(3)
    lib.copy(x, out)
    lib.copy(x * 1, out)
    assert out.tolist() == [0, 1, 2]


def test_tensor_subclass_is_fine(lib: ShaderLibrary) -> None:
    class Named(torch.Tensor):
        pass

    out = torch.zeros(3)
    lib.copy(torch.arange(3.0).as_subclass(Named), out)
    assert out.tolist() == [0, 1, 2]


def test_bytes_of_any_type_can_be_passed(lib: ShaderLibrary) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        x = torch.tensor([1, 0, 1], dtype=dtype)
        expected = bytes(x.view(torch.uint8).tolist())
        assert bytes_of(lib, x, len(expected)) == expected


def test_struct_arrives_as_bytes(lib: ShaderLibrary) -> None:
    data = torch.frombuffer(bytearray(struct.pack("<fiB3x", 1.5, -7, 200)), dtype=torch.uint8)
    out = torch.zeros(3)
    lib.use_struct(data, out, threads=1)
    assert out.tolist() == [1.5, -7, 200]


def test_vectors_work_at_element_alignment(lib: ShaderLibrary) -> None:
    base = torch.arange(64.0)
    out = torch.zeros(64)
    for offset in (0, 1, 2, 3, 5):
        lib.load_float4(base[offset:], out[offset:], threads=8)
        assert torch.equal(out[offset : offset + 32], 2 * base[offset : offset + 32])


@pytest.mark.parametrize("kernel", ["increment", "increment_reference"])
def test_tensor_of_no_dimensions_can_be_written(lib: ShaderLibrary, kernel: str) -> None:
    x = torch.tensor(41.0)
    getattr(lib, kernel)(x, threads=1)
    assert x.item() == 42


def test_tensor_of_no_dimensions_is_read_by_value(lib: ShaderLibrary) -> None:
    out = torch.zeros(1)
    lib.read_float(torch.tensor(2.5), out, threads=1)
    assert out.item() == 2.5
    lib.read_float(torch.tensor(0.1, dtype=torch.float64), out, threads=1)
    assert out.item() == torch.tensor(0.1).item()
    lib.read_float2(torch.tensor(3 + 4j, dtype=torch.complex128), out, threads=1)
    assert out.item() == 7
    assert bytes_of(lib, torch.tensor(513, dtype=torch.int16), 2) == b"\x01\x02"


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_double_tensor_is_refused(lib: ShaderLibrary, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"copy: argument 'x' \(buffer 0\) is torch\.\w+, which"):
        lib.copy(torch.zeros(3, dtype=dtype), torch.zeros(3))


def test_tensor_of_another_device_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match=r"argument 'y' \(buffer 1\) is on device 'meta'"):
        lib.copy(torch.zeros(3), torch.zeros(3, device="meta"))


def test_sparse_tensor_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match=r"argument 'x' \(buffer 0\) has layout torch.sparse"):
        lib.copy(torch.eye(3).to_sparse(), torch.zeros(9))


def test_empty_tensor_runs_nothing(lib: ShaderLibrary) -> None:
    out = torch.zeros(3)
    lib.copy(torch.zeros(0), out)
    assert out.tolist() == [0, 0, 0]


# Numbers


def test_float_is_32_bits(lib: ShaderLibrary) -> None:
    out = torch.zeros(1)
    lib.read_float(0.1, out, threads=1)
    assert out.item() == torch.tensor(0.1).item()
    assert bytes_of(lib, 0.1, 4) == struct.pack("<f", 0.1)
    assert bytes_of(lib, 1e300, 4) == struct.pack("<f", float("inf"))
    assert bytes_of(lib, np.float64(0.5), 4) == struct.pack("<f", 0.5)


@pytest.mark.parametrize("value", [0, 1, -1, 2**31, -(2**63), 2**63 - 1])
def test_int_is_64_bits(lib: ShaderLibrary, value: int) -> None:
    assert bytes_of(lib, value, 8) == struct.pack("<q", value)


def test_int_for_a_uint_parameter_gives_its_low_half(lib: ShaderLibrary) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    lib.read_uint(77, out, threads=1)
    assert out.item() == 77


def test_bool_is_an_int(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, True, 8) == struct.pack("<q", 1)


def test_float_after_int_leaves_no_old_bytes(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, -1, 8) == b"\xff" * 8
    assert bytes_of(lib, 1.0, 8) == struct.pack("<ff", 1, 0)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, [0, 2**64]])
def test_int_beyond_64_bits_is_refused(lib: ShaderLibrary, value: object) -> None:
    with pytest.raises(RuntimeError, match="does not fit into 64 bits"):
        bytes_of(lib, value, 8)


@pytest.mark.parametrize("value", [None, "text", 1j, {}, np.int64(3), b"bytes"])
def test_other_types_are_refused(lib: ShaderLibrary, value: object) -> None:
    text = (
        r"bytes: argument 'value' \(buffer 0\): Unsupported argument type " + type(value).__name__
    )
    with pytest.raises(RuntimeError, match=text):
        bytes_of(lib, value, 1)


# Lists


def test_list_is_typed_by_its_first_element(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, [1, -2, 3], 24) == struct.pack("<3q", 1, -2, 3)
    assert bytes_of(lib, (1.5, -2.5), 8) == struct.pack("<2f", 1.5, -2.5)
    assert bytes_of(lib, (1.5, 2), 8) == struct.pack("<2f", 1.5, 2)
    assert bytes_of(lib, torch.Size([4, 5]), 16) == struct.pack("<2q", 4, 5)
    assert bytes_of(lib, [True, False], 16) == struct.pack("<2q", 1, 0)


def test_list_of_three_floats_is_a_float3(lib: ShaderLibrary) -> None:
    out = torch.zeros(3)
    lib.read_float3([1.0, 2.0, 3.0], out, threads=1)
    assert out.tolist() == [1, 2, 3]


def test_long_list_is_passed_whole(lib: ShaderLibrary) -> None:
    values = list(range(1000))
    assert bytes_of(lib, values, 8000) == struct.pack("<1000q", *values)


def test_list_of_tensors_is_an_array_of_pointers(lib: ShaderLibrary) -> None:
    tensors = [torch.full((8,), float(i)) for i in (1, 10, 100)]
    tensors[1] = torch.arange(16.0)[8:]
    out = torch.zeros(8)
    lib.sum_all(out, tensors)
    assert torch.equal(out, 101 + torch.arange(8.0, 16.0))


def test_list_of_tensors_is_checked(lib: ShaderLibrary) -> None:
    good = torch.zeros(8)
    with pytest.raises(RuntimeError, match="is on device 'meta'"):
        lib.sum_all(good, [good, good, torch.zeros(8, device="meta")])
    with pytest.raises(TypeError, match="float64"):
        lib.sum_all(good, [good, good.double(), good])
    with pytest.raises(RuntimeError, match="element 2 is int"):
        lib.sum_all(good, [good, good, 3])


def test_empty_list_is_refused(lib: ShaderLibrary) -> None:
    for empty in ([], ()):
        with pytest.raises(
            RuntimeError, match="Empty list/tuple can not be an argument to metal kernel"
        ):
            bytes_of(lib, empty, 1)


def test_list_of_other_things_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="Unexpected argument types"):
        bytes_of(lib, ["a"], 1)


def test_mixed_list_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="starts with int, but element 1 is float"):
        bytes_of(lib, [1, 2.0], 16)
    with pytest.raises(RuntimeError, match="starts with float, but element 1 is str"):
        bytes_of(lib, [1.0, "x"], 16)


# Casts


CASTS = {"fp16": "<e", "int32": "<i", "int16": "<h", "int8": "<b", "uint8": "<B"}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("value", [3, 7.0])
def test_cast_of_a_number(lib: ShaderLibrary, cast: str, value: float) -> None:
    number = value if cast == "fp16" else int(value)
    expected = struct.pack(CASTS[cast], number)
    assert bytes_of(lib, value, len(expected), arg_casts=cast) == expected
    assert bytes_of(lib, value, len(expected), arg_casts={0: cast}) == expected


def test_cast_to_bf16(lib: ShaderLibrary) -> None:
    expected = bytes(torch.tensor([0.1]).bfloat16().view(torch.uint8).tolist())
    assert bytes_of(lib, 0.1, 2, arg_casts="bf16") == expected
    assert bytes_of(lib, [0.1, 0.1], 4, arg_casts="bf16") == 2 * expected


def test_cast_wraps_as_in_c(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, -1, 1, arg_casts="uint8") == b"\xff"
    assert bytes_of(lib, 2**32 + 5, 4, arg_casts="int32") == struct.pack("<i", 5)
    assert bytes_of(lib, 1e9, 2, arg_casts="fp16") == struct.pack("<e", float("inf"))
    assert bytes_of(lib, -0.0, 2, arg_casts="fp16") == struct.pack("<e", -0.0)


def test_cast_of_a_list(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, [1, 2, -3], 12, arg_casts="int32") == struct.pack("<3i", 1, 2, -3)
    assert bytes_of(lib, [1.5, 2.5], 4, arg_casts={0: "fp16"}) == struct.pack("<2e", 1.5, 2.5)
    assert bytes_of(lib, [1.9, -1.9], 2, arg_casts="int8") == struct.pack("<2b", 1, -1)


def test_cast_of_another_index_changes_nothing(lib: ShaderLibrary) -> None:
    assert bytes_of(lib, 5, 8, arg_casts={1: "int8"}) == struct.pack("<q", 5)


def test_cast_leaves_tensors_alone(lib: ShaderLibrary) -> None:
    x, out = torch.arange(3.0), torch.zeros(3)
    lib.copy(x, out, arg_casts="fp16")
    assert torch.equal(out, x)


def test_unknown_cast_is_refused(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="Unsupported cast instruction fp32"):
        bytes_of(lib, 5, 8, arg_casts="fp32")
    with pytest.raises(RuntimeError, match="Unsupported cast instruction int64"):
        bytes_of(lib, 5, 8, arg_casts={0: "int64"})
    with pytest.raises(RuntimeError, match="Unexpected caster arg type int"):
        bytes_of(lib, 5, 8, arg_casts=3)


# Which buffers must be there


def test_gap_and_unbound_trailing_buffer_are_fine(lib: ShaderLibrary) -> None:
    x, y = torch.arange(4.0), torch.zeros(4)
    lib.gap(x, 0, 0, y)
    assert y.tolist() == [0, 2, 4, 6]


def test_used_buffer_must_be_there(lib: ShaderLibrary) -> None:
    text = r"gap: the kernel uses argument 'y' \(buffer 3\), but only 2 arguments were passed"
    with pytest.raises(RuntimeError, match=text):
        lib.gap(torch.zeros(4), 0)
    with pytest.raises(RuntimeError, match=r"uses argument 'x'.*, argument 'y'"):
        lib.copy(threads=1)


def test_more_arguments_than_parameters_are_fine(lib: ShaderLibrary) -> None:
    out = torch.zeros(3)
    lib.copy(torch.arange(3.0), out, 1, 2.0, torch.zeros(1))
    assert out.tolist() == [0, 1, 2]


def test_more_arguments_than_metal_has_buffers(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="at most 31 buffers"):
        lib.copy(*([torch.zeros(1)] * 32))


def test_keywords_are_keyword_only(lib: ShaderLibrary) -> None:
    with pytest.raises(TypeError, match="thread_count"):
        lib.copy(torch.zeros(1), torch.zeros(1), thread_count=3)


def test_call_returns_none(lib: ShaderLibrary) -> None:
    assert lib.copy(torch.zeros(1), torch.zeros(1)) is None
