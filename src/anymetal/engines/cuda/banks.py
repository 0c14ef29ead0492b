"""PTX goes in, PTX whose threadgroup memory is spread over its banks comes out.

Threadgroup memory has 32 banks of 4 bytes. Eight rows of a matrix that lie 64, 128 or 256 bytes
apart begin in one or two of them, and are fetched one after the other. Kernels put 16 bytes between
rows against that, if they can spare them. Here the 16-byte pieces of every 128 bytes change places
instead, in an order that depends on which 128 bytes they are: all accesses of a kernel find them in
the same way, and rows of any power of two begin in different banks.

PTX asks that an access of up to 16 bytes begins at a multiple of its size, so none is torn apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from anymetal.engines.cuda.assembly import (
    THREADGROUP_VARIABLE,
    Address,
    Line,
    definitions,
    lines_of,
    text_of,
)

_LINE = 128
_PIECE = 16
_ROWS = 8
# The order depends on bits 7 to 10 of an address: a distance of a multiple of this does not matter.
_PERIOD = 2048
_ANY_SIZE = "am_dynamic_memory"


def rows_share_banks(row_bytes: int) -> bool:
    """Whether of eight rows, so many bytes apart, two begin in the same banks."""
    return len({row * row_bytes % _LINE // _PIECE for row in range(_ROWS)}) < _ROWS


def spread_over_banks(text: str) -> str:
    """All accesses to threadgroup memory in the changed order. A kernel stays as it is where an
    address is kept as one of any memory, and cannot be followed, or where the launch says how much
    memory there is, which may end within 128 bytes."""
    if "cvta.shared" in text or f"{_ANY_SIZE}[]" in text:
        return text
    return text_of(_Spread(lines_of(text)).lines())


class _Spread:
    """One kernel. What an address becomes is computed once, behind its register's only definition,
    or where there are several, at the access."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._defined = definitions(lines)
        self._names: dict[Address, str] = {}  # of addresses whose register has one definition
        self._count = 0

    def lines(self) -> Iterator[Line]:
        wanted = self._wanted()
        for line in self._lines:
            if THREADGROUP_VARIABLE.search(line.text):
                yield Line(THREADGROUP_VARIABLE.sub(_of_whole_lines, line.text))
                continue
            if line.is_shared:
                yield from self._access(line)
            else:
                yield line
            for register in line.results:
                for address in wanted.get(register, ()):
                    yield from self._computed(address, self._names[address])

    def _wanted(self) -> dict[str, list[Address]]:
        """The addresses to compute behind each register's definition."""
        found: dict[str, list[Address]] = {}
        for line in self._lines:
            address = _split(line.address)[0] if line.is_shared and line.address else None
            if address and self._defined[address.base] == 1 and address not in self._names:
                self._names[address] = self._fresh()
                found.setdefault(address.base, []).append(address)
        return found

    def _access(self, line: Line) -> Iterator[Line]:
        assert line.address is not None
        low, rest = _split(line.address)
        name = self._names.get(low)
        if name is None:
            name = self._fresh()
            yield from self._computed(low, name)
        yield line.with_address(Address(name, rest))

    def _fresh(self) -> str:
        self._count += 1
        return f"%bank{self._count}"

    def _computed(self, address: Address, name: str) -> Iterator[Line]:
        """Bits 4 to 6 change with bits 7 to 9 and 8 to 10: by both, since of rows 64 bytes apart
        the lowest of these bits differ, and of rows 256 bytes apart the others."""
        higher = self._fresh()
        yield Line(f"\t.reg .b32 \t{name}, {higher};")
        if address.base.startswith("%rd"):
            yield Line(f"\tcvt.u32.u64 \t{name}, {address.base};")
        else:
            yield Line(f"\tmov.b32 \t{name}, {address.base};")
        if address.offset:
            yield Line(f"\tadd.s32 \t{name}, {name}, {address.offset};")
        yield Line(f"\tshr.u32 \t{higher}, {name}, 1;")
        yield Line(f"\txor.b32 \t{higher}, {higher}, {name};")
        yield Line(f"\tshr.u32 \t{higher}, {higher}, 3;")
        yield Line(f"\tand.b32 \t{higher}, {higher}, {_LINE - _PIECE};")
        yield Line(f"\txor.b32 \t{name}, {name}, {higher};")


def _split(address: Address) -> tuple[Address, int]:
    """An address, and a distance behind it that leaves the order as it is."""
    rest = address.offset // _PERIOD * _PERIOD
    return Address(address.base, address.offset - rest), rest


def _of_whole_lines(declaration: re.Match[str]) -> str:
    """A variable with its 128 bytes for itself, from the first to the last."""
    align, size = max(int(declaration["align"]), _LINE), -(-int(declaration["size"]) // _LINE)
    return f".shared .align {align} {declaration['name']}[{size * _LINE}];"
