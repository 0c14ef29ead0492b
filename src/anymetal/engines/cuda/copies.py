"""PTX goes in, PTX whose copies from device to threadgroup memory run by themselves comes out.

A thread that fetches 16 bytes and puts them to threadgroup memory waits for them in between. The
hardware can do both while the thread goes on (cp.async); it is waited for at the next barrier,
before which no other thread may look. This takes what a kernel copies first and then leaves alone
while it computes with something else, up to a barrier: tiles in two buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.engines.cuda.assembly import Address, Line, definitions, lines_of, segments, text_of

_BYTES = 16
_LOADS = ("ld.global.nc.v4.b32", "ld.global.nc.v2.b64")
_STORES = ("st.shared.v4.b32", "st.shared.v2.b64")
_MATRICES = "ldmatrix."
# NVIDIA's assembler would wait as soon as nothing in memory forbids it, before the arithmetic that
# the copies are to run beside. It moves nothing past the end of a block: a grid has threadgroups.
_WAIT = (
    "\t.reg .pred \t%waits{0};",
    "\t.reg .b32 \t%groups{0};",
    "\tmov.u32 \t%groups{0}, %nctaid.x;",
    "\tsetp.ne.u32 \t%waits{0}, %groups{0}, 0;",
    "\t@%waits{0} bra \t$L__wait{0};",
    "\ttrap;",
    "$L__wait{0}:",
    "\tcp.async.wait_all;",
)


@dataclass(frozen=True)
class _Copy:
    """A load of 16 bytes, and the store that is all that becomes of it, by their places."""

    load: int
    store: int
    source: Address
    target: Address

    @property
    def line(self) -> Line:
        return Line(f"\tcp.async.cg.shared.global \t{self.target}, {self.source}, {_BYTES};")


def copy_by_themselves(text: str) -> str:
    """Copies that nothing else in threadgroup memory can meet before the next barrier."""
    if not any(store in text for store in _STORES):
        return text
    lines = lines_of(text)
    uses = _uses(lines)
    new: dict[int, list[Line]] = {}
    for segment in segments(lines):
        for barrier in (place for place in segment if lines[place].is_barrier):
            copies = _copies(lines, range(segment.start, barrier), uses)
            for copy in copies:
                new[copy.load], new[copy.store] = [], [copy.line]
            if copies:
                waits = (Line(line.format(barrier)) for line in _WAIT)
                new[barrier] = [*waits, lines[barrier]]
    return text_of(one for place, line in enumerate(lines) for one in new.get(place, [line]))


def _uses(lines: list[Line]) -> dict[str, int]:
    """How often each register is named."""
    found: dict[str, int] = {}
    for line in lines:
        for register in line.registers:
            found[register] = found.get(register, 0) + 1
    return found


def _copies(lines: list[Line], before: range, uses: dict[str, int]) -> list[_Copy]:
    """The copies before a barrier, if all that touches threadgroup memory from the first of them on
    are such copies, to places of their own, and fetches of matrices. These are of what other
    threads have put there before the last barrier: a matrix has rows of 16 bytes, of which each
    thread needs four."""
    loads: dict[tuple[str, ...], int] = {}
    found: list[_Copy] = []
    for place in before:
        line = lines[place]
        if line.is_barrier:
            loads, found = {}, []
        elif line.opcode in _LOADS and not line.is_guarded:
            loads[tuple(line.results)] = place
        elif line.is_shared and not line.opcode.startswith(_MATRICES):
            copy = _copy(lines, loads, place, uses)
            moved = definitions(lines[found[0].store : place]) if found else {}
            is_apart = copy is not None and all(_apart(copy, other) for other in found)
            if copy is not None and is_apart and copy.target.base not in moved:
                found.append(copy)
            elif found:
                return []
    return found


def _copy(
    lines: list[Line], loads: dict[tuple[str, ...], int], place: int, uses: dict[str, int]
) -> _Copy | None:
    store = lines[place]
    if store.opcode not in _STORES or store.is_guarded or store.address is None:
        return None
    values = tuple(one for one in store.registers if one != store.address.base)
    load = loads.get(values)
    if load is None or any(uses[one] != 2 for one in values):
        return None
    source = lines[load].address
    assert source is not None
    if source.base in definitions(lines[load:place]):
        return None
    return _Copy(load, place, source, store.address)


def _apart(one: _Copy, other: _Copy) -> bool:
    """Whether two copies surely have different targets."""
    distance = one.target.offset - other.target.offset
    return one.target.base == other.target.base and abs(distance) >= _BYTES
