"""PTX goes in, PTX comes out that takes vectors where they are not aligned.

Metal lets a vector lie wherever its elements may: a float4 at a multiple of 4 bytes. Here such an
access stops the process's every kernel for good. One whose address is not surely aligned
(alignment.py) therefore looks at it first. Where it is not, a load takes the aligned words that the
bytes lie in, and a store goes in pieces, so that it touches none of its neighbours' bytes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from anymetal.engines.cuda.alignment import Code, Multiples, variables_of, zero_bits
from anymetal.engines.cuda.assembly import THREADGROUP_VARIABLE, Address, Line, lines_of, text_of
from anymetal.engines.cuda.block import Block, block_of, values_in
from anymetal.nouns import Argument

_ACCESS = re.compile(
    r"(?P<verb>ld|st)(?P<how>(?:\.(?:global|local|shared))?(?:\.nc)?)"
    r"(?:\.L[12]::\w+)*(?:\.v[248])?\.(?P<kind>[busf])(?P<bits>8|16|32|64)$"
)
_COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global(?:\.L2::\w+)?$")
_WORD, _LARGEST = 4, 16  # bytes: what threads take at once
_WIDE, _DONE = "$L__wide", "$L__done"
_SMALL_VECTOR = re.compile(r"(?:(?P<byte>bool|u?char)|half|bfloat|u?short)[234]$")


@dataclass(frozen=True)
class Places:
    """Where the arguments of a launch lie: what the address of each buffer is a multiple of."""

    block: Block
    aligned: Mapping[int, int]


def places_of(arguments: Sequence[Argument]) -> Places:
    """Buffers lie where their type is aligned. A constant that has a place in the block of
    arguments is read word by word where it lies elsewhere."""
    block = block_of(arguments)
    small = values_in(arguments, block)
    aligned = {
        one.index: max(min(one.element_align, _WORD if one.index in small else _LARGEST), 1)
        for one in arguments
        if one.role == "buffer" and one.index is not None
    }
    return Places(block, aligned)


def places_asked_for(texts: Iterable[str], arguments: Sequence[Argument]) -> Places:
    """Where buffers should lie: at multiples of 16, as tensors do that begin where their memory
    begins, if that spares looks at addresses; elsewhere as their type asks."""
    places = places_of(arguments)
    small = values_in(arguments, places.block)
    buffers = {index: _LARGEST for index in places.aligned if index not in small}
    best = Places(places.block, {**places.aligned, **buffers})
    modules = [_Module(text) for text in texts]
    fewest = [module.looks(best) for module in modules]
    if fewest == [module.looks(places) for module in modules]:
        return places
    asked = dict(best.aligned)
    for index in buffers:
        less = Places(places.block, {**asked, index: places.aligned[index]})
        if all(module.looks(less) == few for module, few in zip(modules, fewest, strict=True)):
            asked = dict(less.aligned)
    return Places(places.block, asked)


def least_alignment(argument: Argument) -> int:
    """What the address of a buffer must be a multiple of in any launch: where elements may lie."""
    small = _SMALL_VECTOR.match(argument.type)
    if small:
        return 1 if small["byte"] else 2
    return min(max(argument.element_align, 1), _WORD)


def align_variables(text: str) -> str:
    """Variables of threadgroup memory begin where vectors of their elements are aligned."""
    return THREADGROUP_VARIABLE.sub(_with_large_alignment, text)


def _with_large_alignment(declaration: re.Match[str]) -> str:
    large = int(declaration["size"]) >= _LARGEST > int(declaration["align"])
    align = _LARGEST if large else declaration["align"]
    return f".shared .align {align} {declaration['name']}[{declaration['size']}];"


def take_anywhere(text: str, places: Places) -> str:
    """Guards a module's accesses that are not surely aligned. Those that have a guard are left."""
    module = _Module(text)
    guards: dict[int, list[Line]] = {}
    numbers = itertools.count(text.count(f"\n{_WIDE}"))
    for place, access, multiples in module.unsure(places):
        guards[place] = _guarded(module.lines[place], access, multiples, next(numbers))
    numbered = enumerate(module.lines)
    return text_of(one for place, line in numbered for one in guards.get(place, [line]))


def threadgroup_memory_is_aligned(text: str, places: Places) -> bool:
    """Whether all accesses to threadgroup memory are surely aligned."""
    return not any(
        multiples.at(address) < access.size
        for _, access, multiples in _Module(text).unsure(places)
        if (address := access.in_threadgroup)
    )


class _Module:
    """A text whose addresses are looked through, for several answers to where buffers lie."""

    def __init__(self, text: str) -> None:
        self.lines = lines_of(text)
        self._variables = variables_of(text)
        self._functions: list[tuple[Code, dict[int, _Access]]] = []
        for body in _bodies(self.lines):
            found = {place: one for place in body if (one := _access(self.lines, place))}
            if found:
                self._functions.append((Code(self.lines[body.start : body.stop]), found))

    def unsure(self, places: Places) -> Iterator[tuple[int, _Access, Multiples]]:
        """The accesses that may not be aligned, with the places of their lines."""
        buffers = {index: zero_bits(align) for index, align in places.aligned.items()}
        for code, accesses in self._functions:
            multiples = Multiples(code, places.block, buffers, self._variables)
            for place, access in accesses.items():
                if any(multiples.at(one) < access.size for one in access.addresses):
                    yield place, access, multiples

    def looks(self, places: Places) -> int:
        """How many accesses look at their address."""
        return sum(1 for _ in self.unsure(places))


def _bodies(lines: Sequence[Line]) -> Iterator[range]:
    """The places of each function's lines."""
    start = 0
    for place, line in enumerate(lines):
        if line.text == "{":
            start = place + 1
        elif line.text == "}":
            yield range(start, place)


@dataclass(frozen=True)
class _InMemory:
    """A load or a store; `how` is what its opcode says of the memory, `bits` are a value's."""

    how: str
    kind: str
    bits: int
    values: Sequence[str]
    address: Address

    @property
    def size(self) -> int:
        return self.bits * len(self.values) // 8

    @property
    def addresses(self) -> tuple[Address, ...]:
        return (self.address,)

    @property
    def in_threadgroup(self) -> Address | None:
        return self.address if "shared" in self.how else None


class _Load(_InMemory):
    def piecewise(self, _: Multiples) -> Iterator[str]:
        yield from _words(f"ld{self.how}", self.address, self.size)
        for number, value in enumerate(self.values):
            if value != "_":
                yield from self._taken(value, *divmod(number * self.bits, 32))

    def _taken(self, value: str, word: int, bit: int) -> Iterator[str]:
        """One value from the words."""
        if self.bits == 64:
            yield f"mov.b64 \t{value}, {{%word{word}, %word{word + 1}}}"
            return
        part, sign, width = f"%word{word}", "s" if self.kind == "s" else "u", _width(value)
        if self.bits < 32:
            yield f"bfe.{sign}32 \t%part, {part}, {bit}, {self.bits}"
            part = "%part"
        change = "mov.b32" if width == 32 else f"cvt.{sign}{width}.{sign}32"
        yield f"{change} \t{value}, {part}"


class _Store(_InMemory):
    def piecewise(self, multiples: Multiples) -> Iterator[str]:
        piece = min(multiples.at(self.address), self.bits // 8)
        yield ".reg .b64 \t%at"
        yield from _place(self.address, "%at")
        yield from _pieces(f"st{self.how}", "%at", self.values, self.bits, piece)


@dataclass(frozen=True)
class _Copy:
    """From device to threadgroup memory."""

    target: Address
    source: Address
    size: int

    @property
    def in_threadgroup(self) -> Address:
        return self.target

    @property
    def addresses(self) -> tuple[Address, ...]:
        return (self.target, self.source)

    def piecewise(self, multiples: Multiples) -> Iterator[str]:
        yield from _words("ld.global", self.source, self.size)
        yield ".reg .b64 \t%to"
        yield from _place(self.target, "%to")
        words = [f"%word{number}" for number in range(self.size // _WORD)]
        piece = min(multiples.at(self.target), _WORD)
        yield from _pieces("st.shared", "%to", words, 8 * _WORD, piece)


_Access = _Load | _Store | _Copy


def _access(lines: Sequence[Line], place: int) -> _Access | None:
    """What an instruction accesses, if that has no guard yet. Volatile accesses, which atomics are,
    and those under a predicate, which LLVM does not write, must be aligned."""
    line = lines[place]
    if line.is_guarded or lines[place - 1].text.startswith(_WIDE):
        return None
    if _COPY.match(line.opcode):
        target, source = line.addresses
        return _Copy(target, source, int(line.operands[2])) if len(line.operands) == 3 else None
    match, address = _ACCESS.match(line.opcode), line.address
    if match is None or address is None:
        return None
    kind, place_of_values = (_Load, 0) if match["verb"] == "ld" else (_Store, 1)
    values = [one.strip() for one in line.operands[place_of_values].strip("{}").split(",")]
    return kind(match["how"], match["kind"], int(match["bits"]), values, address)


def _guarded(line: Line, access: _Access, multiples: Multiples, number: int) -> list[Line]:
    """What stands in the place of an access."""
    made = _guard(access, multiples, number)
    guard = [Line(f"\t{one}{'' if one in '{}' else ';'}") for one in made]
    wide, done = Line(f"{_WIDE}{number}:"), Line(f"{_DONE}{number}:")
    return [*guard, wide, line, done]


def _guard(access: _Access, multiples: Multiples, number: int) -> Iterator[str]:
    """To the access itself where it is aligned; else piece by piece, and past it."""
    yield "{"
    yield ".reg .b64 \t%low<2>"
    yield ".reg .pred \t%fits"
    for place, address in enumerate(access.addresses):
        yield from _place(address, f"%low{place}")
    if len(access.addresses) > 1:
        yield "or.b64 \t%low0, %low0, %low1"
    yield f"and.b64 \t%low0, %low0, {access.size - 1}"
    yield "setp.eq.b64 \t%fits, %low0, 0"
    yield f"@%fits bra \t{_WIDE}{number}"
    yield "}"
    yield "{"
    yield from access.piecewise(multiples)
    yield "}"
    yield f"bra.uni \t{_DONE}{number}"


def _place(address: Address, register: str) -> Iterator[str]:
    """Computes an address."""
    is_short = address.base.startswith("%") and _width(address.base) == 32
    yield f"{'cvt.u64.u32' if is_short else 'mov.b64'} \t{register}, {address.base}"
    if address.offset:
        yield f"add.s64 \t{register}, {register}, {address.offset}"


def _words(load: str, address: Address, size: int) -> Iterator[str]:
    """Loads what lies at any address to %word0 and on, from the aligned words that it lies in."""
    words = max(size // _WORD, 1)
    yield ".reg .b64 \t%at, %last"
    yield f".reg .b32 \t%word<{words + 1}>, %by, %part"
    yield from _place(address, "%at")
    yield "cvt.u32.u64 \t%by, %at"
    yield "and.b32 \t%by, %by, 3"
    yield "shl.b32 \t%by, %by, 3"
    yield f"add.s64 \t%last, %at, {size - 1}"
    yield "and.b64 \t%last, %last, -4"
    yield "and.b64 \t%at, %at, -4"
    for number in range(words):
        yield f"{load}.b32 \t%word{number}, [%at+{_WORD * number}]"
    yield f"{load}.b32 \t%word{words}, [%last]"
    for number in range(words):
        yield f"shf.r.wrap.b32 \t%word{number}, %word{number}, %word{number + 1}, %by"


def _pieces(store: str, at: str, values: Sequence[str], bits: int, piece: int) -> Iterator[str]:
    """Stores values one behind the other, each in pieces of so many bytes."""
    yield ".reg .b16 \t%rest16"
    yield ".reg .b32 \t%rest32"
    yield ".reg .b64 \t%rest64"
    for number, value in enumerate(values):
        width = _width(value) if value.startswith("%") else max(bits, 16)
        rest = f"%rest{width}"
        yield f"mov.b{width} \t{rest}, {value}"
        for start in range(number * bits // 8, (number + 1) * bits // 8, piece):
            yield f"{store}.b{8 * piece} \t[{at}+{start}], {rest}"
            yield f"shr.u{width} \t{rest}, {rest}, {8 * piece % width}"


def _width(register: str) -> int:
    """Bits of a register, as LLVM, banks.py and this file name them."""
    return {"%rs": 16, "%r": 32, "%bank": 32, "%word": 32}.get(register.rstrip("0123456789"), 64)
