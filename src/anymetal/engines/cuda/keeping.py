"""PTX goes in, PTX that tells the L2 cache to keep what is read longer than what is written.

A kernel that streams reads and writes fills the cache with both. With the hint SiLU and norms of
256 MiB take 2 to 4% less time on an H200, with other data at each run too: what was written seems
to go back to memory in longer runs. Triton's kernels have such hints.
"""

from __future__ import annotations

from collections.abc import Iterator

from anymetal.engines.cuda.assembly import Line, lines_of, text_of

_LOADS = {
    "ld.global.nc.v4.b32": "ld.global.nc.L2::cache_hint.v4.b32",
    "ld.global.nc.v2.b64": "ld.global.nc.L2::cache_hint.v2.b64",
}
_STORE = "st.global."
_POLICY = "%kept0"
_DECLARED = f"\t.reg .b64 \t{_POLICY};"
_MADE = f"\tcreatepolicy.fractional.L2::evict_last.b64 \t{_POLICY}, 1.0;"
_ENTRY = ".visible .entry "


def keep_what_is_read(text: str) -> str:
    """Hints for the kernel's loads of 16 bytes from memory that it only reads, if it writes too."""
    lines = lines_of(text)
    opcodes = {line.opcode for line in lines}
    if not opcodes & _LOADS.keys() or not any(code.startswith(_STORE) for code in opcodes):
        return text
    return text_of(_hinted(lines))


def _hinted(lines: list[Line]) -> Iterator[Line]:
    """The entry function's lines; those of other functions, which lack the policy, stay."""
    in_entry = begun = False
    for line in lines:
        if line.text.startswith(_ENTRY):
            in_entry = True
        elif line.text == "}":
            in_entry = False
        if in_entry and line.opcode and not begun:
            begun = True
            yield from (Line(_DECLARED), Line(_MADE))
        yield _with_hint(line) if in_entry else line


def _with_hint(line: Line) -> Line:
    hinted = _LOADS.get(line.opcode)
    if hinted is None:
        return line
    return Line(line.text.replace(line.opcode, hinted, 1).replace("];", f"], {_POLICY};", 1))
