"""Errors a kernel reports with TORCH_REPORT_ERROR, through `error_buf_idx`."""

from __future__ import annotations

import pytest
import torch

from anymetal import ShaderLibrary, check, compile_shader

SOURCE = """
#include <c10/metal/error.h>
#include <metal_stdlib>
using namespace metal;

kernel void take(device const float* x [[buffer(0)]], device const int* index [[buffer(1)]],
                 device float* out [[buffer(2)]], constant long& size [[buffer(3)]],
                 device c10::metal::ErrorMessages* errors [[buffer(4)]],
                 uint i [[thread_position_in_grid]]) {
  if (index[i] < 0 || index[i] >= size) {
    TORCH_REPORT_ERROR(errors, "index ", index[i], " is out of range");
    return;
  }
  out[i] = x[index[i]];
}
"""


@pytest.fixture(scope="module")
def lib() -> ShaderLibrary:
    return compile_shader(SOURCE, name="take.metal")


def run(lib: ShaderLibrary, index: list[int], **keywords: int) -> list[float]:
    out = torch.zeros(len(index))
    indices = torch.tensor(index, dtype=torch.int32)
    lib.take(torch.arange(5.0), indices, out, 5, threads=len(index), **keywords)
    return out.tolist()


def test_nothing_is_raised_without_a_report(lib: ShaderLibrary) -> None:
    assert run(lib, [4, 0, 2], error_buf_idx=4) == [4, 0, 2]


def test_report_is_raised_at_the_end_of_the_call(lib: ShaderLibrary) -> None:
    with pytest.raises(
        RuntimeError, match=r"index -7 is out of range\n.*take.* at .*take\.metal:11"
    ):
        run(lib, [1, -7, 2], error_buf_idx=4)


def test_more_reports_than_fit_are_counted(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)index 9 is out of range.*, and 99 more") as caught:
        run(lib, [9] * 100, error_buf_idx=4)
    assert type(caught.value) is getattr(torch, "AcceleratorError", RuntimeError)


def test_next_call_starts_clean(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError):
        run(lib, [9], error_buf_idx=4)
    assert run(lib, [3], error_buf_idx=4) == [3]


def test_error_buffer_must_be_there(lib: ShaderLibrary) -> None:
    with pytest.raises(RuntimeError, match="uses argument 'errors'"):
        run(lib, [1])
    with pytest.raises(RuntimeError, match="uses argument 'errors'"):
        run(lib, [1], error_buf_idx=5)
    with pytest.raises(RuntimeError, match="buffers are 0 to 30"):
        run(lib, [1], error_buf_idx=31)


@pytest.mark.parametrize("index", [[1, -7, 2], [9] * 100])
def test_checker_knows_the_error_buffer(lib: ShaderLibrary, index: list[int]) -> None:
    with check(outputs=()) as report, pytest.raises(RuntimeError, match="is out of range"):
        run(lib, index, error_buf_idx=4)
    assert not report.findings, str(report)


def test_checker_sees_accesses_beyond_the_error_buffer(lib: ShaderLibrary) -> None:
    text = SOURCE.replace("TORCH_REPORT_ERROR(", "errors->msg[0].line = errors[1].msg[0].line; //")
    with check(outputs=()) as report:
        run(compile_shader(text), [9], error_buf_idx=4)
    assert [found.kind for found in report.findings] == ["out_of_bounds"]
