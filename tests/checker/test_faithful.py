"""A kernel without a defect runs checked as it runs plain, and nothing is found."""

from __future__ import annotations

import pytest
import torch

import anymetal

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SIGNATURE = """
kernel void k(device const float* x, device float* y, constant uint& n,
              uint lane [[thread_index_in_simdgroup]], uint i [[thread_position_in_grid]]) {
"""
BODIES = {
    # Two ways back to the next round, one of them by `continue`.
    "lanes_that_continue_meet_the_others": """
  uint votes = 1, rest = lane;
  while (rest > 0) {
    rest >>= 1;
    votes = 1 <= votes ? 1 : simd_xor(1u);
    votes = uint(quad_vote::vote_t(quad_ballot(true)));
    if (x[i] > 0) continue;
    votes += 16;
  }
  y[i] = votes;""",
    # LLVM would like to load through one pointer: into the buffer, or to where the sum is left.
    "a_value_or_a_sum": """
  float value = 0;
  for (uint k = 0; k < n; ++k) {
    const float sum = simd_sum(x[i] * k);
    value += (lane + k) % 3 ? x[i + k] : sum;
  }
  y[i] = value;""",
    # Initialised by a loop over a pointer.
    "an_array_in_a_structure": """
  const Position start(n);
  Sums<1> own = {{}, x, start, start};
  for (uint k = 0; k < n; ++k) own.add(k);
  float total = 0;
  for (uint j = 0; j < 4; ++j) total += simd_sum(own.sums[j / 4][j % 4]);
  y[i] = total;""",
}
BEFORE = """
struct Position { long row, column; Position(uint n) : row(n), column(1) {} };
template <uint rows> struct Sums {
  float sums[rows][4];
  device const float* x;
  Position first, second;
  void add(uint k) thread {
    for (uint i = 0; i < rows; ++i)
      for (uint j = 0; j < 4; ++j) sums[i][j] += x[k * first.row % 32 + second.column];
  }
};
"""
LEFT_TO_LANES = ("collective_divergence", "barrier_divergence")


@pytest.mark.parametrize("name", sorted(BODIES))
@pytest.mark.parametrize("threads", [64, 20])
def test_checked_is_plain(name: str, threads: int) -> None:
    kernel = anymetal.compile_shader(HEADER + BEFORE + SIGNATURE + BODIES[name] + "}").k
    x = torch.randn(80)
    plain, checked = torch.full((threads,), -1.0), torch.full((threads,), -2.0)
    kernel(x, plain, 5, threads=threads, group_size=threads)
    with anymetal.check() as report:
        kernel(x, checked, 5, threads=threads, group_size=threads)
    assert [f for f in report.findings if f.kind not in LEFT_TO_LANES] == []
    assert torch.equal(plain, checked)
