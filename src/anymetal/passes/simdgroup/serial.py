"""Serialised execution, one active lane after the other: atomics, and calls that were not
inlined."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anymetal.ir import (
    I8,
    I32,
    I64,
    VOID,
    Integer,
    Operand,
    Type,
    Vector,
    array,
    boolean,
    i32,
    poison,
    zero,
)
from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import Code, Value, vector_type

Each = Callable[[list[Operand]], Operand]


class Serial:
    """Writes code that runs for each lane in turn and gathers the results."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def run(
        self, kind: Type, operands: list[Value], mask: Operand | None, each: Each
    ) -> Value | None:
        """Runs `each` for every active lane, lowest first, with that lane's operands.

        It writes the instructions of one lane and gives their result.
        """
        code = self._code
        takers = [self._taker(operand) for operand in operands]
        leaves = code.types.leaves(kind) if kind is not VOID else []
        results = [code.variable(vector_type(leaf)) for leaf in leaves]
        for leaf, result in zip(leaves, results, strict=True):
            code.store(zero(vector_type(leaf)), result)
        rest = code.variable(I32)
        code.store(code.bits(mask) if mask is not None else i32(-1), rest)
        loop, body, done = code.fresh("lanes"), code.fresh("lane"), code.fresh("done")
        code.jump(loop)
        code.label(loop)
        bits = code.load(I32, rest)
        code.branch(code.icmp("eq", bits, i32(0)), done, body)
        code.label(body)
        with code.aside():
            lane = code.declared_call(I32, "llvm.cttz.i32", [bits, boolean(True)])
            self._keep(each([take(lane) for take in takers]), leaves, results, lane)
        below = code.sub(bits, i32(1))
        code.store(code.and_(bits, below), rest)
        code.jump(loop)
        code.label(done)
        if not leaves:
            return None
        values = [
            code.varying(code.load(vector_type(leaf), result))
            for leaf, result in zip(leaves, results, strict=True)
        ]
        return code.assembled(kind, iter(values))

    def unrolled(self, kind: Type, operands: list[Value], each: Each) -> Value:
        """The same for all 32 lanes, unrolled: for scalars, and where `each` is short."""
        code = self._code
        takers = [self.taker_of_lanes(operand) for operand in operands]
        result = poison(vector_type(kind))
        for lane in range(WIDTH):
            element = each([take(lane) for take in takers])
            result = code.insert_element(result, element, i32(lane))
        return code.varying(result)

    def taker_of_lanes(self, operand: Value) -> Callable[[int], Operand]:
        """Lanes read one after the other from memory, where the whole vector is put first.

        Many moves from vector registers, each followed by a write to memory, cost 20 times as much
        on an AMD EPYC. `volatile` keeps LLVM from making such moves of it.
        """
        code, kind = self._code, operand.type
        if operand.facts.is_uniform:
            scalar = code.scalar(operand)
            return lambda lane: scalar
        place = self._put(code.vector(operand))
        size = code.types.size(kind)
        return lambda lane: code.load(kind, code.moved(place, lane * size))

    def _put(self, vector: Operand) -> Operand:
        place = self._code.variable(vector.type)
        self._code.store(vector, place, is_volatile=True)
        return place

    def elements(self, vector: Operand) -> Iterator[Operand]:
        """The elements of a vector, which goes to memory now; each is read when it is asked for."""
        code, place, whole = self._code, self._put(vector), vector.type
        assert isinstance(whole, Vector)
        size = code.types.size(whole.scalar)
        places = (code.moved(place, number * size) for number in range(whole.count))
        return (code.load(whole.scalar, each) for each in places)

    def _taker(self, operand: Value) -> Callable[[Operand], Operand]:
        """How to get one lane's value; vectors are put into memory before the loop, where a lane
        is a load: of a register LLVM would write all to memory for each lane."""
        code, kind = self._code, operand.type
        if operand.facts.is_uniform:
            scalar = code.scalar(operand)
            return lambda lane: scalar
        if code.types.parts(kind):
            return self._taker_of_parts(operand)
        vector = code.vector(operand)
        if not self._is_whole(kind):
            return lambda lane: code.extract_element(vector, lane)
        place = code.variable(vector_type(kind))
        code.store(vector, place)
        return lambda lane: code.load(kind, self._lane_of(place, kind, lane))

    def _taker_of_parts(self, operand: Value) -> Callable[[Operand], Operand]:
        code = self._code
        takers = [self._taker(part) for part in code.parts_of(operand)]

        def take(lane: Operand) -> Operand:
            whole = poison(operand.type)
            for number, taker in enumerate(takers):
                whole = code.with_part(whole, number, taker(lane))
            return whole

        return take

    def _is_whole(self, kind: Type) -> bool:
        """Whether an element of a vector has bytes of its own in memory."""
        return not isinstance(kind, Integer) or kind.bits in (8, 16, 32, 64)

    def _lane_of(self, place: Operand, kind: Type, lane: Operand) -> Operand:
        code = self._code
        index = code.cast("zext", lane, I64)
        return code.gep(array(code.types.size(kind), I8), place, index)

    def _keep(
        self, value: Operand, leaves: list[Type], results: list[Operand], lane: Operand
    ) -> None:
        """Puts one lane's result into the vectors of all results."""
        if not leaves:
            return
        code = self._code
        scalars = code.leaves_of(code.uniform(value))
        for leaf, result, scalar in zip(leaves, results, scalars, strict=True):
            if self._is_whole(leaf):
                code.store(code.scalar(scalar), self._lane_of(result, leaf, lane))
                continue
            before = code.load(vector_type(leaf), result)
            code.store(code.insert_element(before, code.scalar(scalar), lane), result)
