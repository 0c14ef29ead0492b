"""Loads and stores of 32 lanes: uniform, contiguous, strided with a shuffle, or gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from anymetal.ir import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Instruction,
    Integer,
    Operand,
    Type,
    boolean,
    constant,
    i32,
    i64,
    poison,
    vector,
    zero,
)
from anymetal.passes.simdgroup import exchange, fours, outlined
from anymetal.passes.simdgroup.access import (
    WORD,
    Access,
    common_align,
    is_contiguous,
    lane_weight,
    odd_parts,
)
from anymetal.passes.simdgroup.ahead import fetch_next, fetch_row
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.streaming import LINE, NONTEMPORAL, is_aligned
from anymetal.passes.simdgroup.together import Stretch, is_invariant, stretch_of
from anymetal.passes.simdgroup.values import (
    ALL_LANES,
    INVARIANT,
    Code,
    Picked,
    Value,
    mangled,
    vector_type,
)
from anymetal.passes.simdgroup.wide import QUAD, Wide, fits

# Places that are loaded one by one sooner than gathered.
_FEW = 4


class Memory:
    """Writes plain loads and stores."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._spare: Operand | None = None
        self._wide = Wide(code)

    # ---- from instructions -------------------------------------------------------------------

    def load(
        self,
        instruction: Instruction,
        address: Value,
        mask: Operand | None,
        *,
        is_followed: bool = False,
        next_row: Operand | None = None,
    ) -> Value:
        code = self._code
        if address.facts.is_uniform:
            return code.uniform(self._scalar_load(instruction, address))
        pieces = self._pieces(instruction, instruction.type, address, mask, is_followed)
        values = [self._load(replace(piece, next_row=next_row)) for piece in pieces]
        return code.assembled(instruction.type, iter(values))

    def store(
        self,
        instruction: Instruction,
        value: Value,
        address: Value,
        mask: Operand | None,
        *,
        is_followed: bool = False,
        is_streamed: Operand | None = None,
    ) -> None:
        if address.facts.is_uniform and value.facts.is_uniform:
            self._scalar_store(instruction, self._code.scalar(value), address)
            return
        leaves = self._code.leaves_of(value)
        pieces = self._pieces(instruction, value.type, address, mask, is_followed)
        for piece, leaf in zip(pieces, leaves, strict=True):
            self._store(replace(piece, is_streamed=is_streamed), leaf)

    def _scalar_load(self, instruction: Instruction, address: Value) -> Operand:
        return self._code.load(
            instruction.type,
            self._code.scalar(address),
            instruction.align,
            ordering=instruction.ordering,
            is_volatile=instruction.is_volatile,
            metadata=INVARIANT if is_invariant(instruction) else None,
        )

    def _scalar_store(self, instruction: Instruction, value: Operand, address: Value) -> None:
        self._code.store(
            value,
            self._code.scalar(address),
            instruction.align,
            ordering=instruction.ordering,
            is_volatile=instruction.is_volatile,
        )

    def is_simple(self, instruction: Instruction, kind: Type) -> bool:
        """A plain access to one ordinary scalar."""
        if (
            instruction.is_atomic
            or instruction.is_volatile
            or self._code.types.parts(kind)
            or kind is I1
        ):
            return False
        return not odd_parts(kind)

    def has_gaps(self, kind: Type, address: Value) -> bool:
        """Whether an access is strided with gaps, which other accesses may fill."""
        offsets = address.facts.offsets
        if offsets is None or not address.facts.is_pattern:
            return False
        return not is_contiguous(offsets, self._code.types.size(kind)) and (
            stretch_of([offsets], self._code.types.size(kind)) is None
        )

    def _pieces(
        self,
        instruction: Instruction,
        kind: Type,
        address: Value,
        mask: Operand | None,
        is_followed: bool,
    ) -> Iterator[Access]:
        """An access for each scalar of a type."""
        if kind is I1 or any(leaf is I1 for leaf in self._code.types.leaves(kind)):
            raise NotVectorisable("a vector of bits in memory, differing from lane to lane")
        for offset, leaf in self._scalars(kind, 0):
            place = self.displaced(address, offset)
            align = instruction.align if not offset else min(instruction.align, offset & -offset)
            invariant, volatile = is_invariant(instruction), instruction.is_volatile
            yield Access(leaf, place, align, mask, invariant, volatile, is_followed)

    def _scalars(self, kind: Type, start: int) -> Iterator[tuple[int, Type]]:
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
            return code.varying(code.gep(I8, code.vector(address), i64(distance)))
        offsets = tuple(offset + distance for offset in facts.offsets)
        compute = None
        if address.compute is not None:
            before = address

            def compute() -> Operand:
                return code.gep(I8, code.vector(before), i64(distance))

        return Value(
            PTR,
            replace(facts, offsets=offsets),
            address.base,
            condition=address.condition,
            compute=compute,
        )

    # ---- neighbours at addresses that nothing is known of ------------------------------------

    def is_wide(self, kind: Type) -> bool:
        """Whether a vector of each lane is moved whole."""
        return fits(self._code, kind)

    def load_neighbours(self, first: Access, count: int) -> list[Value]:
        code, kind = self._code, vector(count, first.type)
        parts = self._wide.load(kind, code.vector(first.address), first.align, first.mask)
        return [code.varying(part) for part in parts]

    def is_row(self, kind: Type) -> bool:
        """Whether a vector of each lane is loaded whole from an address that is known."""
        return fits(self._code, kind) and self._code.types.size(kind) == QUAD

    def load_rows(self, accesses: list[Access]) -> list[Value]:
        """Four neighbours of each lane, at places that are a pattern with gaps."""
        first = accesses[0]
        kind, offsets = vector(len(accesses), first.type), first.address.facts.offsets
        assert offsets is not None
        if first.mask is not None:
            return self.load_neighbours(first, len(accesses))
        places = [(first.address.start, offset) for offset in offsets]
        return self._or_gathers(accesses, lambda: self._wide.load_at(kind, places, first.align))

    def store_neighbours(self, first: Access, values: list[Value]) -> None:
        code, kind = self._code, vector(len(values), first.type)
        vectors = [code.vector(value) for value in values]
        self._wide.store(kind, vectors, code.vector(first.address), first.align, first.mask)

    # ---- one access --------------------------------------------------------------------------

    def _load(self, access: Access) -> Value:
        code, wide = self._code, vector_type(access.type)
        odd = odd_parts(access.type)
        if odd:
            return self._odd_load(access, odd)
        fast = self._fast_load(access)
        if fast is None:
            exchanged = access.address.exchanged
            if exchanged is not None and exchange.can_take(access.type):
                return code.varying(exchange.taken(code, access.type, exchanged))
            return code.varying(self._gather(access))
        if access.address.condition is None:
            return code.varying(fast())
        result = code.variable(wide)
        self._code.either(
            access.address.condition,
            lambda: code.store(fast(), result),
            lambda: code.store(self._gather(access, rare=True), result),
        )
        return code.varying(code.load(wide, result))

    def _fast_load(self, access: Access) -> Callable[[], Operand] | None:
        """How to load without a gather, if that is possible."""
        offsets = access.address.facts.offsets
        if offsets is None:
            return None
        size = self._code.types.size(access.type)
        if is_contiguous(offsets, size):
            return lambda: self._contiguous_load(access)
        if offsets.count(offsets[0]) == WIDTH:
            return lambda: self._broadcast_load(access)
        stretch = self._stretch([access])
        if stretch is not None and (access.mask is None or stretch.owners is not None):
            return lambda: self._stretch_load([access])[0]
        if len(set(offsets)) <= _FEW:
            return lambda: self._few_load(access)
        return None

    def _few_load(self, access: Access) -> Operand:
        """Lanes that share a few places, as the matrices of a simdgroup do: a scalar load each."""
        code, offsets = self._code, access.address.facts.offsets
        assert offsets is not None
        places = sorted(set(offsets))
        joined = poison(vector(_FEW, access.type))
        for number, place in enumerate(places):
            lanes = [lane for lane, offset in enumerate(offsets) if offset == place]
            loaded = code.load(
                access.type,
                self._reached(access, self._place(access, place), lanes),
                access.align,
                is_volatile=access.is_volatile,
                metadata=access.metadata,
            )
            joined = code.insert_element(joined, loaded, i64(number))
        return code.picked(joined, [places.index(offset) for offset in offsets])

    def _reached(self, access: Access, place: Operand, lanes: list[int]) -> Operand:
        """A place if one of these lanes is active, otherwise one that is always valid."""
        code = self._code
        if access.mask is None:
            return place
        chosen = code.and_(code.bits(access.mask), i32(sum(1 << lane for lane in lanes)))
        return code.select(code.icmp("ne", chosen, i32(0)), place, self._nowhere())

    def _place(self, access: Access, distance: int) -> Operand:
        return self._code.moved(access.address.start, distance)

    def _contiguous_load(self, access: Access) -> Operand:
        wide = vector_type(access.type)
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        aligned = replace(access, align=access.common_align)
        loaded = self._wide_load(aligned, wide, place, access.mask)
        self._fetch_next(access, place, to_write=False)
        return loaded

    def _fetch_next(self, access: Access, place: Operand, *, to_write: bool) -> None:
        size = WIDTH * self._code.types.size(access.type)
        if access.next_row is not None:
            fetch_row(self._code, place, size, access.next_row)
        elif access.is_followed and access.mask is None:
            fetch_next(self._code, place, size, to_write=to_write)

    def _wide_load(
        self, access: Access, wide: Type, place: Operand, mask: Operand | None
    ) -> Operand:
        """A vector that lies in memory as a whole, all of it or some elements."""
        if mask is None:
            return self._code.load(
                wide,
                place,
                access.align,
                is_volatile=access.is_volatile,
                metadata=access.metadata,
            )
        name = f"llvm.masked.load.{mangled(wide)}.p0"
        aligned = ((f"align {access.align}",), (), ())
        return self._code.declared_call(wide, name, [place, mask, zero(wide)], attributes=aligned)

    def _broadcast_load(self, access: Access) -> Operand:
        """All lanes read one place, but only where a condition holds: else it would be uniform."""
        code = self._code
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        return code.splat(code.load(access.type, place, access.align))

    def load_together(self, accesses: list[Access]) -> list[Value]:
        """Strided loads that cover a stretch of memory: one wide load, and a shuffle each."""
        stretch, condition = self._stretch(accesses), accesses[0].address.condition
        assert stretch is not None
        code, first = self._code, replace(accesses[0], align=common_align(accesses))
        if condition is None:
            return self._values(first.type, stretch, self._runs(first, stretch))
        if not stretch.is_in_turn:
            return self._or_gathers(accesses, lambda: self._stretch_load(accesses))
        is_fours = self._is_fours(stretch, first.type)
        length = fours.PIECE if is_fours else stretch.count
        kind = vector(length, first.type)
        variables = [code.variable(kind) for _ in range(stretch.count // length)]

        def keep(runs: list[Operand]) -> None:
            for run, variable in zip(runs, variables, strict=True):
                code.store(run, variable)

        def slow() -> None:
            lowest = stretch.in_order(accesses)[0]
            places = code.vector(lowest.address)
            count, align = len(accesses), first.align
            whole = outlined.loaded(code, first.type, count, places, first.mask, align)
            keep(fours.pieces_of(code, whole) if is_fours else [whole])

        code.either(condition, lambda: keep(self._runs(first, stretch)), slow)
        runs = [code.load(kind, variable) for variable in variables]
        return self._values(first.type, stretch, runs)

    def _or_gathers(self, accesses: list[Access], load: Callable[[], list[Operand]]) -> list[Value]:
        """Loads in a fast way where the pattern of the addresses holds."""
        code, condition = self._code, accesses[0].address.condition
        if condition is None:
            return [code.varying(loaded) for loaded in load()]
        wide = vector_type(accesses[0].type)
        results = [code.variable(wide) for _ in accesses]

        def quick() -> None:
            for loaded, result in zip(load(), results, strict=True):
                code.store(loaded, result)

        def slow() -> None:
            for access, result in zip(accesses, results, strict=True):
                code.store(self._gather(access, rare=True), result)

        self._code.either(condition, quick, slow)
        return [code.varying(code.load(wide, result)) for result in results]

    def _stretch(self, accesses: list[Access]) -> Stretch | None:
        offsets = [access.address.facts.offsets for access in accesses]
        size = self._code.types.size(accesses[0].type)
        return stretch_of([o for o in offsets if o is not None], size)

    def _stretch_load(self, accesses: list[Access]) -> list[Operand]:
        stretch = self._stretch(accesses)
        assert stretch is not None
        first = replace(accesses[0], align=common_align(accesses))
        return self._taken(first.type, stretch, self._runs(first, stretch))

    def _runs(self, access: Access, stretch: Stretch) -> list[Operand]:
        """What lies in a stretch of memory; a float4 of each lane in vectors of 16."""
        if self._is_fours(stretch, access.type):
            return self._sixteens(access, stretch)
        return [self._run_load(access, stretch, number) for number in range(len(stretch.starts))]

    def _taken(self, kind: Type, stretch: Stretch, runs: list[Operand]) -> list[Operand]:
        """What each access takes of it."""
        if self._is_fours(stretch, kind):
            parts = fours.apart(self._code, runs)
            return [parts[elements[0]] for elements in stretch.taken]
        whole = self._code.concatenated(runs)
        return [self._code.picked(whole, elements) for elements in stretch.taken]

    def _values(self, kind: Type, stretch: Stretch, runs: list[Operand]) -> list[Value]:
        """The same as values, which know what they were picked from."""
        values = [self._code.varying(taken) for taken in self._taken(kind, stretch, runs)]
        if len(runs) == 1:
            for value, places in zip(values, stretch.taken, strict=True):
                value.picked = Picked(runs[0], places)
        return values

    def _sixteens(self, access: Access, stretch: Stretch) -> list[Operand]:
        """In ascending order, which LLVM keeps if the loads are volatile: it suits prefetchers."""
        code, kind = self._code, vector(fours.PIECE, access.type)
        if access.mask is not None or access.is_invariant:
            return fours.pieces_of(code, self._run_load(access, stretch, 0))
        size = fours.PIECE * code.types.size(access.type)
        starts = range(0, fours.FOUR * WIDTH // fours.PIECE * size, size)
        places = [self._place(access, stretch.starts[0] + start) for start in starts]
        return [code.load(kind, place, access.align, is_volatile=True) for place in places]

    def _run_load(self, access: Access, stretch: Stretch, number: int) -> Operand:
        place = self._place(access, stretch.starts[number])
        mask = self._run_mask(access.mask, stretch, number)
        plain = replace(access, is_volatile=False)
        return self._wide_load(plain, vector(stretch.length, access.type), place, mask)

    def _run_mask(self, mask: Operand | None, stretch: Stretch, number: int) -> Operand | None:
        if mask is None:
            return None
        owners = stretch.owners
        assert owners is not None
        part = owners[number * stretch.length : (number + 1) * stretch.length]
        return self._code.picked(mask, [lane for _, lane in part])

    def store_together(self, accesses: list[Access], values: list[Value]) -> None:
        """Strided stores that cover a stretch of memory: a shuffle, and one wide store."""
        code, condition = self._code, accesses[0].address.condition
        stretch = self._stretch(accesses)
        assert stretch is not None
        runs = self._joined(stretch, values)
        first = replace(accesses[0], align=common_align(accesses))

        def quick() -> None:
            for number, run in enumerate(runs):
                self._run_store(first, stretch, number, run)

        def slow() -> None:
            if stretch.is_in_turn:
                places = code.vector(stretch.in_order(accesses)[0].address)
                outlined.store(code, len(accesses), runs[0], places, first.mask, first.align)
                return
            for access, value in zip(accesses, values, strict=True):
                self._scatter(access, value, rare=True)

        if condition is None:
            quick()
        else:
            code.either(condition, quick, slow)

    def _joined(self, stretch: Stretch, values: list[Value]) -> list[Operand]:
        """Each run of a stretch, put together from what accesses bring."""
        code = self._code
        assert stretch.owners is not None
        vectors = [code.vector(value) for value in values]
        if self._is_fours(stretch, values[0].type):
            return [fours.joined(code, stretch.in_order(vectors))]
        joined = code.concatenated(vectors)
        numbers = [number * WIDTH + lane for number, lane in stretch.owners]
        starts = range(0, stretch.count, stretch.length)
        return [code.picked(joined, numbers[at : at + stretch.length]) for at in starts]

    def _run_store(self, access: Access, stretch: Stretch, number: int, value: Operand) -> None:
        place = self._place(access, stretch.starts[number])
        mask = self._run_mask(access.mask, stretch, number)
        self._wide_store(replace(access, is_volatile=False), value, place, mask)

    def _wide_store(
        self, access: Access, value: Operand, place: Operand, mask: Operand | None
    ) -> None:
        """The other way round."""
        if mask is None:
            self._code.store(value, place, access.align, is_volatile=access.is_volatile)
            return
        name = f"llvm.masked.store.{mangled(value.type)}.p0"
        aligned = ((), (f"align {access.align}",), ())
        self._code.declared_call(VOID, name, [value, place, mask], attributes=aligned)

    def _is_fours(self, stretch: Stretch, kind: Type) -> bool:
        """Whether each lane takes four neighbours of 4 bytes, and the next lane the next four."""
        is_four = len(stretch.taken) == fours.FOUR and stretch.is_in_turn
        return is_four and self._code.types.size(kind) == WORD

    def _gather(self, access: Access, *, rare: bool = False) -> Operand:
        """`rare`: where a faster form does not fit, which hardly happens."""
        code, wide = self._code, vector_type(access.type)
        size, pointers = code.types.size(access.type), code.vector(access.address)
        if rare or (size < WORD and access.mask is not None):
            return outlined.loaded(code, access.type, 1, pointers, access.mask, access.align)
        if size < WORD and code.is_long:
            return outlined.gathered(code, access.type, pointers, access.align)
        code.extra_weight += lane_weight(size)
        name = f"llvm.masked.gather.{mangled(wide)}.v{WIDTH}p0"
        aligned = ((f"align {access.align}",), (), ())
        arguments = [pointers, access.mask or ALL_LANES, zero(wide)]
        return code.declared_call(wide, name, arguments, attributes=aligned)

    def _odd_load(self, access: Access, odd: list[tuple[int, Integer]]) -> Value:
        """An integer of, say, 24 bits, in parts that processors know."""
        code, wide = self._code, vector_type(access.type)
        word: Operand | None = None
        for offset, kind in odd:
            part = self._load(self._part(access, offset, kind))
            piece = code.cast("zext", code.vector(part), wide)
            if offset:
                piece = code.shl(piece, constant(wide, offset * 8))
            word = code.or_(word, piece) if word is not None else piece
        assert word is not None
        return code.varying(word)

    def _odd_store(self, access: Access, value: Value, odd: list[tuple[int, Integer]]) -> None:
        code = self._code
        for offset, kind in odd:
            word = code.vector(value)
            if offset:
                word = code.lshr(word, constant(word.type, offset * 8))
            piece = code.cast("trunc", word, vector_type(kind))
            self._store(self._part(access, offset, kind), code.varying(piece))

    def _part(self, access: Access, offset: int, kind: Type) -> Access:
        address = self.displaced(access.address, offset)
        return Access(kind, address, 1, access.mask, access.is_invariant, access.is_volatile)

    def _store(self, access: Access, value: Value) -> None:
        code = self._code
        odd = odd_parts(access.type)
        if odd:
            self._odd_store(access, value, odd)
            return
        fast = self._fast_store(access, value)
        if fast is None:
            self._scatter(access, value)
        elif access.address.condition is not None:
            code.vector(value)
            self._code.either(
                access.address.condition, fast, lambda: self._scatter(access, value, rare=True)
            )
        else:
            fast()

    def _fast_store(self, access: Access, value: Value) -> Callable[[], None] | None:
        offsets = access.address.facts.offsets
        if offsets is None:
            return None
        size = self._code.types.size(access.type)
        if is_contiguous(offsets, size):
            return lambda: self._contiguous_store(access, value)
        if offsets.count(offsets[0]) == WIDTH:
            return lambda: self._last_store(access, value)
        stretch = self._stretch([access])
        if stretch is not None and stretch.owners is not None:
            return lambda: self._stretch_store(access, value)
        return None

    def _stretch_store(self, access: Access, value: Value) -> None:
        stretch = self._stretch([access])
        assert stretch is not None
        aligned = replace(access, align=access.common_align)
        for number, run in enumerate(self._joined(stretch, [value])):
            self._run_store(aligned, stretch, number, run)

    def _contiguous_store(self, access: Access, value: Value) -> None:
        assert access.address.facts.offsets is not None
        written = self._code.vector(value)
        place = self._place(access, access.address.facts.offsets[0])
        if access.is_streamed is None:
            self._cached_store(access, written, place)
            return
        code = self._code
        code.either(
            code.and_(access.is_streamed, is_aligned(code, place)),
            lambda: code.store(written, place, LINE, metadata=NONTEMPORAL),
            lambda: self._cached_store(access, written, place),
        )

    def _cached_store(self, access: Access, written: Operand, place: Operand) -> None:
        self._wide_store(replace(access, align=access.common_align), written, place, access.mask)
        self._fetch_next(access, place, to_write=True)

    def _last_store(self, access: Access, value: Value) -> None:
        """All lanes write one place: the last one's value stays."""
        code = self._code
        assert access.address.facts.offsets is not None
        place = self._place(access, access.address.facts.offsets[0])
        if value.facts.is_uniform:
            last = code.scalar(value)
        else:
            lane = i32(WIDTH - 1)
            if access.mask is not None:
                given = [code.bits(access.mask), boolean(True)]
                lane = code.sub(lane, code.declared_call(I32, "llvm.ctlz.i32", given))
            last = code.extract_element(code.vector(value), lane)
        code.store(last, place, access.align)

    def _scatter(self, access: Access, value: Value, *, rare: bool = False) -> None:
        code = self._code
        written, pointers = code.vector(value), code.vector(access.address)
        size = code.types.size(access.type)
        if rare or (size < WORD and access.mask is not None):
            outlined.store(code, 1, written, pointers, access.mask, access.align)
            return
        if size < WORD and code.is_long:
            outlined.scatter(code, written, pointers, access.align)
            return
        code.extra_weight += lane_weight(size)
        name = f"llvm.masked.scatter.{mangled(written.type)}.v{WIDTH}p0"
        aligned = ((), (f"align {access.align}",), ())
        arguments = [written, pointers, access.mask or ALL_LANES]
        code.declared_call(VOID, name, arguments, attributes=aligned)

    def _nowhere(self) -> Operand:
        """Eight bytes that nobody looks at."""
        if self._spare is None:
            self._spare = self._code.variable(I64, align=8)
        return self._spare
