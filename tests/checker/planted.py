"""Plants one defect at a time into correct kernels and counts what the checker finds.

    python tests/checker/planted.py [--count N] [--seed N] [--kernel NAME ...]

Without --count every defect there is a place for is planted. The exit status is 1 when a defect
that touches wrong memory, or orders memory wrongly, was missed.

A defect without a finding is compared with the correct kernel over several inputs, run unchecked
between guard bytes of two different values. Then it is one of
  equivalent   nothing changed: same results, guard bytes neither written nor read
  wrong value  the results changed, yet every access is to valid, written memory that no other
               thread is changing: reading the neighbour of the right element, say. No checker of
               memory can know that; a comparison with a reference does
  atomics only a barrier is gone, but every access to the memory it ordered is atomic: that is no
               data race, although the values that are read now depend on the order
  missed       anything else, and every other barrier or flag, since the unchecked engine's own
               schedule would hide those
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bad_kernel import BadKernel, run, run_checked
from defects import Defect, plant
from guards import Guarded, guarded

from anymetal.errors import KernelSyntaxError

KERNELS = Path(__file__).parent / "correct_kernels"
# Two shapes each: with and without a tail, and more than one round where there is a loop.
LAUNCHES: dict[str, tuple[str, ...]] = {
    "reduce_rows": (
        "float32[3,200]=random float32[3]=zeros 200 threads=288 group_size=96 outputs=1",
        "float32[2,64]=random float32[2]=zeros 64 threads=128 group_size=64 outputs=1",
    ),
    "reduce_tree": (
        "float32[3,200]=random float32[3]=zeros 200 threads=384 group_size=128 outputs=1",
        "float32[2,128]=random float32[2]=zeros 128 threads=256 group_size=128 outputs=1",
    ),
    "softmax_rows": (
        "float32[3,100]=random float32[3,100]=zeros 100 threads=192 group_size=64 outputs=1",
        "float32[2,70]=random float32[2,70]=zeros 70 threads=192 group_size=96 outputs=1",
    ),
    "transpose_tiles": (
        "float32[20,36]=random float32[36,20]=zeros 20 36 threads=48,32 group_size=16,16 outputs=1",
        "float32[32,16]=random float32[16,32]=zeros 32 16 threads=16,32 group_size=16,16 outputs=1",
    ),
    "scan_blocks": (
        "float32[200]=random float32[200]=zeros 200 threads=64 group_size=64 outputs=1",
        "float32[128]=random float32[128]=zeros 128 threads=64 group_size=64 outputs=1",
    ),
    "matmul_tiles": (
        "float32[12,20]=random float32[20,10]=random float32[12,10]=zeros 12 10 20"
        " threads=16,16 group_size=8,8 outputs=2",
        "float32[8,16]=random float32[16,16]=random float32[8,16]=zeros 8 16 16"
        " threads=16,8 group_size=8,8 outputs=2",
    ),
    "histogram": (
        "int32[100]=digits int32[16]=zeros 100 threads=128 group_size=64",
        "int32[64]=digits int32[16]=zeros 64 threads=64 group_size=32",
    ),
    "layer_norm": (
        "float32[3,100]=random float32[100]=random float32[100]=random float32[3,100]=zeros 100"
        " threads=192 group_size=64 outputs=3",
        "float32[2,80]=random float32[80]=random float32[80]=random float32[2,80]=zeros 80"
        " threads=192 group_size=96 outputs=3",
    ),
    "stencil": (
        "float32[192]=random float32[192]=zeros 192 threads=192 group_size=64 outputs=1",
        "float32[80]=random float32[80]=zeros 80 threads=80 group_size=32 outputs=1",
    ),
    "rotate_lanes": (
        "float32[128]=random float32[128]=zeros threads=128 group_size=64 outputs=1",
        "float32[64]=random float32[64]=zeros threads=64 group_size=64 outputs=1",
    ),
}
ORDER = ("drop barrier", "narrow barrier", "swap flag", "no atomic")
# What threads share is atomic throughout.
ATOMICS_ONLY = ("histogram",)


@dataclass(frozen=True)
class Outcome:
    """What became of one planted defect; `why` explains it."""

    defect: Defect
    verdict: str
    why: str

    def __str__(self) -> str:
        return f"{self.verdict:12} {self.defect.name}\n             {self.why}"


def source(kernel: str) -> str:
    return (KERNELS / f"{kernel}.metal").read_text()


def all_defects(kernels: Iterable[str] = LAUNCHES) -> list[Defect]:
    return [defect for name in kernels for defect in plant(name, source(name), LAUNCHES[name])]


def sample(defects: list[Defect], count: int, seed: int) -> list[Defect]:
    """`count` defects, drawn from each operator in turn so that none is left out."""
    generator = random.Random(seed)
    by_operator: dict[str, list[Defect]] = {}
    for defect in defects:
        by_operator.setdefault(defect.operator, []).append(defect)
    for group in by_operator.values():
        generator.shuffle(group)
    drawn: list[Defect] = []
    while len(drawn) < min(count, len(defects)):
        for group in by_operator.values():
            if group and len(drawn) < count:
                drawn.append(group.pop())
    return drawn


def launch_of(kernel: str, text: str, words: str) -> BadKernel:
    return BadKernel(
        KERNELS / f"{kernel}.metal", (), (), None, (kernel, *words.split()), source=text
    )


def judge(defect: Defect) -> Outcome:
    """Run the defect checked; where nothing is found, find out why."""
    found: Counter[str] = Counter()
    try:
        for words in defect.launches:
            report = run_checked(launch_of(defect.kernel, defect.text, words))
            found.update(f"{f.kind} {f.severity} line {f.line}" for f in report.findings)
    except KernelSyntaxError as error:
        return Outcome(defect, "no kernel", str(error).splitlines()[0])
    if found:
        return Outcome(defect, "found", ", ".join(found))
    if defect.operator in ORDER and defect.kernel in ATOMICS_ONLY:
        return Outcome(
            defect, "atomics only", "atomic accesses that nothing orders are no data race"
        )
    if defect.operator in ORDER:
        return Outcome(defect, "missed", "an order of memory was lost and nothing was said")
    return _explain(defect)


def _explain(defect: Defect) -> Outcome:
    """Why the checker is silent: compare with the correct kernel, between guards of two values."""
    correct = source(defect.kernel)
    changed = False
    for words in defect.launches:
        for seed in range(3):
            expected = _guarded_run(launch_of(defect.kernel, correct, words), seed, 0)
            results = [
                _guarded_run(launch_of(defect.kernel, defect.text, words), seed, fill)
                for fill in (0, 0x41)
            ]
            if any(result.touched() for result in results):
                return Outcome(defect, "missed", "memory outside a tensor was written")
            if results[0].contents() != results[1].contents():
                return Outcome(defect, "missed", "the result depends on memory outside a tensor")
            changed |= results[0].contents() != expected.contents()
    if changed:
        return Outcome(defect, "wrong value", "only valid, written and ordered memory is accessed")
    return Outcome(defect, "equivalent", "same results on every input, nothing outside touched")


def _guarded_run(kernel: BadKernel, seed: int, fill: int) -> Guarded:
    """An unchecked run between guard bytes."""
    memory = guarded(kernel.arguments(seed), fill)
    run(kernel, memory.arguments)
    return memory


def summary(outcomes: list[Outcome]) -> str:
    """The counts, and the rate of what was found among what there was to find."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    wrong = counts["found"] + counts["missed"]
    real = wrong + counts["wrong value"] + counts["atomics only"]
    lines = [
        f"{len(outcomes)} defects planted: "
        + ", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())),
        f"found {counts['found']} of {wrong} that touch or order memory wrongly "
        f"({100 * counts['found'] / max(wrong, 1):.1f} %), {counts['found']} of {real} that change "
        f"anything ({100 * counts['found'] / max(real, 1):.1f} %)",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, help="plant this many, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernel", nargs="+", choices=list(LAUNCHES), default=list(LAUNCHES))
    options = parser.parse_args()
    os.environ.setdefault("ANYMETAL_TIME_LIMIT", "10")
    defects = all_defects(options.kernel)
    if options.count is not None:
        defects = sample(defects, options.count, options.seed)
    outcomes = []
    for number, defect in enumerate(defects, 1):
        outcomes.append(judge(defect))
        print(f"{number}/{len(defects)} {outcomes[-1]}", flush=True)
    print(summary(outcomes))
    for operator in dict.fromkeys(outcome.defect.operator for outcome in outcomes):
        here = [outcome for outcome in outcomes if outcome.defect.operator == operator]
        counts = Counter(outcome.verdict for outcome in here)
        print(f"  {operator:16}" + ", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
    return 1 if any(outcome.verdict == "missed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
