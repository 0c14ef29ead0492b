"""PTX goes in, PTX of a kernel that may be started before the one in front of it has ended.

Its threads wait at their first instruction until all that was queued on the stream before them is
done and can be seen; the hardware has made them ready by then. Having waited, they let the next
kernel come as soon as all threadgroups of this one have begun: it takes what the last ones leave
free. Processors before sm_90 cannot.
"""

from __future__ import annotations

from anymetal.engines.cuda.assembly import Line, entry_lines, lines_of, text_of

WAIT = "griddepcontrol.wait"
LET_COME = "griddepcontrol.launch_dependents"
_FIRST_PROCESSOR = 90


def wait_at_the_start(text: str, processor: str) -> str:
    if int(processor.removeprefix("sm_")) < _FIRST_PROCESSOR:
        return text
    lines = []
    for line, _, is_first in entry_lines(lines_of(text)):
        if is_first:
            lines += [Line(f"\t{WAIT};"), Line(f"\t{LET_COME};")]
        lines.append(line)
    return text_of(lines)
