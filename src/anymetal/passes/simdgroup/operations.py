"""Arithmetic, comparisons, conversions and selects: scalar where uniform, else vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anymetal.ir import (
    BINARY,
    CASTS,
    I1,
    I8,
    I16,
    I32,
    I64,
    PTR,
    Instruction,
    Integer,
    Operand,
    Parts,
    Type,
    array,
    constant,
    i64,
    integer,
    poison,
)
from anymetal.passes.simdgroup import division, exchange, transfer
from anymetal.passes.simdgroup.facts import VARYING, ZERO, Facts, free_bits, wrap
from anymetal.passes.simdgroup.facts import constant as constant_facts
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.rules import Rules, is_bound
from anymetal.passes.simdgroup.values import Code, Exchanged, Value, mangled, vector_type

Compute = Callable[[], Operand]
Agreed = Callable[[], tuple[Operand, bool]]


class Operations:
    """Writes instructions that touch no memory."""

    def __init__(self, code: Code, rules: Rules) -> None:
        self._code = code
        self._rules = rules

    def apply(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value | None:
        """The result, or None if the instruction is not one of these."""
        opcode = instruction.opcode
        if opcode in _DIVISIONS and mask is not None:
            divisor = self._divisor(instruction, operands, mask)
            return self.binary(instruction, operands[0], divisor)
        if opcode in BINARY:
            return self.binary(instruction, operands[0], operands[1])
        if opcode in CASTS:
            return self.cast(instruction, operands[0])
        if opcode in ("icmp", "fcmp"):
            return self.compare(instruction, operands[0], operands[1])
        if opcode == "select":
            return self.select(instruction, *operands)
        if opcode in ("fneg", "freeze"):
            return self._unary(instruction, operands[0])
        if opcode == "getelementptr":
            return self.pointer(instruction, operands)
        if opcode in _PART_OPERATIONS:
            return self._parts(instruction, operands)
        if is_bound(instruction):
            return self._bounded(instruction, *operands)
        return None

    # ---- what all of them need ---------------------------------------------------------------

    def _is_compound(self, kind: Type) -> bool:
        return bool(self._code.types.parts(kind))

    def _by_part(
        self, kind: Type, operands: list[Value], each: Callable[[list[Value]], Value]
    ) -> Value:
        columns = zip(*(self._code.parts_of(operand) for operand in operands), strict=True)
        return self._code.compound(kind, [each(list(column)) for column in columns])

    def _pattern(
        self, kind: Type, facts: Facts, base: Operand, operands: list[Value], compute: Compute
    ) -> Value:
        """A uniform value or pattern that holds where its operands' conditions do."""
        conditions = dict.fromkeys(v.condition for v in operands if v.condition is not None)
        condition = self._all_of(list(conditions))
        value = self._code.settled(kind, facts, base, condition)
        if condition is not None:
            value.compute = compute
        return value

    def _all_of(self, conditions: list[Operand]) -> Operand | None:
        result = conditions[0] if conditions else None
        for condition in conditions[1:]:
            assert result is not None
            result = self._code.and_(result, condition)
        return result

    # ---- arithmetic --------------------------------------------------------------------------

    def binary(self, instruction: Instruction, left: Value, right: Value) -> Value:
        code, kind = self._code, instruction.type
        if self._is_compound(kind):
            if left.facts.is_uniform and right.facts.is_uniform:
                return code.uniform(self._scalar_binary(instruction, left, right))
            part = instruction.changed(Parts(type=kind.scalar))
            return self._by_part(kind, [left, right], lambda pair: self.binary(part, *pair))
        facts = transfer.binary(instruction, left.facts, right.facts)
        if facts.is_varying:
            return code.varying(self._vector_binary(instruction, left, right))
        if facts.values is not None:
            return code.known(kind, facts)
        if left.facts.is_uniform and right.facts.is_uniform:
            scalar = self._scalar_binary(instruction, left, right)
            return Value(kind, replace(facts, offsets=ZERO), scalar)
        base = self._base(instruction, left, right)
        return self._pattern(
            kind, facts, base, [left, right], lambda: self._vector_binary(instruction, left, right)
        )

    def _divisor(self, instruction: Instruction, operands: list[Value], mask: Operand) -> Value:
        """What to divide by, 1 in the inactive lanes of a mask.

        Those may hold anything, and processors trap at a division by 0, and of the smallest number
        by -1, even if the kernel asked before it divided.
        """
        left, right = operands
        known = right.facts.values
        if known is not None and not {0, -1} & set(known):
            return right
        unsigned = instruction.opcode in ("udiv", "urem")
        if right.facts.is_uniform and (left.facts.is_uniform or unsigned):
            return right
        return self._with_ones(right, mask)

    def _with_ones(self, value: Value, mask: Operand) -> Value:
        code = self._code
        if self._is_compound(value.type):
            parts = [self._with_ones(part, mask) for part in code.parts_of(value)]
            return code.compound(value.type, parts)
        vector = code.vector(value)
        return code.varying(code.select(mask, vector, constant(vector.type, 1)))

    def _base(self, instruction: Instruction, left: Value, right: Value) -> Operand:
        """What the offsets of a result start from."""
        code, opcode = self._code, instruction.opcode
        if opcode in ("or", "xor"):
            pattern, other = (left, right) if left.facts.is_pattern else (right, left)
            low = free_bits(pattern.facts)
            if low is None or other.facts.base is None or not other.facts.is_uniform:
                return code.add(left.start, right.start)  # no bits in common
            high = other.facts.base & -low
            if not high:
                return pattern.start
            return code.binary(opcode, pattern.start, constant(instruction.type, high))
        return code.binary(opcode, left.start, right.start)

    def _scalar_binary(self, instruction: Instruction, left: Value, right: Value) -> Operand:
        code = self._code
        a, b = code.scalar(left), code.scalar(right)
        return code.binary(instruction.opcode, a, b, instruction.flags)

    def _vector_binary(self, instruction: Instruction, left: Value, right: Value) -> Operand:
        code = self._code
        a, b = code.vector(left), code.vector(right)
        if (
            instruction.opcode in _DIVISIONS
            and right.facts.values is None
            and division.fits(a.type)
        ):
            return division.divided(code, instruction.opcode, a, b)
        return code.binary(instruction.opcode, a, b, instruction.flags)

    def _unary(self, instruction: Instruction, operand: Value) -> Value:
        code, opcode, flags = self._code, instruction.opcode, instruction.flags
        if opcode == "freeze" and operand.facts.is_pattern:
            return operand
        if operand.facts.is_uniform:
            result = code.unary(opcode, code.scalar(operand), flags)
            return Value(operand.type, replace(operand.facts, base=None), result)
        if self._is_compound(operand.type):
            return self._by_part(
                operand.type, [operand], lambda one: self._unary(instruction, one[0])
            )
        return code.varying(code.unary(opcode, code.vector(operand), flags))

    def compare(self, instruction: Instruction, left: Value, right: Value) -> Value:
        code, kind = self._code, left.type
        uniform = left.facts.is_uniform and right.facts.is_uniform
        if self._is_compound(kind) and not uniform:
            first, second = instruction.operands
            listed = (Operand(kind.scalar, first.text), Operand(kind.scalar, second.text))
            part = instruction.changed(Parts(operands=listed))
            return self._by_part(
                instruction.type, [left, right], lambda pair: self.compare(part, *pair)
            )
        if instruction.opcode == "icmp":
            facts = transfer.compare(instruction, left.facts, right.facts)
            if facts.values is not None:
                return code.known(I1, facts)
        opcode, predicate, flags = instruction.opcode, instruction.predicate, instruction.flags
        if uniform:
            a, b = code.scalar(left), code.scalar(right)
            return code.uniform(code.compare(opcode, predicate, a, b, flags))

        def compute() -> Operand:
            return code.compare(opcode, predicate, code.vector(left), code.vector(right), flags)

        agreed = self._agreed(predicate, left, right) if opcode == "icmp" else None
        if agreed is None:
            return code.varying(compute())
        return Value(I1, VARYING, compute=compute, agreed=agreed)

    def _agreed(self, predicate: str, left: Value, right: Value) -> Agreed | None:
        """How to see from scalars that all lanes are below a bound, or none is beyond it.

        In 64 bits nothing wraps around: where the highest lane's value is within the bound, none
        of the lanes has wrapped.
        """
        code = self._code
        if left.facts.is_uniform:
            left, right, predicate = right, left, _TURNED.get(predicate, predicate)
        facts, kind = left.facts, left.type
        if predicate not in _WITHIN or facts.offsets is None or not right.facts.is_uniform:
            return None
        if not isinstance(kind, Integer) or kind.bits > _WORD_BITS or left.condition is not None:
            return None
        if min(facts.offsets) < 0 or not facts.sure:
            return None
        highest, extend = max(facts.offsets), "sext" if predicate[0] == "s" else "zext"
        within, truth = _WITHIN[predicate]

        def agreed() -> tuple[Operand, bool]:
            first, bound = (code.cast(extend, v.start, I64) for v in (left, right))
            return code.icmp(within, code.add(first, i64(highest)), bound), truth

        return agreed

    def _bounded(self, instruction: Instruction, left: Value, right: Value) -> Value | None:
        """A pattern held at a bound: still one where no lane is beyond it."""
        code, kind, callee = self._code, instruction.type, instruction.callee or ""
        facts = transfer.bounded(instruction, left.facts, right.facts)
        if not facts.is_pattern:
            return None
        pattern, bound = (right, left) if left.facts.is_uniform else (left, right)
        within = self._within(callee, pattern, code.scalar(bound))
        conditions = [within] if pattern.condition is None else [pattern.condition, within]

        def compute() -> Operand:
            wide = vector_type(kind)
            name = f"{callee.rpartition('.')[0]}.{mangled(wide)}"
            return code.declared_call(wide, name, [code.vector(left), code.vector(right)])

        condition = self._all_of(conditions)
        return Value(kind, facts, pattern.start, condition=condition, compute=compute)

    def _within(self, callee: str, pattern: Value, bound: Operand) -> Operand:
        """Whether all lanes are within a bound, and none has wrapped around.

        No offset is negative: so the base must be small enough, and for a bound from below not
        less than that.
        """
        code, kind, first = self._code, bound.type, pattern.start
        assert isinstance(kind, Integer) and pattern.facts.offsets is not None
        sign, highest, width = callee[len("llvm.")], max(pattern.facts.offsets), kind.bits
        lowest = 0 if sign == "u" else -(1 << (width - 1))
        if "max" in callee:
            top = constant(kind, wrap(lowest + (1 << width) - 1 - highest, width))
            last, other = top, code.icmp(f"{sign}ge", first, bound)
        else:
            last = code.sub(bound, constant(kind, highest))
            other = code.icmp(f"{sign}ge", bound, constant(kind, lowest + highest))
        return code.and_(other, code.icmp(f"{sign}le", first, last))

    def select(self, instruction: Instruction, condition: Value, yes: Value, no: Value) -> Value:
        code, kind, flags = self._code, yes.type, instruction.flags
        known = condition.facts.values
        if known is not None and (all(known) or not any(known)):
            return yes if all(known) else no
        uniform = all(value.facts.is_uniform for value in (condition, yes, no))
        if self._is_compound(kind) and not uniform:
            return self._select_parts(instruction, condition, yes, no)
        if uniform:
            chooser, a, b = (code.scalar(value) for value in (condition, yes, no))
            return code.uniform(code.select(chooser, a, b, flags))
        facts = transfer.select(condition.facts, yes.facts, no.facts)
        if facts.is_pattern and facts.values is None and condition.facts.is_uniform:
            chosen = code.select(code.scalar(condition), yes.start, no.start)
            return code.settled(kind, facts, chosen)
        if facts.values is not None:
            return code.known(kind, facts)
        a, b = code.vector(yes), code.vector(no)
        take = code.scalar if condition.facts.is_uniform else code.vector
        return code.varying(code.select(take(condition), a, b, flags))

    def _select_parts(
        self, instruction: Instruction, condition: Value, yes: Value, no: Value
    ) -> Value:
        if self._is_compound(condition.type):
            three = [condition, yes, no]
            return self._by_part(yes.type, three, lambda part: self.select(instruction, *part))
        return self._by_part(
            yes.type, [yes, no], lambda pair: self.select(instruction, condition, *pair)
        )

    # ---- conversions -------------------------------------------------------------------------

    def cast(self, instruction: Instruction, source: Value) -> Value:
        code, before, after = self._code, source.type, instruction.type
        opcode, flags = instruction.opcode, instruction.flags
        if source.facts.is_uniform:
            facts = transfer.cast(instruction, source.facts, before)
            if facts.values is not None and before is not PTR and after is not PTR:
                return code.known(after, facts)
            return Value(after, facts, code.cast(opcode, code.scalar(source), after, flags))
        if self._is_compound(before) or self._is_compound(after):
            return self._compound_cast(instruction, source)
        facts = transfer.cast(instruction, source.facts, before)

        def compute() -> Operand:
            return code.cast(opcode, code.vector(source), vector_type(after), flags)

        if facts.is_varying:
            return code.varying(compute())
        if facts.values is not None:
            return code.known(after, facts)
        if opcode in ("zext", "sext") and not self._is_exact(opcode, source):
            return self._extended(instruction, source, facts, compute)
        base = code.cast(opcode, source.start, after)
        return self._pattern(after, facts, base, [source], compute)

    @staticmethod
    def _is_exact(opcode: str, source: Value) -> bool:
        assert isinstance(source.type, Integer)
        return transfer.is_exact(opcode, source.facts, source.type.bits)

    def _extended(
        self, instruction: Instruction, source: Value, facts: Facts, compute: Compute
    ) -> Value:
        """A pattern made wider: still one where no lane wraps around in the narrow type.

        `nneg` says nothing here: it may not hold in lanes that do not use the result.
        """
        code, after, opcode = self._code, instruction.type, instruction.opcode
        base = code.cast(opcode, source.start, after)
        offsets = facts.offsets
        assert offsets is not None and isinstance(source.type, Integer)
        width = source.type.bits
        lowest, spread = min(offsets), max(offsets) - min(offsets)
        if opcode == "sext":
            lowest += 1 << (width - 1)
        long = base if after is I64 else code.cast(opcode, source.start, I64)
        start = code.add(long, i64(lowest))
        fits = code.icmp("ult", start, i64((1 << width) - spread))
        conditions = [fits] if source.condition is None else [source.condition, fits]
        return Value(after, facts, base, condition=self._all_of(conditions), compute=compute)

    def _compound_cast(self, instruction: Instruction, source: Value) -> Value:
        code = self._code
        before, after = code.types.parts(source.type), code.types.parts(instruction.type)
        same_count = len(before) == len(after)
        if instruction.opcode != "bitcast" or same_count:
            if not same_count:
                raise NotVectorisable(f"conversion of {source.type} to {instruction.type}")
            part = instruction.changed(Parts(type=after[0]))
            return self._by_part(instruction.type, [source], lambda one: self.cast(part, one[0]))
        return self._rebuilt(source, instruction.type)

    def _rebuilt(self, source: Value, kind: Type) -> Value:
        """The same bits cut into other pieces, through an integer as wide as all of them."""
        code = self._code
        kinds = code.types.leaves(kind)
        wide = vector_type(integer(sum(map(code.types.bits, kinds))))
        word, position = self._joined(code.leaves_of(source), wide), 0
        leaves = []
        for leaf in kinds:
            bits, piece = code.types.bits(leaf), word
            if position:
                piece = code.lshr(piece, constant(wide, position))
            narrow = vector_type(integer(bits))
            if narrow is not wide:
                piece = code.cast("trunc", piece, narrow)
            leaves.append(code.varying(self._from_integer(piece, leaf)))
            position += bits
        return code.assembled(kind, iter(leaves))

    def _joined(self, leaves: list[Value], wide: Type) -> Operand:
        """The bits of scalars side by side, the first one's lowest."""
        code = self._code
        word: Operand | None = None
        position = 0
        for leaf in leaves:
            piece = self._as_integer(leaf)
            if piece.type is not wide:
                piece = code.cast("zext", piece, wide)
            if position:
                piece = code.shl(piece, constant(wide, position))
            word = code.or_(word, piece) if word is not None else piece
            position += code.types.bits(leaf.type)
        assert word is not None
        return word

    def _as_integer(self, leaf: Value) -> Operand:
        code = self._code
        vector = code.vector(leaf)
        if leaf.type.is_integer:
            return vector
        opcode = "ptrtoint" if leaf.type is PTR else "bitcast"
        return code.cast(opcode, vector, vector_type(integer(code.types.bits(leaf.type))))

    def _from_integer(self, word: Operand, kind: Type) -> Operand:
        if kind.is_integer:
            return word
        return self._code.cast("inttoptr" if kind is PTR else "bitcast", word, vector_type(kind))

    # ---- addresses ---------------------------------------------------------------------------

    def pointer(self, instruction: Instruction, operands: list[Value]) -> Value:
        if instruction.type is not PTR:
            raise NotVectorisable("a vector of addresses in the kernel's own code")
        result = operands[0]
        named = {id(o): value for o, value in zip(instruction.operands, operands, strict=True)}
        for index, size in self._rules.steps(instruction):
            value = named.get(id(index)) or self._code.known(I64, constant_facts(int(index.text)))
            result = self._moved(result, value, size)
        return result

    def _moved(self, pointer: Value, index: Value, size: int) -> Value:
        code = self._code
        if index.type is not I64:
            index = self.cast(_TO_I64, index)
        step = self._rules.stride(pointer.facts, size)
        facts = self._rules.step(pointer.facts, index.facts, size)

        def compute() -> Operand:
            base, distance = code.vector(pointer), code.vector(index)
            if step != 1:
                distance = code.mul(distance, constant(distance.type, step))
            return code.gep(I8, base, distance)

        if facts.is_varying:
            exchanged = None
            if pointer.facts.is_uniform and exchange.is_table(pointer.facts, size):
                exchanged = Exchanged(code.scalar(pointer), code.vector(index))
            vector = self._varying_pointer(pointer, index, step, compute)
            return Value(PTR, facts, vector=vector, exchanged=exchanged)
        base = pointer.start
        if index.facts.base is None:
            distance = index.start
            if step != 1:
                distance = code.mul(distance, i64(step))
            base = code.gep(I8, base, distance)
        return self._pattern(PTR, facts, base, [pointer, index], compute)

    def _varying_pointer(
        self, pointer: Value, index: Value, step: int, compute: Compute
    ) -> Operand:
        """A scalar base and a vector of indices suits gathers best."""
        code = self._code
        if not pointer.facts.is_uniform:
            return compute()
        element = _ELEMENTS.get(step) or array(step, I8)
        return code.gep(element, code.scalar(pointer), code.vector(index))

    # ---- parts of vectors and structures -----------------------------------------------------

    def _parts(self, instruction: Instruction, operands: list[Value]) -> Value:
        code, opcode = self._code, instruction.opcode
        if all(operand.facts.is_uniform for operand in operands):
            given = tuple(code.scalar(operand) for operand in operands)
            parts = Parts(operands=given, numbers=instruction.numbers)
            return code.uniform(code.value(opcode, instruction.type, "", parts))
        if opcode == "extractvalue":
            value = operands[0]
            for number in instruction.numbers:
                value = code.parts_of(value)[number]
            return value
        if opcode == "insertvalue":
            return self._with_part(operands[0], instruction.numbers, operands[1])
        if opcode == "shufflevector":
            both = [*code.parts_of(operands[0]), *code.parts_of(operands[1])]
            anything = code.uniform(poison(instruction.type.scalar))
            chosen = [both[n] if n >= 0 else anything for n in instruction.numbers]
            return code.compound(instruction.type, chosen)
        if opcode == "extractelement":
            return self._element(operands[0], operands[1])
        return self._with_element(*operands)

    def _with_part(self, aggregate: Value, numbers: tuple[int, ...], part: Value) -> Value:
        parts = list(self._code.parts_of(aggregate))
        if len(numbers) > 1:
            part = self._with_part(parts[numbers[0]], numbers[1:], part)
        parts[numbers[0]] = part
        return self._code.compound(aggregate.type, parts)

    def _element(self, vector: Value, index: Value) -> Value:
        parts = self._code.parts_of(vector)
        values = index.facts.values
        if values is not None and index.facts.is_uniform:
            return parts[values[0]]
        result = parts[0]
        for number, part in enumerate(parts[1:], 1):
            result = self.select(_SELECT, self._equals(index, number), part, result)
        return result

    def _with_element(self, vector: Value, element: Value, index: Value) -> Value:
        parts = list(self._code.parts_of(vector))
        values = index.facts.values
        if values is not None and index.facts.is_uniform:
            parts[values[0]] = element
        else:
            parts = [
                self.select(_SELECT, self._equals(index, number), element, part)
                for number, part in enumerate(parts)
            ]
        return self._code.compound(vector.type, parts)

    def _equals(self, index: Value, number: int) -> Value:
        operands = (Operand(index.type, ""), constant(index.type, number))
        instruction = Instruction.of(
            "icmp", None, Parts(type=I1, predicate="eq", operands=operands)
        )
        return self.compare(
            instruction, index, self._code.known(index.type, constant_facts(number))
        )


_WORD_BITS = 32
_TURNED = {
    f"{sign}{before}": f"{sign}{after}"
    for sign in "us"
    for before, after in (("lt", "gt"), ("le", "ge"), ("gt", "lt"), ("ge", "le"))
}
# By predicate: how the highest lane compares where all lanes agree, and on what.
_WITHIN = {
    f"{sign}{predicate}": (f"{sign}{within}", truth)
    for sign in "us"
    for predicate, within, truth in (
        ("lt", "lt", True),
        ("le", "le", True),
        ("gt", "le", False),
        ("ge", "lt", False),
    )
}
_SELECT = Instruction.of("select", None, Parts())
_TO_I64 = Instruction.of("sext", None, Parts(type=I64))
_ELEMENTS: dict[int, Type] = {1: I8, 2: I16, 4: I32, 8: I64}
_DIVISIONS = frozenset(("udiv", "sdiv", "urem", "srem"))
_PART_OPERATIONS = frozenset(
    ("extractvalue", "insertvalue", "shufflevector", "extractelement", "insertelement")
)
