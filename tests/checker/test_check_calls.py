"""check() around real launches: what a caller sees of kernels that are right, wrong and excused."""

from __future__ import annotations

import threading

import torch

import anymetal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void halves(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 0.5f * x[i];
}
kernel void flag(device int* found, uint i [[thread_position_in_grid]]) {
  found[0] = i;
}
kernel void spread(device float* y, constant uint& step, uint i [[thread_position_in_grid]]) {
  y[i * step] = 1.0f;
}
kernel void excused(device int* found, uint i [[thread_position_in_grid]]) {
  // anymetal: allow(race) any thread may win
  found[0] = i;
}
"""
library = anymetal.compile_shader(SOURCE, name="calls.metal")


def test_correct_kernel_is_silent_and_computes() -> None:
    x, y = torch.arange(67.0), torch.zeros(67)
    with anymetal.check() as report:
        library.halves(x, y)
        library.halves(x, y, threads=67, group_size=32)
    assert report.findings == ()
    assert report.launches == {"halves": 2}
    assert torch.equal(y, x / 2)


def test_call_outside_is_not_checked() -> None:
    with anymetal.check() as report:
        pass
    library.halves(torch.zeros(3), torch.zeros(2), threads=2)
    assert report.launches == {}


def test_race_has_its_lines_threads_and_buffer() -> None:
    with anymetal.check() as report:
        library.flag(torch.zeros(1, dtype=torch.int32), threads=67, group_size=67)
    (finding,) = report.errors
    assert (finding.kind, finding.kernel, finding.line) == ("race", "flag", 7)
    assert (finding.buffer, finding.index) == ("found", 0)
    assert finding.other is not None
    assert finding.other.line == 7
    assert finding.thread != finding.other.thread
    assert finding.place.excerpt.strip() == "found[0] = i;"
    assert "one thread write" in finding.hint


def test_comment_above_silences_a_source_that_is_no_file() -> None:
    with anymetal.check() as report:
        library.excused(torch.zeros(1, dtype=torch.int32), threads=67)
    assert report.findings == ()
    ((finding, reason),) = report.silenced
    assert (finding.kind, finding.line, reason) == ("race", 14, "any thread may win")


def test_outputs_decide_about_elements_left_out() -> None:
    x, y = torch.ones(67), torch.zeros(67)
    kinds = []
    for outputs in (None, [y], ()):
        with anymetal.check(outputs=outputs) as report:
            library.halves(x, y, threads=33)
        kinds.append([(finding.kind, finding.severity) for finding in report])
    assert kinds == [
        [("unwritten_output", "warning")],
        [("unwritten_output", "error")],
        [],
    ]


def test_gaps_of_a_strided_output_are_not_its_elements() -> None:
    column = torch.zeros(10, 3)[:, 1]
    with anymetal.check(outputs=[column]) as report:
        library.spread(column, 3, threads=10)
    assert report.findings == ()
    with anymetal.check(outputs=[column]) as report:
        library.spread(column, 3, threads=8)
    (finding,) = report.findings
    assert finding.message.startswith("2 of 10 elements of 'y' were not written; the first is")
    assert (finding.index, finding.count) == (24, 2)


def test_launches_of_threads_are_checked_too() -> None:
    def work() -> None:
        library.halves(torch.zeros(33), torch.zeros(33))

    with anymetal.check() as report:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert report.launches == {"halves": 4}
    assert not report
