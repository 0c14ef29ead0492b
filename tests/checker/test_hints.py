"""Hints are applied: with the change that a hint asks for, the kernel is silent.

Where a hint names lines, the test puts the barrier there itself. Elsewhere the second text is the
first with what the hint says done by hand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

import anymetal
from anymetal.checker.report import Report

HEAD = """#include <metal_stdlib>
using namespace metal;
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup)"
GROUP = 64
KERNEL = "kernel void k(device float* y, uint lid [[thread_index_in_threadgroup]])"


@dataclass(frozen=True)
class Case:
    """A kernel with one mistake, words of the hint, and the mended body unless lines say it."""

    body: str
    words: str
    mended: str = ""
    groups: int = 1
    signature: str = KERNEL

    def source(self, body: str) -> str:
        return f"{HEAD}{self.signature} {{\n{body}}}\n"


CASES = {
    "straight ahead": Case(
        """  threadgroup float s[64];
  s[lid] = y[lid];

  y[lid] = s[63 - lid];
""",
        f"Put {BARRIER} between lines 5 and 7.",
    ),
    "before a loop": Case(
        """  threadgroup float s[64];
  s[lid] = y[lid];
  float sum = 0;
  for (uint i = 0; i < 64; ++i) {
    sum += s[i];
  }
  y[lid] = sum;
""",
        f"Put {BARRIER} between lines 5 and 7.",
    ),
    "behind a loop": Case(
        """  threadgroup float s[128];
  for (uint i = lid; i < 128; i += 64) {
    s[i] = i;
  }
  y[lid] = s[lid] + s[127 - lid];
""",
        f"Put {BARRIER} between lines 6 and 8.",
    ),
    "around a loop": Case(
        f"""  threadgroup float s[64];
  float sum = 0;
  for (uint r = 0; r < 3; ++r) {{
    s[lid] = y[lid] + r;
    {BARRIER};
    sum += s[63 - lid];
  }}
  y[lid] = sum;
""",
        f"Put {BARRIER} at the end of the loop at line 6: a faster simdgroup may be a round ahead.",
    ),
    "ahead and around": Case(
        """  threadgroup float s[64];
  float sum = 0;
  for (uint r = 0; r < 3; ++r) {
    s[lid] = y[lid] + r;
    if (r != 1) {
      sum += s[63 - lid];
    }
  }
  y[lid] = sum;
""",
        f"Put {BARRIER} between lines 7 and 9, and one at the end of the loop at line 6",
    ),
    "rounds of a reduction": Case(
        f"""  threadgroup float s[64];
  s[lid] = y[lid];
  {BARRIER};
  for (uint step = 32; step > 0; step >>= 1) {{
    if (lid < step) s[lid] += s[lid + step];
  }}
  {BARRIER};
  y[lid] = s[0];
""",
        f"Put {BARRIER} at the end of the loop at line 7",
    ),
    "in functions": Case(
        """  threadgroup float s[64];
  put(s, lid, y[lid]);

  y[lid] = get(s, 63 - lid);
""",
        f"Put {BARRIER} between lines 7 and 9.",
        signature="inline void put(threadgroup float* s, uint i, float x) { s[i] = x; }\n"
        "inline float get(threadgroup float* s, uint i) { return s[i]; }\n" + KERNEL,
    ),
    "device memory": Case(
        """  y[lid] = lid;
  float other = y[63 - lid];
  y[lid + 64] = other;
""",
        "Put threadgroup_barrier(mem_flags::mem_device) between lines 4 and 5.",
    ),
    "an update": Case(
        """  threadgroup float total;
  if (lid == 0) total = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  total += y[lid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[lid] = total;
""",
        "Several threads update one element of `total`: use an atomic or a reduction.",
        """  threadgroup float total[2];
  float sum = simd_sum(y[lid]);
  if (lid % 32 == 0) total[lid / 32] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[lid] = total[0] + total[1];
""",
    ),
    "an update written out": Case(
        "  device int* n = (device int*)y;\n  n[0] = n[0] + 1;\n",
        "Several threads update one element of `y`: use an atomic or a reduction.",
        "  atomic_fetch_add_explicit((device atomic_int*)y, 1, memory_order_relaxed);\n",
    ),
    "across threadgroups": Case(
        "  if (lid == 0) y[0] += 1;\n",
        "No barrier orders threadgroups: use atomics or a second launch",
        "  if (lid == 0)\n    atomic_fetch_add_explicit((device atomic_float*)y, 1.0f,"
        " memory_order_relaxed);\n",
        groups=2,
    ),
    "two branches": Case(
        """  threadgroup float s;
  if (lid == 0)
    s = y[0];
  else
    y[lid] = s;
""",
        f"Lines 6 and 8 are in different branches, which run in any order: make two conditions of"
        f" them, with {BARRIER} between.",
        f"""  threadgroup float s;
  if (lid == 0) s = y[0];
  {BARRIER};
  if (lid != 0) y[lid] = s;
""",
    ),
    "one line": Case(
        f"""  threadgroup float s[64];
  s[lid] = y[lid];
  {BARRIER};
  s[lid] = s[63 - lid];
  y[lid] = s[lid];
""",
        f"Line 7 reads and writes at once: read into a variable first, then {BARRIER}, then write.",
        f"""  threadgroup float s[64];
  s[lid] = y[lid];
  {BARRIER};
  float other = s[63 - lid];
  {BARRIER};
  s[lid] = other;
  y[lid] = s[lid];
""",
    ),
    "many writers": Case(
        f"""  threadgroup float s;
  s = y[lid];
  {BARRIER};
  y[lid] = s;
""",
        "Let one thread write the element (`if (lid == 0)`)",
        f"""  threadgroup float s;
  if (lid == 0) s = y[lid];
  {BARRIER};
  y[lid] = s;
""",
    ),
    "plain and atomic": Case(
        """  device atomic_int* n = (device atomic_int*)y;
  atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
  if (lid == 5) ((device int*)y)[0] = 0;
""",
        "Make both accesses atomic: use atomic_load_explicit or atomic_store_explicit at line 6.",
        """  device atomic_int* n = (device atomic_int*)y;
  atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
  if (lid == 5) atomic_store_explicit(n, 0, memory_order_relaxed);
""",
    ),
    "flags of a barrier": Case(
        """  threadgroup float s[64];
  s[lid] = y[lid];
  threadgroup_barrier(mem_flags::mem_none);
  y[lid] = s[63 - lid];
""",
        f"The barrier orders execution but not this memory: write {BARRIER}.",
        f"  threadgroup float s[64];\n  s[lid] = y[lid];\n  {BARRIER};\n  y[lid] = s[63 - lid];\n",
    ),
    "past the end": Case(
        "  y[i * 3] = 1;\n",
        "A grid is often rounded up to whole threadgroups: return early, as in"
        " `if (i >= length) return;`.",
        "  if (i >= length) return;\n  y[i * 3] = 1;\n",
        groups=4,
        signature="kernel void k(device float* y, constant uint& length,"
        " uint i [[thread_position_in_grid]])",
    ),
    "no start value": Case(
        """  float sums[2];
  for (uint i = 0; i < 4; ++i) sums[i & 1] += y[lid];
  y[lid] = sums[0] + sums[1];
""",
        "Give `sums` an initialiser: `= {}` sets all of it to zero.",
        """  float sums[2] = {};
  for (uint i = 0; i < 4; ++i) sums[i & 1] += y[lid];
  y[lid] = sums[0] + sums[1];
""",
    ),
    "slots that nobody fills": Case(
        f"""  threadgroup float s[64];
  if (lid < 60) s[lid] = y[lid];
  {BARRIER};
  y[lid] = s[63 - lid];
""",
        "Fill `s` before the barrier in front of the read",
        f"""  threadgroup float s[64];
  s[lid] = lid < 60 ? y[lid] : 0;
  {BARRIER};
  y[lid] = s[63 - lid];
""",
    ),
}


def report_of(case: Case, source: str) -> Report:
    with anymetal.check(outputs=()) as report:
        kernel = anymetal.compile_shader(source, name="hint.metal").k
        arguments = (GROUP,) if "length" in source else ()
        kernel(torch.ones(3 * GROUP), *arguments, threads=case.groups * GROUP, group_size=GROUP)
    return report


def applied(source: str, hint: str) -> str:
    """The source with the barriers that a hint asks for, each at the least nested place."""
    lines = source.split("\n")
    barrier = re.search(r"threadgroup_barrier\([\w:]+\)", hint)
    assert barrier, hint
    depths = [sum(map(("\n".join(lines[:k])).count, "{")) - "\n".join(lines[:k]).count("}")
              for k in range(len(lines) + 1)]  # fmt: skip
    places = []
    if found := re.search(r"between lines (\d+) and (\d+)", hint):
        first, second = map(int, found.groups())
        places.append(min(range(first, second), key=lambda k: depths[k]))
    if found := re.search(r"end of the loop at line (\d+)", hint):
        start = int(found[1]) - 1
        places.append(next(k for k in range(start + 1, len(lines)) if depths[k] <= depths[start]))
        places[-1] -= 1  # before the brace, not behind it
    assert places, hint
    for place in sorted(places, reverse=True):
        lines.insert(place, f"{barrier[0]};")
    return "\n".join(lines)


@pytest.mark.parametrize("name", CASES)
def test_hint_is_right(name: str) -> None:
    case = CASES[name]
    source = case.source(case.body)
    report = report_of(case, source)
    hints = {finding.hint for finding in report.findings}
    assert any(case.words in hint for hint in hints), str(report)
    assert len(hints) == 1, str(report)  # what follows from the mistake is not reported as well
    mended = case.source(case.mended) if case.mended else applied(source, hints.pop())
    after = report_of(case, mended)
    assert not after.findings, f"{mended}\n{after}"


def test_race_stands_for_the_uninitialised_read_it_causes() -> None:
    case = CASES["straight ahead"]
    assert [f.kind for f in report_of(case, case.source(case.body)).findings] == ["race"]
