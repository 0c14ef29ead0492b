"""A race found and mended step by step, with the checker as the only witness.

    python examples/find_a_race.py

The kernel computes the log-sum-exp of rows. Its first version has two defects; what a GPU makes of
them depends on which simdgroup is ahead, so a test may pass for months. The checker does not run
the kernel until it fails: it finds accesses that nothing orders, in one launch.
"""

from __future__ import annotations

import torch

import anymetal

FIRST = """
#include <metal_stdlib>
using namespace metal;

kernel void row_statistics(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                           constant uint& columns [[buffer(2)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint in_group [[thread_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup float shared[4];
  float value = in_group < columns ? x[row * columns + in_group] : -INFINITY;

  float largest = simd_max(value);
  if (lane == 0) shared[simd] = largest;
  largest = max(max(shared[0], shared[1]), max(shared[2], shared[3]));

  float sum = simd_sum(in_group < columns ? precise::exp(value - largest) : 0.0f);
  if (lane == 0) shared[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (in_group == 0) out[row] = largest + log(shared[0] + shared[1] + shared[2] + shared[3]);
}
"""

BARRIER = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
# 1. Nothing orders the writes of the maxima before the reads: the report names both lines.
READ = "  largest = max(max(shared[0]"
SECOND = FIRST.replace(READ, BARRIER + READ)
# 2. A fast simdgroup writes its sum where a slow one has yet to read the maxima.
SUM = "  if (lane == 0) shared[simd] = sum;"
THIRD = SECOND.replace(SUM, BARRIER + SUM)


def findings(source: str, x: torch.Tensor) -> list[str]:
    """The kinds of defects in one launch, and the report on the screen."""
    kernel = anymetal.compile_shader(source, name="row_statistics.metal").row_statistics
    rows, columns = x.shape
    out = torch.empty(rows)
    with anymetal.check(outputs=[out]) as report:
        kernel(x, out, columns, threads=rows * 128, group_size=128)
    print(report, "\n")
    if source is THIRD:
        torch.testing.assert_close(out.double(), x.double().logsumexp(1), rtol=1e-6, atol=1e-6)
    return [finding.kind for finding in report.findings]


def main() -> None:
    x = torch.randn(3, 100)
    for name, source, wanted in [
        ("as it was written", FIRST, {"race"}),
        ("with a barrier before the maxima are read", SECOND, {"race"}),
        ("with one before their slots are used again", THIRD, set()),
    ]:
        print(f"--- {name}")
        found = findings(source, x)
        if not wanted <= set(found) or (not wanted and found):
            raise SystemExit(
                f"{name}: the checker found {found}, and {wanted or 'nothing'} is there"
            )


if __name__ == "__main__":
    main()
