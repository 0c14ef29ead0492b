"""Views of larger storages: what lies past their end is not theirs, and costs no shadow memory."""

from __future__ import annotations

import torch

import anymetal
from anymetal.checker import launch_state

SOURCE = """
#include <metal_stdlib>
using namespace metal;
kernel void shift(device const float* x, device float* out, constant int& by,
                  uint i [[thread_position_in_grid]]) {
  out[i + by] = x[i];
}
kernel void choose(device float* a, device float* b, uint i [[thread_position_in_grid]]) {
  device float* target = i % 2 ? a : b;
  target[i / 2] = i;
}
"""
LIBRARY = anymetal.compile_shader(SOURCE)


def test_write_past_a_view_is_an_error_and_leaves_its_neighbour_alone() -> None:
    storage = torch.zeros(64)
    with anymetal.check(outputs=()) as report:
        LIBRARY.shift(torch.ones(8), storage[16:24], 1, threads=8)
    assert [finding.kind for finding in report.errors] == ["out_of_bounds"]
    assert "inside the storage it is a view of" in report.errors[0].message
    assert report.errors[0].index == 8
    assert storage.tolist() == [0.0] * 17 + [1.0] * 7 + [0.0] * 40


def test_read_past_a_view_is_a_warning() -> None:
    storage, out = torch.arange(64.0), torch.zeros(8)
    with anymetal.check(outputs=()) as report:
        LIBRARY.shift(storage[:4], out, 0, threads=8)
    assert [(f.kind, f.severity) for f in report] == [("out_of_bounds", "warning")]
    assert out.tolist() == list(range(8))


def test_pointer_chosen_from_two_views_of_one_storage_is_silent() -> None:
    storage = torch.zeros(64)
    with anymetal.check() as report:
        LIBRARY.choose(storage[:8], storage[8:16], threads=16)
    assert not report.findings


def test_view_of_a_large_storage_needs_cells_for_itself_alone() -> None:
    storage = torch.empty(1 << 28, dtype=torch.float32)
    with anymetal.check() as report:
        LIBRARY.shift(torch.ones(128), storage[1 << 20 : (1 << 20) + 128], 0, threads=128)
    assert not report.findings
    assert launch_state._arena._cells.nbytes < 1 << 30
