"""PTX goes in, PTX of a kernel that may be started before the one in front of it has ended.

Its threads compute what their place in the grid and the launch's arguments tell. Before anything
else they wait until all that was queued on the stream before them is done and can be seen. Having
waited, they let the next kernel come as soon as all threadgroups of this one have begun: it takes
what the last ones leave free. Processors before sm_90 cannot.
"""

from __future__ import annotations

from anymetal.engines.cuda.assembly import Line, entry_lines, lines_of, text_of

WAIT = "griddepcontrol.wait"
LET_COME = "griddepcontrol.launch_dependents"
_FIRST_PROCESSOR = 90
# What neither looks at memory nor at other threads; by the first part of its name.
_HARMLESS = (
    *("abs", "add", "and", "bfe", "bfi", "clz", "createpolicy", "cvt", "cvta", "fma", "mad", "max"),
    *("min", "mov", "mul", "neg", "not", "or", "popc", "prmt", "selp", "setp", "shf", "shl", "shr"),
    *("sub", "xor"),
)
_ARGUMENTS = "ld.param."
_CLOCKS = ("%clock", "%globaltimer")  # the time that a kernel takes begins when it has waited


def wait_at_the_start(text: str, processor: str) -> str:
    if int(processor.removeprefix("sm_")) < _FIRST_PROCESSOR:
        return text
    lines: list[Line] = []
    begun = waits = False
    for line, _, is_first in entry_lines(lines_of(text)):
        begun |= is_first
        if begun and not waits and not _may_come_before(line):
            lines += [Line(f"\t{WAIT};"), Line(f"\t{LET_COME};")]
            waits = True
        lines.append(line)
    return text_of(lines)


def _may_come_before(line: Line) -> bool:
    if not line.opcode:
        return not line.ends_segment
    if any(clock in line.text for clock in _CLOCKS):
        return False
    return line.opcode.split(".")[0] in _HARMLESS or line.opcode.startswith(_ARGUMENTS)
