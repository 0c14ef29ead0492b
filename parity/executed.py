"""How many operations the threads of a launch carry out, of programs whose texts differ.

One has a loop where the other has its turns one after the other; or computes before a branch what
the other computes behind it. Blocks are counted as they run. A fused multiply-add is never made by
an optimiser: of those both must carry out the same number. Of others, one may carry out more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from anymetal.engines.contract import Executable
from anymetal.engines.counted import COUNTED
from anymetal.engines.cpu.threads.engine import ThreadEngine
from anymetal.ir import parse
from anymetal.nouns import Program
from anymetal.passes.lower.machine import THREAD_MAIN
from parity.operations import FUSED, Components, different

SAME_FUSED = "as many fused"


def compared(apples: Program, ours: Program, launch: Callable[[Executable], None]) -> str:
    """`equal`, `as many fused` with the other counts, or the counts of both."""
    left, right = (_carried_out(program, launch) for program in (apples, ours))
    if left == right:
        return "equal"
    words = different(left, right)
    return f"{SAME_FUSED}: {words}" if left[FUSED] == right[FUSED] else words


def _carried_out(program: Program, launch: Callable[[Executable], None]) -> Counter[str]:
    function = parse(program.ir).function(THREAD_MAIN)
    components = Components(function)
    made = COUNTED.compile(program, ThreadEngine(), patient=True)
    made.metadata["costs"][:] = [dict(components.operations(block)) for block in function.blocks]
    made.metadata["reason"] = ""
    launch(made.executable)
    return made.totals()
