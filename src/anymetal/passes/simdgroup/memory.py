"""Loads and stores of 32 lanes: a scalar, a vector, a few vectors and a permutation, a gather."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from anymetal.passes.operands import Parsed
from anymetal.passes.simdgroup import fours
from anymetal.passes.simdgroup.facts import WIDTH, Lanes, width_of
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.together import Stretch, stretch_of
from anymetal.passes.simdgroup.values import MASK, Code, Value, vector_type

ALL = "splat (i1 true)"


@dataclass
class Access:
    """One load or store of one scalar type by the lanes of a mask (None: all)."""

    kind: str
    address: Value
    align: int
    mask: str | None
    invariant: bool = False
    volatile: bool = False

    @property
    def common_align(self) -> int:
        """What the places of all lanes are aligned to, also of those that are not active."""
        offsets = self.address.facts.offsets
        assert offsets is not None
        return math.gcd(self.align, *(offset - offsets[0] for offset in offsets))


def _common_align(accesses: list[Access]) -> int:
    return min(access.common_align for access in accesses)


class Memory:
    """Writes plain loads and stores."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._spare = ""

    # ---- from instructions -------------------------------------------------------------------

    def load(self, parsed: Parsed, address: Value, mask: str | None) -> Value:
        code = self._code
        if address.facts.is_uniform:
            return code.uniform(parsed.kind, self._scalar_load(parsed, address))
        pieces = self._pieces(parsed, parsed.kind, address, mask)
        return code.assembled(parsed.kind, iter([self._load(piece) for piece in pieces]))

    def store(self, parsed: Parsed, value: Value, address: Value, mask: str | None) -> None:
        if address.facts.is_uniform and value.facts.is_uniform:
            self._scalar_store(parsed, self._code.scalar(value), value.kind, address)
            return
        leaves = self._code.leaves_of(value)
        pieces = self._pieces(parsed, value.kind, address, mask)
        for piece, leaf in zip(pieces, leaves, strict=True):
            self._store(piece, leaf)

    def _scalar_load(self, parsed: Parsed, address: Value) -> str:
        suffix = ", !invariant.load !4000000" if parsed.is_invariant else ""
        order = f" {parsed.ordering}" if parsed.is_atomic else ""
        words = "load" + (" atomic" if parsed.is_atomic else "")
        words += " volatile" if parsed.is_volatile else ""
        place = f"ptr {self._code.scalar(address)}{order}, align {parsed.align}"
        return self._code.op(f"{words} {parsed.kind}, {place}{suffix}")

    def _scalar_store(self, parsed: Parsed, text: str, kind: str, address: Value) -> None:
        order = f" {parsed.ordering}" if parsed.is_atomic else ""
        words = "store" + (" atomic" if parsed.is_atomic else "")
        words += " volatile" if parsed.is_volatile else ""
        place = f"ptr {self._code.scalar(address)}{order}, align {parsed.align}"
        self._code.line(f"{words} {kind} {text}, {place}")

    def is_simple(self, parsed: Parsed, kind: str) -> bool:
        """A plain access to one ordinary scalar."""
        if parsed.is_atomic or parsed.is_volatile or self._code.types.parts(kind) or kind == "i1":
            return False
        return not _odd_parts(kind)

    def needs_company(self, kind: str, address: Value) -> bool:
        """Whether an access is slow alone, but may not be with its neighbours."""
        offsets = address.facts.offsets
        if offsets is None or not address.facts.is_pattern:
            return False
        return not _is_contiguous(offsets, self._code.types.size(kind)) and (
            stretch_of([offsets], self._code.types.size(kind)) is None
        )

    def _pieces(
        self, parsed: Parsed, kind: str, address: Value, mask: str | None
    ) -> Iterator[Access]:
        """An access for each scalar of a type."""
        if kind == "i1" or any(leaf == "i1" for leaf in self._code.types.leaves(kind)):
            raise NotVectorisable("a vector of bits in memory, differing from lane to lane")
        for offset, leaf in self._scalars(kind, 0):
            place = self.displaced(address, offset)
            align = parsed.align if not offset else min(parsed.align, offset & -offset)
            yield Access(leaf, place, align, mask, parsed.is_invariant, parsed.is_volatile)

    def _scalars(self, kind: str, start: int) -> Iterator[tuple[int, str]]:
        parts = self._code.types.parts(kind)
        if not parts:
            yield start, kind
        for number, part in enumerate(parts):
            yield from self._scalars(part, start + self._code.types.offset(kind, number))

    def displaced(self, address: Value, distance: int) -> Value:
        """An address some bytes further on, in every lane."""
        if distance == 0:
            return address
        code, facts = self._code, address.facts
        if facts.offsets is None:
            wide = vector_type("ptr")
            moved = f"getelementptr i8, {wide} {code.vector(address)}, i64 {distance}"
            return code.varying("ptr", code.op(moved))
        offsets = tuple(offset + distance for offset in facts.offsets)
        compute = None
        if address.compute is not None:
            before = address

            def compute() -> str:
                wide = vector_type("ptr")
                text = code.vector(before)
                return code.op(f"getelementptr i8, {wide} {text}, i64 {distance}")

        return Value(
            "ptr",
            replace(facts, offsets=offsets),
            address.base,
            condition=address.condition,
            compute=compute,
        )

    # ---- one access --------------------------------------------------------------------------

    def _load(self, access: Access) -> Value:
        code, wide = self._code, vector_type(access.kind)
        odd = _odd_parts(access.kind)
        if odd:
            return self._odd_load(access, odd)
        fast = self._fast_load(access)
        if fast is None:
            return code.varying(access.kind, self._gather(access))
        if not access.address.condition:
            return code.varying(access.kind, fast())
        result = code.variable(wide)
        self._either(
            access.address.condition,
            lambda: code.store(wide, fast(), result),
            lambda: code.store(wide, self._gather(access), result),
        )
        return code.varying(access.kind, code.load(wide, result))

    def _either(self, condition: str, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Two ways of doing the same, chosen at run time."""
        code = self._code
        names = [code.fresh("quick"), code.fresh("slow"), code.fresh("done")]
        code.branch(condition, names[0], names[1])
        for name, way in zip(names, (yes, no), strict=False):
            code.label(name)
            with code.aside():
                way()
            code.jump(names[2])
        code.label(names[2])

    def _fast_load(self, access: Access) -> Callable[[], str] | None:
        """How to load without a gather, if there is a way."""
        offsets = access.address.facts.offsets
        if offsets is None:
            return None
        size = self._code.types.size(access.kind)
        if _is_contiguous(offsets, size):
            return lambda: self._contiguous_load(access)
        if offsets.count(offsets[0]) == WIDTH:
            return lambda: self._broadcast_load(access)
        stretch = self._stretch([access])
        if stretch is not None and (access.mask is None or stretch.owners is not None):
            return lambda: self._stretch_load([access])[0]
        return None

    def _place(self, access: Access, distance: int) -> str:
        return self._code.moved("ptr", access.address.base, distance)

    def _contiguous_load(self, access: Access) -> str:
        code, wide = self._code, vector_type(access.kind)
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        if access.mask is None:
            word = "load volatile" if access.volatile else "load"
            suffix = ", !invariant.load !4000000" if access.invariant else ""
            return code.op(f"{word} {wide}, ptr {place}, align {access.common_align}{suffix}")
        name = f"llvm.masked.load.{mangled(wide)}.p0"
        arguments = [
            (f"ptr align {access.common_align}", place),
            (MASK, access.mask),
            (wide, "zeroinitializer"),
        ]
        return self._intrinsic(wide, name, arguments)

    def _broadcast_load(self, access: Access) -> str:
        """All lanes read one place, but only where a condition holds: else it would be uniform."""
        code = self._code
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        text = code.op(f"load {access.kind}, ptr {place}, align {access.align}")
        return code.splat(access.kind, text)

    def load_together(self, accesses: list[Access]) -> list[Value]:
        """Loads that cover a stretch of memory: one wide load, and a permutation each."""
        code, kind = self._code, accesses[0].kind
        wide, condition = vector_type(kind), accesses[0].address.condition
        if not condition:
            return [code.varying(kind, text) for text in self._stretch_load(accesses)]
        results = [code.variable(wide) for _ in accesses]

        def quick() -> None:
            for text, result in zip(self._stretch_load(accesses), results, strict=True):
                code.store(wide, text, result)

        def slow() -> None:
            for access, result in zip(accesses, results, strict=True):
                code.store(wide, self._gather(access), result)

        self._either(condition, quick, slow)
        return [code.varying(kind, code.load(wide, result)) for result in results]

    def _stretch(self, accesses: list[Access]) -> Stretch | None:
        offsets = [access.address.facts.offsets for access in accesses]
        size = self._code.types.size(accesses[0].kind)
        return stretch_of([o for o in offsets if o is not None], size)

    def _stretch_load(self, accesses: list[Access]) -> list[str]:
        first = accesses[0]
        stretch = self._stretch(accesses)
        assert stretch is not None
        first = replace(first, align=_common_align(accesses))
        if self._is_fours(stretch, first.kind):
            parts = fours.apart(self._code, first.kind, self._sixteens(first, stretch))
            return [parts[elements[0]] for elements in stretch.taken]
        runs = [self._run_load(first, stretch, number) for number in range(len(stretch.starts))]
        text, count = self._code.concatenated(runs, first.kind, stretch.length)
        return [self.picked(text, first.kind, count, list(elements)) for elements in stretch.taken]

    def _sixteens(self, access: Access, stretch: Stretch) -> list[str]:
        """In the order of memory, which LLVM keeps if it is volatile: processors fetch ahead."""
        code, kind = self._code, f"<{fours.PIECE} x {access.kind}>"
        if access.mask is not None or access.invariant:
            return fours.pieces_of(code, access.kind, self._run_load(access, stretch, 0))
        size = fours.PIECE * code.types.size(access.kind)
        starts = range(0, fours.FOUR * WIDTH // fours.PIECE * size, size)
        places = [self._place(access, stretch.starts[0] + start) for start in starts]
        return [code.op(f"load volatile {kind}, ptr {p}, align {access.align}") for p in places]

    def _run_load(self, access: Access, stretch: Stretch, number: int) -> str:
        code = self._code
        whole = f"<{stretch.length} x {access.kind}>"
        place = self._place(access, stretch.starts[number])
        if access.mask is None:
            suffix = ", !invariant.load !4000000" if access.invariant else ""
            return code.op(f"load {whole}, ptr {place}, align {access.align}{suffix}")
        arguments = [
            (f"ptr align {access.align}", place),
            (f"<{stretch.length} x i1>", self._run_mask(access.mask, stretch, number)),
            (whole, "zeroinitializer"),
        ]
        return self._intrinsic(whole, f"llvm.masked.load.{mangled(whole)}.p0", arguments)

    def _run_mask(self, mask: str, stretch: Stretch, number: int) -> str:
        owners = stretch.owners
        assert owners is not None
        part = owners[number * stretch.length : (number + 1) * stretch.length]
        return self.picked(mask, "i1", WIDTH, [lane for _, lane in part])

    def store_together(self, accesses: list[Access], values: list[Value]) -> None:
        """Stores that cover a stretch of memory: a permutation, and one wide store."""
        code, condition = self._code, accesses[0].address.condition
        for value in values:
            code.vector(value)
        if not condition:
            self._stretch_store(accesses, values)
            return

        def slow() -> None:
            for access, value in zip(accesses, values, strict=True):
                self._scatter(access, value)

        self._either(condition, lambda: self._stretch_store(accesses, values), slow)

    def _stretch_store(self, accesses: list[Access], values: list[Value]) -> None:
        code, first = self._code, accesses[0]
        stretch = self._stretch(accesses)
        assert stretch is not None and stretch.owners is not None
        first = replace(first, align=_common_align(accesses))
        texts = [code.vector(value) for value in values]
        if self._is_fours(stretch, first.kind):
            order = sorted(range(fours.FOUR), key=lambda number: stretch.taken[number][0])
            text = fours.joined(code, first.kind, [texts[number] for number in order])
            self._run_store(first, stretch, 0, text)
            return
        joined, count = self._code.concatenated(texts, first.kind, WIDTH)
        numbers = [number * WIDTH + lane for number, lane in stretch.owners]
        for run in range(len(stretch.starts)):
            part = numbers[run * stretch.length : (run + 1) * stretch.length]
            text = self.picked(joined, first.kind, count, part)
            self._run_store(first, stretch, run, text)

    def _run_store(self, access: Access, stretch: Stretch, number: int, text: str) -> None:
        whole = f"<{stretch.length} x {access.kind}>"
        place = self._place(access, stretch.starts[number])
        if access.mask is None:
            self._code.line(f"store {whole} {text}, ptr {place}, align {access.align}")
            return
        arguments = [
            (whole, text),
            (f"ptr align {access.align}", place),
            (f"<{stretch.length} x i1>", self._run_mask(access.mask, stretch, number)),
        ]
        self._intrinsic("void", f"llvm.masked.store.{mangled(whole)}.p0", arguments)

    def _is_fours(self, stretch: Stretch, kind: str) -> bool:
        """Whether each lane takes four neighbours of 4 bytes, and the next lane the next four."""
        parts = sorted(elements[0] for elements in stretch.taken)
        in_turn = all(
            elements == tuple(range(elements[0], fours.FOUR * WIDTH, fours.FOUR))
            for elements in stretch.taken
        )
        return in_turn and parts == list(range(fours.FOUR)) and self._code.types.size(kind) == 4

    def picked(self, text: str, kind: str, count: int, numbers: list[int]) -> str:
        return self._code.shuffled(kind, count, text, "poison", numbers)

    def _gather(self, access: Access) -> str:
        wide = vector_type(access.kind)
        pointers, mask = self._reachable(access)
        name = f"llvm.masked.gather.{mangled(wide)}.v{WIDTH}p0"
        arguments = [
            (f"{vector_type('ptr')} align {access.align}", pointers),
            (MASK, mask),
            (wide, "zeroinitializer"),
        ]
        return self._intrinsic(wide, name, arguments)

    def _odd_load(self, access: Access, odd: list[tuple[int, str]]) -> Value:
        """An integer of, say, 24 bits, in parts that processors know."""
        code, wide = self._code, vector_type(access.kind)
        word = ""
        for offset, kind in odd:
            part = self._load(self._part(access, offset, kind))
            text = code.op(f"zext {vector_type(kind)} {code.vector(part)} to {wide}")
            if offset:
                text = code.op(f"shl {wide} {text}, splat ({access.kind} {offset * 8})")
            word = code.op(f"or {wide} {word}, {text}") if word else text
        return code.varying(access.kind, word)

    def _odd_store(self, access: Access, value: Value, odd: list[tuple[int, str]]) -> None:
        code, wide = self._code, vector_type(access.kind)
        for offset, kind in odd:
            text = code.vector(value)
            if offset:
                text = code.op(f"lshr {wide} {text}, splat ({access.kind} {offset * 8})")
            text = code.op(f"trunc {wide} {text} to {vector_type(kind)}")
            self._store(self._part(access, offset, kind), code.varying(kind, text))

    def _part(self, access: Access, offset: int, kind: str) -> Access:
        address = self.displaced(access.address, offset)
        return Access(kind, address, 1, access.mask, access.invariant, access.volatile)

    def _store(self, access: Access, value: Value) -> None:
        code = self._code
        odd = _odd_parts(access.kind)
        if odd:
            self._odd_store(access, value, odd)
            return
        fast = self._fast_store(access, value)
        if fast is None:
            self._scatter(access, value)
        elif access.address.condition:
            code.vector(value)
            self._either(access.address.condition, fast, lambda: self._scatter(access, value))
        else:
            fast()

    def _fast_store(self, access: Access, value: Value) -> Callable[[], None] | None:
        offsets = access.address.facts.offsets
        if offsets is None:
            return None
        size = self._code.types.size(access.kind)
        if _is_contiguous(offsets, size):
            return lambda: self._contiguous_store(access, value)
        if offsets.count(offsets[0]) == WIDTH:
            return lambda: self._last_store(access, value)
        stretch = self._stretch([access])
        if stretch is not None and stretch.owners is not None:
            return lambda: self._stretch_store([access], [value])
        return None

    def _contiguous_store(self, access: Access, value: Value) -> None:
        code, wide = self._code, vector_type(access.kind)
        assert access.address.facts.offsets is not None
        text = code.vector(value)
        place = self._place(access, access.address.facts.offsets[0])
        if access.mask is None:
            word = "store volatile" if access.volatile else "store"
            code.line(f"{word} {wide} {text}, ptr {place}, align {access.common_align}")
            return
        name = f"llvm.masked.store.{mangled(wide)}.p0"
        arguments = [(wide, text), (f"ptr align {access.common_align}", place), (MASK, access.mask)]
        self._intrinsic("void", name, arguments)

    def _last_store(self, access: Access, value: Value) -> None:
        """All lanes write one place: the last one's value stays."""
        code = self._code
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        if value.facts.is_uniform:
            text = code.scalar(value)
        else:
            lane = str(WIDTH - 1)
            if access.mask is not None:
                zeros = code.call(
                    "i32", "llvm.ctlz.i32", [("i32", code.bits(access.mask)), ("i1", "true")]
                )
                lane = code.op(f"sub i32 {WIDTH - 1}, {zeros}")
            text = code.op(
                f"extractelement {vector_type(access.kind)} {code.vector(value)}, i32 {lane}"
            )
        code.line(f"store {access.kind} {text}, ptr {place}, align {access.align}")

    def _scatter(self, access: Access, value: Value) -> None:
        wide = vector_type(access.kind)
        pointers, mask = self._reachable(access)
        name = f"llvm.masked.scatter.{mangled(wide)}.v{WIDTH}p0"
        arguments = [
            (wide, self._code.vector(value)),
            (f"{vector_type('ptr')} align {access.align}", pointers),
            (MASK, mask),
        ]
        self._intrinsic("void", name, arguments)

    def _reachable(self, access: Access) -> tuple[str, str]:
        """Addresses, and the lanes to be asked for them.

        Processors gather nothing below 4 bytes, and LLVM writes a branch a lane instead. So lanes
        that are not active get an address that is always there, and all of them are asked.
        """
        code = self._code
        pointers = code.vector(access.address)
        small = code.types.size(access.kind) < 4
        code.extra_weight += 3 * WIDTH if small else 4
        if access.mask is None or not small:
            return pointers, access.mask or ALL
        nowhere = code.splat("ptr", self._nowhere())
        wide = vector_type("ptr")
        chosen = f"select {MASK} {access.mask}, {wide} {pointers}, {wide} {nowhere}"
        return code.op(chosen), ALL

    def _nowhere(self) -> str:
        """Eight bytes that nobody looks at."""
        if not self._spare:
            self._spare = self._code.variable("i64", align=8)
        return self._spare

    def _intrinsic(self, kind: str, name: str, arguments: list[tuple[str, str]]) -> str:
        code = self._code
        plain = ", ".join(typed.split(" align ")[0] for typed, _ in arguments)
        code.declarations.add(f"declare {kind} @{name}({plain})")
        listed = ", ".join(f"{typed} {text}" for typed, text in arguments)
        text = f"call {kind} @{name}({listed})"
        if kind == "void":
            code.line(text)
            return ""
        return code.op(text)


def _odd_parts(kind: str) -> list[tuple[int, str]]:
    """Offsets and types of the usual integers that an unusual one is made of."""
    width = width_of(kind) if kind != "ptr" else None
    if width is None or width in (8, 16, 32, 64):
        return []
    if width % 8:
        raise NotVectorisable(f"{kind} in memory")
    parts, offset = [], 0
    for bits in (64, 32, 16, 8):
        while width - offset * 8 >= bits:
            parts.append((offset, f"i{bits}"))
            offset += bits // 8
    return parts


def _is_contiguous(offsets: Lanes, size: int) -> bool:
    first = offsets[0]
    return all(offset == first + lane * size for lane, offset in enumerate(offsets))


_LETTERS = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}


def mangled(kind: str) -> str:
    """A type as it stands in an intrinsic's name."""
    if kind.startswith("<"):
        count, element = kind[1:-1].split(" x ", 1)
        return f"v{count}{mangled(element)}"
    return _LETTERS.get(kind, kind)


__all__ = ["ALL", "Access", "Memory", "mangled"]
