"""Values of the vectorised code: a scalar, a scalar and an offset a lane, or a vector of 32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anymetal.passes.simdgroup.facts import UNIFORM, VARYING, WIDTH, ZERO, Facts
from anymetal.passes.simdgroup.kernel import Types

MASK = f"<{WIDTH} x i1>"


def vector_type(kind: str) -> str:
    return f"<{WIDTH} x {kind}>"


@dataclass
class Value:
    """One value in all lanes.

    `base` is a scalar: the value itself where it is uniform, what the offsets start from where it
    is a pattern. A pattern that may wrap around holds where `condition` does; `compute` then gives
    the true vector. Vectors and structures that vary have `parts`.
    """

    kind: str
    facts: Facts
    base: str = ""
    vector: str = ""
    condition: str = ""
    compute: Callable[[], str] | None = None
    parts: list[Value] | None = None


class Code:
    """Instructions being written, with fresh names; LLVM turns the variables into registers."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.declarations: set[str] = set()
        self.functions: dict[str, str] = {}  # defined beside the kernel
        self.kept: dict[str, str] = {}  # of this block: what was computed before, by its text
        self.extra_weight = 0  # of instructions that LLVM takes apart into one for each lane
        self._number = 0
        self._aside = 0

    # ---- text --------------------------------------------------------------------------------

    def fresh(self, prefix: str = "v") -> str:
        self._number += 1
        return f"{prefix}.{self._number}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def op(self, text: str) -> str:
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def jump(self, name: str) -> None:
        self.line(f"br label %{name}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def variable(self, kind: str, align: int = 0) -> str:
        name = "%" + self.fresh("slot")
        suffix = f", align {align}" if align else ""
        self.variables.append(f"  {name} = alloca {kind}{suffix}")
        return name

    def load(self, kind: str, variable: str) -> str:
        return self.op(f"load {kind}, ptr {variable}")

    def store(self, kind: str, text: str, variable: str) -> None:
        self.line(f"store {kind} {text}, ptr {variable}")

    def call(
        self,
        kind: str,
        name: str,
        arguments: Sequence[tuple[str, str]],
        flags: str = "",
        attributes: Sequence[str] = (),
    ) -> str:
        """`flags` go before the type, `attributes` are what each argument's type is marked with."""
        parameters = ", ".join(kind for kind, _ in arguments)
        self.declarations.add(f"declare {kind} @{name}({parameters})")
        marks = attributes or [""] * len(arguments)
        listed = ", ".join(
            f"{kind} {mark} {text}" if mark else f"{kind} {text}"
            for (kind, text), mark in zip(arguments, marks, strict=True)
        )
        prefix = f"call {flags + ' ' if flags else ''}{kind} @{name}({listed})"
        if kind == "void":
            self.line(prefix)
            return ""
        return self.op(prefix)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Code that does not come before what is written next: its results are not kept."""
        self._aside += 1
        try:
            yield
        finally:
            self._aside -= 1

    @property
    def is_aside(self) -> bool:
        return self._aside > 0

    @property
    def weight(self) -> int:
        """About how many instructions LLVM has to deal with."""
        return len(self.lines) + self.extra_weight

    # ---- making values -----------------------------------------------------------------------

    def settled(self, kind: str, facts: Facts, base: str, condition: str = "") -> Value:
        """A uniform value or a pattern; a uniform offset goes into the base."""
        if facts.values is not None and not condition:
            return self.known(kind, facts)
        assert facts.offsets is not None
        if facts.is_uniform and facts.offsets[0] and facts.sure:
            return Value(
                kind, replace(facts, offsets=ZERO), self.moved(kind, base, facts.offsets[0])
            )
        return Value(kind, facts, base, condition=condition)

    def known(self, kind: str, facts: Facts) -> Value:
        return Value(kind, facts, base=_literal(kind, facts.base or 0))

    def uniform(self, kind: str, text: str) -> Value:
        return Value(kind, UNIFORM, base=text)

    def varying(self, kind: str, text: str) -> Value:
        return Value(kind, VARYING, vector=text)

    def compound(self, kind: str, parts: list[Value]) -> Value:
        return Value(kind, VARYING, parts=parts)

    def moved(self, kind: str, base: str, distance: int) -> str:
        if distance == 0:
            return base
        if kind == "ptr":
            return self.op(f"getelementptr i8, ptr {base}, i64 {distance}")
        return self.op(f"add {kind} {base}, {distance}")

    # ---- taking values -----------------------------------------------------------------------

    def scalar(self, value: Value) -> str:
        """The value of a uniform one."""
        assert value.facts.is_uniform, value
        return value.base

    def vector(self, value: Value) -> str:
        """All lanes of a scalar-typed value as one vector."""
        if value.vector:
            return value.vector
        text = self._vector(value)
        if not self.is_aside:
            value.vector = text
        return text

    def _vector(self, value: Value) -> str:
        assert value.parts is None, value
        if value.compute is not None:
            return value.compute()
        kind, facts = value.kind, value.facts
        if facts.values is not None and kind != "ptr":
            return lanes_text(kind, facts.values)
        if facts.is_uniform:
            return self.splat(kind, value.base)
        assert facts.offsets is not None
        offsets = lanes_text("i64" if kind == "ptr" else kind, facts.offsets)
        if kind == "ptr":
            return self.op(f"getelementptr i8, ptr {value.base}, <{WIDTH} x i64> {offsets}")
        base = self.splat(kind, value.base)
        return self.op(f"add {vector_type(kind)} {base}, {offsets}")

    def splat(self, kind: str, text: str) -> str:
        if text in ("poison", "undef"):
            return text
        if not text.startswith(("%", "@")):
            if text in ("null", "zeroinitializer"):
                return "zeroinitializer"
            return f"splat ({kind} {text})"
        wide = vector_type(kind)
        first = self.op(f"insertelement {wide} poison, {kind} {text}, i64 0")
        return self.op(
            f"shufflevector {wide} {first}, {wide} poison, <{WIDTH} x i32> zeroinitializer"
        )

    def shuffled(
        self, kind: str, count: int, first: str, second: str, places: Sequence[int]
    ) -> str:
        """Elements of two vectors of `count`, by their places in both one behind the other."""
        part, listed = f"<{count} x {kind}>", ", ".join(f"i32 {place}" for place in places)
        return self.op(
            f"shufflevector {part} {first}, {part} {second}, <{len(places)} x i32> <{listed}>"
        )

    def concatenated(self, texts: Sequence[str], kind: str, count: int) -> tuple[str, int]:
        """Vectors of `count` one behind the other; an odd number of them is filled up."""
        while len(texts) > 1:
            if len(texts) % 2:
                texts = [*texts, "poison"]
            pairs = zip(texts[::2], texts[1::2], strict=True)
            texts = [self.shuffled(kind, count, a, b, range(2 * count)) for a, b in pairs]
            count *= 2
        return texts[0], count

    def parts_of(self, value: Value) -> list[Value]:
        """The direct parts of a vector, array or structure."""
        if value.parts is not None:
            return value.parts
        kinds = self.types.parts(value.kind)
        text = self.scalar(value)
        is_vector = value.kind.startswith("<") and not value.kind.startswith("<{")
        parts = []
        for number, kind in enumerate(kinds):
            if text in ("poison", "undef"):
                part = text
            elif is_vector:
                part = self.op(f"extractelement {value.kind} {text}, i64 {number}")
            else:
                part = self.op(f"extractvalue {value.kind} {text}, {number}")
            parts.append(self.uniform(kind, part))
        return parts

    def leaves_of(self, value: Value) -> list[Value]:
        """The scalars a value is made of."""
        if not self.types.parts(value.kind):
            return [value]
        return [leaf for part in self.parts_of(value) for leaf in self.leaves_of(part)]

    def assembled(self, kind: str, leaves: Iterator[Value]) -> Value:
        """The other way round: a compound from its scalars."""
        parts = self.types.parts(kind)
        if not parts:
            return next(leaves)
        return self.compound(kind, [self.assembled(part, leaves) for part in parts])

    # ---- masks -------------------------------------------------------------------------------

    def bits(self, mask: str) -> str:
        return self.op(f"bitcast {MASK} {mask} to i32")

    def any(self, mask: str) -> str:
        return self.op(f"icmp ne i32 {self.bits(mask)}, 0")

    def both(self, mask: str, condition: str) -> str:
        """Lanes of the mask where the condition holds; what inactive lanes hold does not matter."""
        return self.op(f"select {MASK} {mask}, {MASK} {condition}, {MASK} zeroinitializer")

    def inverted(self, mask: str) -> str:
        return self.op(f"xor {MASK} {mask}, splat (i1 true)")


def _literal(kind: str, number: int) -> str:
    if kind == "i1":
        return "true" if number else "false"
    if kind == "ptr":
        return "null"
    return str(number)


def lanes_text(kind: str, numbers: Sequence[int]) -> str:
    """A constant vector."""
    if len(set(numbers)) == 1:
        return f"splat ({kind} {_literal(kind, numbers[0])})"
    return "<" + ", ".join(f"{kind} {_literal(kind, number)}" for number in numbers) + ">"


__all__ = ["MASK", "Code", "Value", "lanes_text", "vector_type"]
