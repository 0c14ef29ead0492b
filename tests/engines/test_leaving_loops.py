"""Who takes part in a collective in front of a `break`: every engine, and the checker, agree."""

from __future__ import annotations

import pytest
import torch

from anymetal import check, compile_shader

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void leaving(device const int* a, device int* y, uint i [[thread_position_in_grid]]) {
  int rounds = 0, plain = 0, known = 0;
  while (true) {
    rounds += 1;
    if (rounds > a[i]) { plain = simd_sum(1); break; }
  }
  for (int n = 0; n < 40; n++) {
    if (a[i] > n) continue;
    known = simd_sum(1);
    if (a[i] * 2 + 4 != 1) break;  // always, which only the compiler knows
  }
  y[i] = plain * 100 + known;
}
"""


@pytest.mark.parametrize("engine", ["simdgroup", "coroutine"])
def test_lanes_of_all_rounds_meet_before_a_break(
    monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", engine)
    kernel = compile_shader(SOURCE).leaving
    a = (torch.arange(32) // 4).int()
    y = torch.zeros_like(a)
    kernel(a, y, threads=32)
    assert y.tolist() == [3232] * 32
    checked = torch.zeros_like(a)
    with check() as report:
        kernel(a, checked, threads=32)
    assert checked.tolist() == y.tolist()
    assert not report.findings
