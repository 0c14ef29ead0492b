"""Loads and stores at any places, in functions beside the kernel: a call is all they take inside.

They serve where lanes do not lie as their pattern says (an index has wrapped around, or was held
at the end of a row), and elements below 4 bytes in masked copies, which no processor gathers: LLVM
would write a load or a store for each lane. All of it hardly ever runs, and is most of the code if
it is written where it is used.

In the long form of a kernel such elements have functions also where all lanes are there.
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from anymetal.ir import (
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    Operand,
    Parameter,
    Signature,
    Type,
    Vector,
    boolean,
    i32,
    i64,
    integer,
    poison,
    vector,
    zero,
)
from anymetal.passes.simdgroup.facts import WIDTH, ZERO
from anymetal.passes.simdgroup.values import ALL_LANES, MASK, Code, mangled, vector_type

# On x86, vectors in registers, as many as there are; elsewhere the usual convention does that.
IN_REGISTERS = "x86_regcallcc" if platform.machine() in ("x86_64", "AMD64") else "ccc"

_WORDS = (4, 8)  # bytes of elements that processors gather and scatter
_PLACES = vector_type(PTR)


def loaded(
    code: Code, kind: Type, count: int, places: Operand, mask: Operand | None, align: int
) -> Operand:
    """The `count` scalars that each lane's address leads to, lane after lane.

    Nothing is known of what lanes get that are not in the mask (None: all are).
    """
    unit = _unit(code, kind, count)
    name = f"am.load.{mangled(unit)}.{align}"
    if name not in code.functions:
        code.functions[name] = _Loading(code, unit, align).define(name)
    arguments = [places, _lanes(code, mask)]
    result = code.call(_side_by_side(unit), name, arguments, convention=IN_REGISTERS)
    wanted = vector(WIDTH * count, kind)
    return result if result.type is wanted else code.cast("bitcast", result, wanted)


def store(
    code: Code, count: int, values: Operand, places: Operand, mask: Operand | None, align: int
) -> None:
    """Lowest lane first: where two write to one place, the higher one's value stays."""
    unit = _unit(code, values.type.scalar, count)
    name = f"am.store.{mangled(unit)}.{align}"
    if name not in code.functions:
        code.functions[name] = _Storing(code, unit, align).define(name)
    plain = _side_by_side(unit)
    if values.type is not plain:
        values = code.cast("bitcast", values, plain)
    arguments = [values, places, _lanes(code, mask)]
    code.call(VOID, name, arguments, convention=IN_REGISTERS)


def gathered(code: Code, kind: Type, places: Operand, align: int) -> Operand:
    """The elements at all lanes' addresses."""
    unit = _unit(code, kind, 1)
    name = f"am.gather.{mangled(unit)}.{align}"
    if name not in code.functions:
        code.functions[name] = _Loading(code, unit, align).define_for_all(name)
    result = code.call(_side_by_side(unit), name, [places], convention=IN_REGISTERS)
    wanted = vector_type(kind)
    return result if result.type is wanted else code.cast("bitcast", result, wanted)


def scatter(code: Code, values: Operand, places: Operand, align: int) -> None:
    """All lanes' elements to their addresses, lowest lane first."""
    unit = _unit(code, values.type.scalar, 1)
    name = f"am.scatter.{mangled(unit)}.{align}"
    if name not in code.functions:
        code.functions[name] = _Storing(code, unit, align).define_for_all(name)
    plain = _side_by_side(unit)
    if values.type is not plain:
        values = code.cast("bitcast", values, plain)
    code.call(VOID, name, [values, places], convention=IN_REGISTERS)


def _unit(code: Code, kind: Type, count: int) -> Type:
    """What a lane has; integers, for half and bfloat are not passed alike on all processors."""
    plain = kind if kind is PTR else integer(8 * code.types.size(kind))
    return plain if count == 1 else vector(count, plain)


def _lanes(code: Code, mask: Operand | None) -> Operand:
    return i32(-1) if mask is None else code.bits(mask)


def _taken_apart(unit: Type) -> tuple[int, Type]:
    return (unit.count, unit.element) if isinstance(unit, Vector) else (1, unit)


def _side_by_side(unit: Type) -> Vector:
    """What all lanes have, as it lies in memory."""
    count, element = _taken_apart(unit)
    return vector(WIDTH * count, element)


class _Outlined(Builder):
    """One of the functions being written, block by block."""

    def __init__(self, code: Code, unit: Type, align: int) -> None:
        self._function = Function(Signature("", VOID, []))
        super().__init__(self._function.fresh, stem="v")
        self._code = code
        self._unit = unit
        self._align = align
        self._all = _side_by_side(unit)
        self._places, self._lanes = Operand(_PLACES, "%places"), Operand(I32, "%lanes")
        self._label("entry")

    def _label(self, name: str) -> None:
        self.made = []
        self._function.blocks.append(Block(name, self.made))

    def _defined(
        self, name: str, kind: Type, given: list[Operand], attributes: tuple[str, ...] = ("cold",)
    ) -> Function:
        self._function.signature = Signature(
            name,
            kind,
            [Parameter(operand.type, operand.text) for operand in given],
            words=("internal", IN_REGISTERS),
            attributes=("noinline", *attributes, "nounwind"),
        )
        return self._function

    @property
    def _is_word(self) -> bool:
        """Whether processors gather and scatter it."""
        return not self._unit.is_vector and self._code.types.size(self._unit) in _WORDS

    def _intrinsic(
        self, kind: Type, name: str, arguments: list[Operand], aligned: int = -1
    ) -> Operand:
        """A call of one; the address among its arguments may be `aligned`."""
        parameters = [Parameter(argument.type) for argument in arguments]
        self._code.declarations[name] = Signature(name, kind, parameters)
        numbers = range(len(arguments))
        given = [(f"align {self._align}",) if number == aligned else () for number in numbers]
        return self.call(kind, name, arguments, attributes=given)

    def _masked(self, what: str) -> str:
        return f"llvm.masked.{what}.{mangled(self._all)}.v{WIDTH}p0"

    def _first(self, lanes: Operand) -> Operand:
        """The lowest of some lanes."""
        first = self._intrinsic(I32, "llvm.cttz.i32", [lanes, boolean(True)])
        return self.cast("zext", first, I64)

    def _for_each_lane(self, listed: Operand, do: Callable[[Operand, Operand], None]) -> None:
        """A loop that begins in block `several` and ends in block `done`."""
        self.store(self._places, listed)
        self.jump("lane")
        self._label("lane")
        rest = Operand(I32, "%rest")
        left = self.phi(I32, [(self._lanes, "several"), (rest, "lane")])
        lane = self._first(left)
        do(lane, self.load(PTR, self.gep(PTR, listed, lane)))
        self.and_(left, self.sub(left, i32(1)), name=rest.text)
        self.branch(self.icmp("eq", rest, i32(0)), "done", "lane")
        self._label("done")

    def _own(self, variable: Operand, lane: Operand) -> Operand:
        return self.gep(self._unit, variable, lane)

    @property
    def _natural(self) -> int:
        return self._code.types.size(self._unit.scalar)


class _Loading(_Outlined):
    def define(self, name: str) -> Function:
        """Where all lanes share a place, as at the end of a row, it is read once."""
        listed, values = self.alloca(_PLACES), self.alloca(self._all)
        self.branch(self.icmp("eq", self._lanes, i32(0)), "none", "some")
        self._label("none")
        self.ret(zero(self._all))
        self._label("some")
        first = self.extract_element(self._places, self._first(self._lanes))
        start = self.insert_element(poison(_PLACES), first, i64(0))
        other = self.icmp("ne", self._places, self.shuffle(start, poison(_PLACES), ZERO))
        apart = self.and_(self.cast("bitcast", other, I32), self._lanes)
        self.branch(self.icmp("eq", apart, i32(0)), "one", "several")
        self._label("one")
        self.ret(self._repeated(self.load(self._unit, first, self._align)))
        self._label("several")
        if self._is_word:
            self.ret(self._gathered(self.cast("bitcast", self._lanes, MASK)))
        else:
            self.ret(self._collected(listed, values))
        return self._defined(name, self._all, [self._places, self._lanes])

    def define_for_all(self, name: str) -> Function:
        self.ret(self._gathered(ALL_LANES))
        return self._defined(name, self._all, [self._places], ())

    def _repeated(self, unit: Operand) -> Operand:
        count, element = _taken_apart(self._unit)
        if not unit.type.is_vector:
            unit = self.insert_element(poison(vector(1, element)), unit, i64(0))
        return self.shuffle(unit, poison(unit.type), [*range(count)] * WIDTH)

    def _collected(self, listed: Operand, values: Operand) -> Operand:
        def take(lane: Operand, place: Operand) -> None:
            value = self.load(self._unit, place, self._align)
            self.store(value, self._own(values, lane), self._natural)

        self._for_each_lane(listed, take)
        return self.load(self._all, values)

    def _gathered(self, mask: Operand) -> Operand:
        arguments = [self._places, mask, zero(self._all)]
        return self._intrinsic(self._all, self._masked("gather"), arguments, aligned=0)


class _Storing(_Outlined):
    def define(self, name: str) -> Function:
        given = Operand(self._all, "%values")
        listed, values = self.alloca(_PLACES), self.alloca(self._all)
        self.branch(self.icmp("eq", self._lanes, i32(0)), "done", "several")
        self._label("several")
        if self._is_word:
            self._scatter(given, self.cast("bitcast", self._lanes, MASK))
            self.jump("done")
            self._label("done")
        else:
            self._distribute(given, listed, values)
        self.ret()
        return self._defined(name, VOID, [given, self._places, self._lanes])

    def define_for_all(self, name: str) -> Function:
        given = Operand(self._all, "%values")
        self._scatter(given, ALL_LANES)
        self.ret()
        return self._defined(name, VOID, [given, self._places], ())

    def _distribute(self, given: Operand, listed: Operand, values: Operand) -> None:
        def leave(lane: Operand, place: Operand) -> None:
            value = self.load(self._unit, self._own(values, lane), self._natural)
            self.store(value, place, self._align)

        self.store(given, values)
        self._for_each_lane(listed, leave)

    def _scatter(self, given: Operand, mask: Operand) -> None:
        arguments = [given, self._places, mask]
        self._intrinsic(VOID, self._masked("scatter"), arguments, aligned=1)
