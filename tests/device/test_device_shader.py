"""torch.mps.compile_shader runs our kernels on tensors of the device, and the checker sees them."""

from __future__ import annotations

import pytest
import torch

import anymetal
from anymetal import check
from anymetal.device.shader import TorchLibrary

SOURCE = """
#include <c10/metal/error.h>
#include <c10/metal/utils.h>
#include <metal_stdlib>
using namespace metal;

kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) {
  out[i] = value;
}
template <typename T>
kernel void copy(device T* out, device const T* in, uint i [[thread_position_in_grid]]) {
  out[i] = in[i];
}
template [[host_name("copy_float")]] kernel void copy<float>(device float*, device const float*,
                                                             uint);
kernel void add_number(device float* out, constant float& number,
                       uint i [[thread_position_in_grid]]) {
  out[i] += number;
}
kernel void sum_of_all(device float* out, device const float* const* in, constant long& count,
                       uint i [[thread_position_in_grid]]) {
  float sum = 0;
  for (long k = 0; k < count; k++) sum += in[k][i];
  out[i] = sum;
}
kernel void complain(device float* out, device c10::metal::ErrorMessages* errors [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  if (out[i] < 0) TORCH_REPORT_ERROR(errors, "element ", i, " is negative");
}
kernel void too_far(device float* out, uint i [[thread_position_in_grid]]) {
  out[i + 1] = 1;
}
"""


@pytest.fixture(scope="module")
def lib(mps: torch.device) -> TorchLibrary:
    return torch.mps.compile_shader(SOURCE)


def test_kernel_writes_to_the_device(lib: TorchLibrary) -> None:
    x = torch.zeros(16, device="mps")
    lib.full(x, 3.5)
    assert x.tolist() == [3.5] * 16
    lib.full(x, 2.0, threads=(8,), group_size=(4,))
    assert x.tolist() == [2] * 8 + [3.5] * 8


def test_views_are_bound_at_their_offset(lib: TorchLibrary) -> None:
    x = torch.zeros(8, device="mps")
    lib.full(x[4:], 1.0)
    assert x.tolist() == [0] * 4 + [1] * 4


def test_both_doors_and_the_kernel_properties(lib: TorchLibrary) -> None:
    other = torch._C._mps_compileShader(SOURCE)
    x, y = torch.arange(4.0, device="mps"), torch.zeros(4, device="mps")
    other.copy_float(y, x)
    assert torch.equal(x, y)
    assert lib.full.max_threads_per_threadgroup > 0
    assert lib.full.thread_execution_width == 32
    assert "full" in dir(lib)
    with pytest.raises(RuntimeError, match="Failed to create function state object for: nope"):
        _ = lib.nope
    with pytest.raises(SyntaxError):
        torch.mps.compile_shader("kernel void broken(")


def test_cpu_tensors_are_refused_beside_mps_tensors(lib: TorchLibrary) -> None:
    x = torch.zeros(4, device="mps")
    for arguments in ((x, torch.ones(4)), (torch.ones(4), x)):
        with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
            lib.copy_float(*arguments)
    with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
        lib.sum_of_all(x, [x, torch.ones(4)], 2)


def test_cpu_numbers_are_passed_by_value(lib: TorchLibrary) -> None:
    x = torch.zeros(4, device="mps")
    lib.add_number(x, torch.tensor(2.0))
    lib.add_number(x, torch.tensor(0.5, dtype=torch.float64))
    lib.add_number(x, torch.tensor(1.0, device="mps"))
    assert x.tolist() == [3.5] * 4


def test_lists_of_tensors(lib: TorchLibrary) -> None:
    out = torch.zeros(4, device="mps")
    lib.sum_of_all(out, [torch.ones(4, device="mps"), torch.arange(4.0, device="mps")], 2)
    assert out.tolist() == [1, 2, 3, 4]


def test_only_ours_takes_more(lib: TorchLibrary) -> None:
    """What a Mac would refuse is refused here; anymetal.compile_shader has it, on either side."""
    for host in (torch.zeros(4), [torch.zeros(4)]):
        with pytest.raises(RuntimeError, match="Passed CPU tensor to MPS op"):
            lib.full(host, 1.0, threads=4)
    x = torch.zeros(4, device="mps")
    with pytest.raises(TypeError, match="threadgroup_memory"):
        lib.full(x, 1.0, threadgroup_memory={0: 16})
    for keyword in ("fast_math", "defines", "include_dirs", "name", "language", "strict"):
        with pytest.raises(TypeError, match=keyword):
            torch.mps.compile_shader(SOURCE, **{keyword: None})
    for attribute in ("count", "in_turn", "arguments", "engine"):
        assert not hasattr(lib.full, attribute)
    with pytest.raises(
        RuntimeError, match="Failed to create function state object for: specialize"
    ):
        _ = lib.specialize
    ours = anymetal.compile_shader(SOURCE)
    for target in (x, torch.zeros(4)):
        ours.full(target, 1.0)
        assert target.tolist() == [1] * 4
    assert ours.full.count(x, 2.0).device_writes == 4


CONSTANT = """
constant bool doubled [[function_constant(0)]];
kernel void add(device float* x [[buffer(0)]],
                device const float* y [[buffer(1), function_constant(doubled)]],
                uint i [[thread_position_in_grid]]) {
  x[i] += doubled ? 2 * y[i] : 1;
}
"""


def test_function_constants_are_written_into_the_source(mps: torch.device) -> None:
    """torch sets none: a kernel that needs one fails, and its text with the values runs."""
    with pytest.raises(RuntimeError, match="Failed to create function state object for: add"):
        _ = torch.mps.compile_shader(CONSTANT).add
    for doubled, more in ((True, 6), (False, 1)):
        x, y = torch.zeros(4, device=mps), torch.full((4,), 3.0, device=mps)
        source = anymetal.with_constants(CONSTANT, {"doubled": doubled})
        torch.mps.compile_shader(source).add(x, y)
        assert x.tolist() == [more] * 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_reported_errors_wait_for_a_synchronisation(lib: TorchLibrary, asynchronous: bool) -> None:
    anymetal.device.enable(asynchronous=asynchronous)
    x = torch.tensor([1.0, -1.0], device="mps")
    for wait in (torch.mps.synchronize, torch.accelerator.synchronize, x.cpu, x.sum().item):
        lib.complain(x, error_buf_idx=1)
        (x + 1).view(2)  # no reason to wait
        with pytest.raises(torch.AcceleratorError, match="element 1 is negative"):
            wait()
        torch.mps.synchronize()


def test_checker_finds_what_is_wrong(lib: TorchLibrary) -> None:
    whole = torch.zeros(8, device="mps")
    with check() as report:
        lib.full(whole, 1.0)
    assert not report.findings
    with check() as report:
        lib.too_far(whole)
    assert [finding.kind for finding in report.errors] == ["out_of_bounds"]


@pytest.mark.metal_check
def test_checker_sees_correct_kernels_as_correct(lib: TorchLibrary) -> None:
    x, y = torch.arange(100.0, device="mps"), torch.empty(100, device="mps")
    lib.copy_float(y, x)
    assert torch.equal(x, y)
