"""Addresses the checker knows nothing of but their value: nothing may crash."""

from __future__ import annotations

import pytest
import torch

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"


def test_address_from_a_number_is_caught() -> None:
    source = (
        HEADER
        + """
kernel void wild(device const ulong* x, device float* y, uint i [[thread_position_in_grid]]) {
  device float* p = (device float*)x[0];
  p[i] = 1;
  y[i] = *(device float*)x[1];
}"""
    )
    addresses = torch.tensor([123456789, 99999], dtype=torch.int64)
    with anymetal.check(outputs=()) as report:
        anymetal.compile_shader(source, name="wild.metal").wild(
            addresses, torch.zeros(4), threads=4
        )
    assert [(f.kind, f.line) for f in report.findings] == [
        ("out_of_bounds", 6),
        ("out_of_bounds", 7),
    ]
    assert "belongs to no buffer" in report.findings[0].message


def test_recursive_function_is_checked() -> None:
    source = (
        HEADER
        + """
float walk(device float* p, uint n) {
  float v = p[n];
  return n == 0 ? v : v + walk(p, n - 1);
}
kernel void go(device float* x, device float* y, constant uint& n,
               uint i [[thread_position_in_grid]]) { y[i] = walk(x, n); }"""
    )
    kernel = anymetal.compile_shader(source, name="walk.metal").go
    out = torch.zeros(4)
    with anymetal.check() as silent:
        kernel(torch.ones(10), out, 9, threads=4)
    assert not silent.findings
    assert out.tolist() == [10.0] * 4
    with anymetal.check() as report:
        kernel(torch.ones(10), out, 30, threads=4)
    assert [(f.kind, f.line) for f in report.findings] == [("out_of_bounds", 5)]


def test_pointers_in_a_list_of_tensors_are_checked() -> None:
    source = (
        HEADER
        + """
kernel void sum(constant array<device float*, 3>& parts, device float* y,
                uint i [[thread_position_in_grid]]) {
  y[i] = parts[0][i] + parts[1][i] + parts[2][i];
}"""
    )
    kernel = anymetal.compile_shader(source).sum
    parts = [torch.full((8,), float(i)) for i in range(3)]
    out = torch.zeros(8)
    with anymetal.check() as silent:
        kernel(parts, out, threads=8)
    assert not silent.findings
    assert out.tolist() == [3.0] * 8
    with anymetal.check() as report:
        kernel([parts[0], parts[1][:7].clone(), parts[2]], out, threads=8)
    assert [f.kind for f in report.findings] == ["out_of_bounds"]


def test_function_of_our_headers_that_is_not_inlined_still_works() -> None:
    source = (
        HEADER
        + """
kernel void total(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = simd_sum(x[i]) + simd_max(x[i]) + simd_prefix_inclusive_sum(x[i]);
}"""
    )
    x = torch.arange(32.0)
    out, plain = torch.zeros(32), torch.zeros(32)
    kernel = anymetal.compile_shader(source).total
    kernel(x, plain, threads=32)
    with anymetal.check() as report:
        kernel(x, out, threads=32)
    assert not report.findings
    assert torch.equal(out, plain)


def test_members_with_default_values_count_as_written() -> None:
    source = (
        HEADER
        + """
struct Sum { float total = 0.0f; float rest = 0.0f; float parts[4] = {0, 0, 0, 0}; };
kernel void add(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  Sum sum;
  for (uint k = 0; k < 8; ++k) sum.parts[(i + k) % 4] += x[k];
  y[i] = sum.parts[0] + sum.parts[1] + sum.parts[2] + sum.parts[3] + sum.total + sum.rest;
}"""
    )
    out = torch.zeros(4)
    with anymetal.check() as report:
        anymetal.compile_shader(source).add(torch.ones(8), out, threads=4)
    assert not report.findings
    assert out.tolist() == [8.0] * 4


def test_messages_of_a_checked_kernel_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    source = (
        "#include <metal_logging>\n"
        + HEADER
        + """
constant os_log logger("sub", "cat");
kernel void tell(device const float* x, uint i [[thread_position_in_grid]]) {
  logger.log_error("%u is %f, %v4f", i, x[i], float4(x[i]));
}"""
    )
    with caplog.at_level("INFO", logger="anymetal.kernel"), anymetal.check() as report:
        anymetal.compile_shader(source).tell(torch.tensor([0.5]), threads=1)
    assert not report.findings
    assert "0 is 0.500000" in caplog.text
