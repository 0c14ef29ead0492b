"""PTX goes in, PTX of a kernel that may be started before the one in front of it has ended.

Its threads wait at their first instruction until all that was queued on the stream before them is
done and can be seen; the hardware has made them ready by then. Processors before sm_90 cannot.
"""

from __future__ import annotations

from anymetal.engines.cuda.assembly import Line, entry_lines, lines_of, text_of

WAIT = "griddepcontrol.wait"
_FIRST_PROCESSOR = 90


def wait_at_the_start(text: str, processor: str) -> str:
    if int(processor.removeprefix("sm_")) < _FIRST_PROCESSOR:
        return text
    lines = []
    for line, _, is_first in entry_lines(lines_of(text)):
        lines += [Line(f"\t{WAIT};"), line] if is_first else [line]
    return text_of(lines)
