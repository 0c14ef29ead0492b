"""Values of the vectorised code: a scalar, a scalar and an offset a lane, or a vector of 32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anymetal.ir import (
    BFLOAT,
    DOUBLE,
    FLOAT,
    HALF,
    I1,
    I8,
    I32,
    I64,
    OWN_METADATA,
    PTR,
    Block,
    Builder,
    Function,
    Layout,
    Operand,
    Parameter,
    Pointer,
    Signature,
    Type,
    Vector,
    constant,
    i64,
    poison,
    vector,
    zero,
)
from anymetal.passes.simdgroup.facts import UNIFORM, VARYING, WIDTH, ZERO, Facts

MASK = vector(WIDTH, I1)
NO_LANE, ALL_LANES = zero(MASK), constant(MASK, 1)
INVARIANT = {"invariant.load": f"{OWN_METADATA}0"}
_ANYTHING = ("poison", "undef")


def vector_type(kind: Type) -> Vector:
    return vector(WIDTH, kind)


@dataclass(frozen=True)
class Exchanged:
    """Addresses into the table where the lanes of a simdgroup leave values for each other."""

    table: Operand
    index: Operand  # of the lanes' elements, below 32


@dataclass(frozen=True)
class Picked:
    """A vector that is some elements of a longer one, and their places in it."""

    whole: Operand
    places: tuple[int, ...]


@dataclass
class Value:
    """One value in all lanes.

    `base` is a scalar: the value itself where it is uniform, what the offsets start from where it
    is a pattern. A pattern that may wrap around holds where `condition` does; `compute` then gives
    the true vector. Vectors and structures that vary have `parts`. An address that varies may be
    one in the table of what lanes have `exchanged`. Of a comparison `agreed` gives a scalar
    condition, and what the comparison is in all lanes where that holds. What was loaded together
    with others is `picked`.
    """

    type: Type
    facts: Facts
    base: Operand | None = None
    vector: Operand | None = None
    condition: Operand | None = None
    compute: Callable[[], Operand] | None = None
    parts: list[Value] | None = None
    exchanged: Exchanged | None = None
    agreed: Callable[[], tuple[Operand, bool]] | None = None
    picked: Picked | None = None

    @property
    def start(self) -> Operand:
        """The base of a uniform value or pattern."""
        assert self.base is not None, self
        return self.base


class Code(Builder):
    """Blocks being written, with fresh names; LLVM turns the variables into registers.

    `is_long`: few instructions matter more than fast ones, and the variables stay in memory.
    """

    def __init__(self, types: Layout, *, is_long: bool = False) -> None:
        super().__init__(lambda stem: f"%{self.fresh(stem)}", stem="v")
        self.types = types
        self.is_long = is_long
        self.entry = Block("entry", self.made)
        self.blocks = [self.entry]
        self.declarations: dict[str, Signature] = {}
        self.functions: dict[str, Function] = {}  # defined beside the kernel
        self.kept: dict[tuple[object, ...], Operand] = {}  # of this block: what was computed before
        self.extra_weight = 0  # of instructions that LLVM takes apart into one for each lane
        self._variables = Builder(lambda stem: f"%{self.fresh(stem)}", stem="slot")
        self._written = 0
        self._number = 0
        self._aside = 0

    # ---- blocks and variables ----------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}.{self._number}"

    def label(self, name: str) -> None:
        """What is written next stands in a new block."""
        self._written += len(self.made) + 1
        self.made = []
        self.blocks.append(Block(name, self.made))

    def finish(self) -> list[Block]:
        """All blocks; the variables stand at the start of the first."""
        self.entry.instructions[:0] = self._variables.made
        return self.blocks

    def variable(self, kind: Type, align: int = 0) -> Operand:
        return self._variables.alloca(kind, align)

    def mask_variable(self) -> Operand:
        """A mask that is empty until lanes are added."""
        variable = self.variable(MASK)
        self._variables.store(NO_LANE, variable)
        return variable

    def declared_call(
        self,
        kind: Type,
        name: str,
        arguments: Sequence[Operand],
        *,
        flags: Sequence[str] = (),
        attributes: Sequence[tuple[str, ...]] = (),
        convention: str = "",
    ) -> Operand:
        """A call of a function that the module need not know yet."""
        if name not in self.declarations:
            parameters = [Parameter(argument.type) for argument in arguments]
            self.declarations[name] = Signature(name, kind, parameters)
        return self.call(
            kind, name, arguments, flags=flags, attributes=attributes, convention=convention
        )

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Code that does not dominate what is written after it: no value keeps its results."""
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    def either(self, condition: Operand, yes: Callable[[], None], no: Callable[[], None]) -> None:
        """Two forms of the same code, chosen at run time; what they make goes into variables."""
        names = [self.fresh("quick"), self.fresh("slow"), self.fresh("done")]
        self.branch(condition, names[0], names[1])
        for name, way in zip(names, (yes, no), strict=False):
            self.label(name)
            with self.aside():
                way()
            self.jump(names[2])
        self.label(names[2])

    @property
    def is_aside(self) -> bool:
        return self._aside > 0

    @property
    def weight(self) -> int:
        """About how many instructions LLVM has to deal with."""
        return self._written + len(self.made) + self.extra_weight

    # ---- making values -----------------------------------------------------------------------

    def settled(
        self, kind: Type, facts: Facts, base: Operand, condition: Operand | None = None
    ) -> Value:
        """A uniform value or a pattern; a uniform offset goes into the base."""
        if facts.values is not None and condition is None:
            return self.known(kind, facts)
        assert facts.offsets is not None
        if facts.is_uniform and facts.offsets[0] and facts.sure:
            return Value(kind, replace(facts, offsets=ZERO), self.moved(base, facts.offsets[0]))
        return Value(kind, facts, base, condition=condition)

    def known(self, kind: Type, facts: Facts) -> Value:
        return Value(kind, facts, base=literal_operand(kind, facts.base or 0))

    def uniform(self, value: Operand) -> Value:
        return Value(value.type, UNIFORM, base=value)

    def varying(self, value: Operand) -> Value:
        """From a vector of all lanes."""
        return Value(value.type.scalar, VARYING, vector=value)

    def compound(self, kind: Type, parts: list[Value]) -> Value:
        return Value(kind, VARYING, parts=parts)

    def moved(self, base: Operand, distance: int) -> Operand:
        """A pointer or an integer, some bytes or so much further on."""
        if distance == 0:
            return base
        if isinstance(base.type, Pointer):
            return self.offset(base, distance)
        return self.add(base, constant(base.type, distance))

    # ---- taking values -----------------------------------------------------------------------

    def scalar(self, value: Value) -> Operand:
        """The value of a uniform one."""
        assert value.facts.is_uniform, value
        return value.start

    def vector(self, value: Value) -> Operand:
        """All lanes of a scalar-typed value as one vector."""
        if value.vector is not None:
            return value.vector
        vector = self._vector(value)
        if not self.is_aside:
            value.vector = vector
        return vector

    def _vector(self, value: Value) -> Operand:
        assert value.parts is None, value
        if value.compute is not None:
            return value.compute()
        kind, facts = value.type, value.facts
        if facts.values is not None and kind is not PTR:
            return lanes_operand(kind, facts.values)
        if facts.is_uniform:
            return self.splat(value.start)
        assert facts.offsets is not None
        if kind is PTR:
            return self.gep(I8, value.start, lanes_operand(I64, facts.offsets))
        return self.add(self.splat(value.start), lanes_operand(kind, facts.offsets))

    def splat(self, value: Operand) -> Operand:
        """One scalar in all lanes."""
        wide = vector_type(value.type)
        if value.text in _ANYTHING:
            return Operand(wide, value.text)
        if not value.is_name and not value.is_global:
            if value.text in ("null", "zeroinitializer"):
                return zero(wide)
            return Operand(wide, f"splat ({value})")
        first = self.insert_element(poison(wide), value, i64(0))
        return self.shuffle(first, poison(wide), ZERO)

    def picked(self, source: Operand, places: Sequence[int]) -> Operand:
        """Elements of a vector, by their places."""
        return self.shuffle(source, poison(source.type), places)

    def concatenated(self, vectors: Sequence[Operand]) -> Operand:
        """Equal vectors one behind the other; an odd number of them is filled up."""
        while len(vectors) > 1:
            kind = vectors[0].type
            assert isinstance(kind, Vector)
            if len(vectors) % 2:
                vectors = [*vectors, poison(kind)]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.shuffle(a, b, range(2 * kind.count)) for a, b in pairs]
        return vectors[0]

    def parts_of(self, value: Value) -> list[Value]:
        """The direct parts of a vector, array or structure."""
        if value.parts is not None:
            return value.parts
        whole = self.scalar(value)
        kinds = self.types.parts(value.type)
        return [self.uniform(self._part(whole, number, kind)) for number, kind in enumerate(kinds)]

    def _part(self, whole: Operand, number: int, kind: Type) -> Operand:
        if whole.text in _ANYTHING:
            return Operand(kind, whole.text)
        if whole.type.is_vector:
            return self.extract_element(whole, i64(number))
        return self.extract_value(kind, whole, number)

    def with_part(self, whole: Operand, number: int, part: Operand) -> Operand:
        """A vector, array or structure with another part."""
        if whole.type.is_vector:
            return self.insert_element(whole, part, i64(number))
        return self.insert_value(whole, part, number)

    def leaves_of(self, value: Value) -> list[Value]:
        """The scalars a value is made of."""
        if not self.types.parts(value.type):
            return [value]
        return [leaf for part in self.parts_of(value) for leaf in self.leaves_of(part)]

    def assembled(self, kind: Type, leaves: Iterator[Value]) -> Value:
        """The other way round: a compound from its scalars."""
        parts = self.types.parts(kind)
        if not parts:
            return next(leaves)
        return self.compound(kind, [self.assembled(part, leaves) for part in parts])

    # ---- masks -------------------------------------------------------------------------------

    def bits(self, mask: Operand) -> Operand:
        return self.cast("bitcast", mask, I32)

    def any(self, mask: Operand) -> Operand:
        return self.icmp("ne", self.bits(mask), constant(I32, 0))

    def both(self, mask: Operand, condition: Operand) -> Operand:
        """The lanes of a mask where the condition holds; in inactive lanes it may be anything."""
        return self.select(mask, condition, NO_LANE)

    def inverted(self, mask: Operand) -> Operand:
        return self.xor(mask, ALL_LANES)


def literal_operand(kind: Type, number: int) -> Operand:
    return zero(kind) if isinstance(kind, Pointer) else constant(kind, number)


def lanes_operand(kind: Type, numbers: Sequence[int]) -> Operand:
    """A constant vector."""
    if len(set(numbers)) == 1:
        return constant(vector(len(numbers), kind), numbers[0])
    listed = ", ".join(str(literal_operand(kind, number)) for number in numbers)
    return Operand(vector(len(numbers), kind), f"<{listed}>")


_LETTERS: dict[Type, str] = {FLOAT: "f32", DOUBLE: "f64", HALF: "f16", BFLOAT: "bf16", PTR: "p0"}


def mangled(kind: Type) -> str:
    """A type as it stands in an intrinsic's name."""
    if isinstance(kind, Vector):
        return f"v{kind.count}{mangled(kind.element)}"
    return _LETTERS.get(kind, str(kind))
