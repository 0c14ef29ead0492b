"""Arithmetic, comparisons, conversions and choices on values, in as few lanes as they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anymetal.passes.operands import BINARY_OPCODES, CAST_OPCODES, Operand, Parsed, boolean_like
from anymetal.passes.simdgroup import facts as lanes
from anymetal.passes.simdgroup.facts import Facts
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.rules import Rules
from anymetal.passes.simdgroup.values import MASK, Code, Value, vector_type


class Operations:
    """Writes instructions that touch no memory."""

    def __init__(self, code: Code, rules: Rules) -> None:
        self._code = code
        self._rules = rules

    def apply(self, parsed: Parsed, operands: list[Value], mask: str | None) -> Value | None:
        """The result, or None if the instruction is not one of these."""
        opcode = parsed.opcode
        if opcode in _DIVISIONS and mask is not None:
            return self.binary(parsed, operands[0], self._divisor(parsed, operands, mask))
        if opcode in BINARY_OPCODES:
            return self.binary(parsed, operands[0], operands[1])
        if opcode in CAST_OPCODES:
            return self.cast(parsed, operands[0])
        if opcode in ("icmp", "fcmp"):
            return self.compare(parsed, operands[0], operands[1])
        if opcode == "select":
            return self.select(parsed, *operands)
        if opcode in ("fneg", "freeze"):
            return self._unary(parsed, operands[0])
        if opcode == "getelementptr":
            return self.pointer(parsed, operands)
        if opcode in _PART_OPERATIONS:
            return self._parts(parsed, operands)
        return None

    # ---- helpers -----------------------------------------------------------------------------

    def _is_compound(self, kind: str) -> bool:
        return bool(self._code.types.parts(kind))

    def _by_part(
        self, kind: str, operands: list[Value], each: Callable[[list[Value]], Value]
    ) -> Value:
        columns = zip(*(self._code.parts_of(operand) for operand in operands), strict=True)
        return self._code.compound(kind, [each(list(column)) for column in columns])

    def _pattern(
        self, kind: str, facts: Facts, base: str, operands: list[Value], compute: Callable[[], str]
    ) -> Value:
        """A uniform value or pattern that holds where its operands' conditions do."""
        conditions = list(dict.fromkeys(v.condition for v in operands if v.condition))
        condition = self._all_of(conditions)
        value = self._code.settled(kind, facts, base, condition)
        if condition:
            value.compute = compute
        return value

    def _all_of(self, conditions: list[str]) -> str:
        result = conditions[0] if conditions else ""
        for condition in conditions[1:]:
            result = self._code.op(f"and i1 {result}, {condition}")
        return result

    # ---- arithmetic --------------------------------------------------------------------------

    def binary(self, parsed: Parsed, left: Value, right: Value) -> Value:
        code, kind = self._code, parsed.kind
        if self._is_compound(kind):
            if left.facts.is_uniform and right.facts.is_uniform:
                return self._scalar_binary(parsed, left, right)
            part_kind = code.types.parts(kind)[0]
            part = replace(parsed, kind=part_kind)
            return self._by_part(kind, [left, right], lambda pair: self.binary(part, *pair))
        facts = lanes.binary(parsed, left.facts, right.facts)
        if facts.is_varying:
            return code.varying(kind, self._vector_binary(parsed, left, right))
        if facts.values is not None:
            return code.known(kind, facts)
        if left.facts.is_uniform and right.facts.is_uniform:
            scalar = self._scalar_binary(parsed, left, right)
            return Value(kind, replace(facts, offsets=lanes.ZERO), scalar.base)
        base = self._base(parsed, left, right)
        return self._pattern(
            kind, facts, base, [left, right], lambda: self._vector_binary(parsed, left, right)
        )

    def _divisor(self, parsed: Parsed, operands: list[Value], mask: str) -> Value:
        """What to divide by, 1 in lanes of a mask that are not active.

        Those may hold anything, and processors trap at a division by 0, and of the smallest number
        by -1, even if the kernel asked before it divided.
        """
        left, right = operands
        known = right.facts.values
        if known is not None and not {0, -1} & set(known):
            return right
        if right.facts.is_uniform and (left.facts.is_uniform or parsed.opcode in ("udiv", "urem")):
            return right
        return self._with_ones(right, mask)

    def _with_ones(self, value: Value, mask: str) -> Value:
        code = self._code
        if self._is_compound(value.kind):
            parts = [self._with_ones(part, mask) for part in code.parts_of(value)]
            return code.compound(value.kind, parts)
        wide, one = vector_type(value.kind), f"splat ({value.kind} 1)"
        text = f"select {MASK} {mask}, {wide} {code.vector(value)}, {wide} {one}"
        return code.varying(value.kind, code.op(text))

    def _base(self, parsed: Parsed, left: Value, right: Value) -> str:
        """What the offsets of a result start from."""
        code, kind = self._code, parsed.kind
        if parsed.opcode in ("or", "xor"):
            pattern, other = (left, right) if left.facts.is_pattern else (right, left)
            low = lanes.free_bits(pattern.facts)
            if low is None or other.facts.base is None or not other.facts.is_uniform:
                return code.op(f"add {kind} {left.base}, {right.base}")  # no bits in common
            high = other.facts.base & -low
            if not high:
                return pattern.base
            return code.op(f"{parsed.opcode} {kind} {pattern.base}, {high}")
        return code.op(f"{parsed.opcode} {kind} {left.base}, {right.base}")

    def _scalar_binary(self, parsed: Parsed, left: Value, right: Value) -> Value:
        code = self._code
        a, b = code.scalar(left), code.scalar(right)
        flags = f" {parsed.flags}" if parsed.flags else ""
        return code.uniform(parsed.kind, code.op(f"{parsed.opcode}{flags} {parsed.kind} {a}, {b}"))

    def _vector_binary(self, parsed: Parsed, left: Value, right: Value) -> str:
        code = self._code
        a, b = code.vector(left), code.vector(right)
        flags = f" {parsed.flags}" if parsed.flags else ""
        return code.op(f"{parsed.opcode}{flags} {vector_type(parsed.kind)} {a}, {b}")

    def _unary(self, parsed: Parsed, operand: Value) -> Value:
        code, kind = self._code, parsed.kind
        flags = f" {parsed.flags}" if parsed.flags else ""
        if parsed.opcode == "freeze" and operand.facts.is_pattern:
            return operand
        if operand.facts.is_uniform:
            return Value(
                kind,
                replace(operand.facts, base=None),
                code.op(f"{parsed.opcode}{flags} {kind} {code.scalar(operand)}"),
            )
        if self._is_compound(kind):
            part = replace(parsed, kind=code.types.parts(kind)[0])
            return self._by_part(
                kind, [operand], lambda one: self._unary(replace(part, kind=one[0].kind), one[0])
            )
        text = code.vector(operand)
        return code.varying(kind, code.op(f"{parsed.opcode}{flags} {vector_type(kind)} {text}"))

    def compare(self, parsed: Parsed, left: Value, right: Value) -> Value:
        code, kind = self._code, left.kind
        flags = f" {parsed.flags}" if parsed.flags else ""
        head = f"{parsed.opcode}{flags} {parsed.predicate}"
        uniform = left.facts.is_uniform and right.facts.is_uniform
        if self._is_compound(kind) and not uniform:
            part_kind = code.types.parts(kind)[0]
            part = replace(parsed, operands=[Operand(part_kind, o.text) for o in parsed.operands])
            return self._by_part(parsed.kind, [left, right], lambda pair: self.compare(part, *pair))
        if parsed.opcode == "icmp":
            facts = lanes.compare(parsed, left.facts, right.facts)
            if facts.values is not None:
                return code.known("i1", facts)
        if uniform:
            a, b = code.scalar(left), code.scalar(right)
            return code.uniform(boolean_like(kind), code.op(f"{head} {kind} {a}, {b}"))
        a, b = code.vector(left), code.vector(right)
        return code.varying("i1", code.op(f"{head} {vector_type(kind)} {a}, {b}"))

    def select(self, parsed: Parsed, condition: Value, yes: Value, no: Value) -> Value:
        code, kind = self._code, yes.kind
        known = condition.facts.values
        if known is not None and (all(known) or not any(known)):
            return yes if all(known) else no
        flags = f" {parsed.flags}" if parsed.flags else ""
        uniform = all(value.facts.is_uniform for value in (condition, yes, no))
        if self._is_compound(kind) and not uniform:
            if self._is_compound(condition.kind):
                return self._by_part(
                    kind, [condition, yes, no], lambda three: self.select(parsed, *three)
                )
            return self._by_part(
                kind, [yes, no], lambda pair: self.select(parsed, condition, *pair)
            )
        if uniform:
            texts = [code.scalar(value) for value in (condition, yes, no)]
            text = code.op(
                f"select{flags} {condition.kind} {texts[0]}, {kind} {texts[1]}, {kind} {texts[2]}"
            )
            return code.uniform(kind, text)
        facts = lanes.select(condition.facts, yes.facts, no.facts)
        if facts.is_pattern and facts.values is None and condition.facts.is_uniform:
            chosen = code.op(
                f"select i1 {code.scalar(condition)}, {kind} {yes.base}, {kind} {no.base}"
            )
            return code.settled(kind, facts, chosen)
        if facts.values is not None:
            return code.known(kind, facts)
        wide = vector_type(kind)
        a, b = code.vector(yes), code.vector(no)
        if condition.facts.is_uniform:
            chooser = f"i1 {code.scalar(condition)}"
        else:
            chooser = f"{MASK} {code.vector(condition)}"
        return code.varying(kind, code.op(f"select{flags} {chooser}, {wide} {a}, {wide} {b}"))

    # ---- conversions -------------------------------------------------------------------------

    def cast(self, parsed: Parsed, source: Value) -> Value:
        code, before, after = self._code, source.kind, parsed.kind
        flags = f" {parsed.flags}" if parsed.flags else ""
        if source.facts.is_uniform:
            facts = lanes.cast(parsed, source.facts, before)
            if facts.values is not None and before != "ptr" and after != "ptr":
                return code.known(after, facts)
            text = code.op(f"{parsed.opcode}{flags} {before} {code.scalar(source)} to {after}")
            return Value(after, facts, text)
        if self._is_compound(before) or self._is_compound(after):
            return self._compound_cast(parsed, source)
        facts = lanes.cast(parsed, source.facts, before)

        def compute() -> str:
            wide = f"{vector_type(before)} {code.vector(source)} to {vector_type(after)}"
            return code.op(f"{parsed.opcode}{flags} {wide}")

        if facts.is_varying:
            return code.varying(after, compute())
        if facts.values is not None:
            return code.known(after, facts)
        if parsed.opcode in ("zext", "sext") and not facts.sure:
            return self._extended(parsed, source, facts, compute)
        base = code.op(f"{parsed.opcode} {before} {source.base} to {after}")
        return self._pattern(after, facts, base, [source], compute)

    def _extended(
        self,
        parsed: Parsed,
        source: Value,
        facts: Facts,
        compute: Callable[[], str],
    ) -> Value:
        """A pattern made wider: still one where no lane wraps around in the narrow type.

        `nneg` says nothing here: it may not hold in lanes that do not use the result.
        """
        code, before, after = self._code, source.kind, parsed.kind
        base = code.op(f"{parsed.opcode} {before} {source.base} to {after}")
        offsets = facts.offsets
        width = lanes.width_of(before)
        assert offsets is not None and width is not None
        lowest, spread = min(offsets), max(offsets) - min(offsets)
        if parsed.opcode == "sext":
            lowest += 1 << (width - 1)
        long = base if after == "i64" else code.op(f"{parsed.opcode} {before} {source.base} to i64")
        start = code.op(f"add i64 {long}, {lowest}")
        fits = code.op(f"icmp ult i64 {start}, {(1 << width) - spread}")
        condition = self._all_of([*([source.condition] if source.condition else []), fits])
        return Value(after, facts, base, condition=condition, compute=compute)

    def _compound_cast(self, parsed: Parsed, source: Value) -> Value:
        code = self._code
        before, after = code.types.parts(source.kind), code.types.parts(parsed.kind)
        same_count = len(before) == len(after)
        if parsed.opcode != "bitcast" or same_count:
            if not same_count:
                raise NotVectorisable(f"conversion of {source.kind} to {parsed.kind}")
            part = replace(parsed, kind=after[0])
            return self._by_part(parsed.kind, [source], lambda one: self.cast(part, one[0]))
        return self._rebuilt(source, parsed.kind)

    def _rebuilt(self, source: Value, kind: str) -> Value:
        """The same bits cut into other pieces, through an integer as wide as all of them."""
        code = self._code
        whole = sum(self._bits(leaf) for leaf in code.types.leaves(kind))
        total, wide = f"i{whole}", vector_type(f"i{whole}")
        word, position = "", 0
        for leaf in code.leaves_of(source):
            bits = self._bits(leaf.kind)
            piece = self._as_integer(leaf, bits)
            if bits != whole:
                piece = code.op(f"zext {vector_type(f'i{bits}')} {piece} to {wide}")
            if position:
                piece = code.op(f"shl {wide} {piece}, splat ({total} {position})")
            word = code.op(f"or {wide} {word}, {piece}") if word else piece
            position += bits
        leaves, position = [], 0
        for leaf_kind in code.types.leaves(kind):
            bits, piece = self._bits(leaf_kind), word
            if position:
                piece = code.op(f"lshr {wide} {piece}, splat ({total} {position})")
            if bits != whole:
                piece = code.op(f"trunc {wide} {piece} to {vector_type(f'i{bits}')}")
            leaves.append(self._from_integer(piece, leaf_kind, bits))
            position += bits
        return code.assembled(kind, iter(leaves))

    def _bits(self, kind: str) -> int:
        return lanes.width_of(kind) or self._code.types.size(kind) * 8

    def _as_integer(self, leaf: Value, bits: int) -> str:
        code = self._code
        text = code.vector(leaf)
        if leaf.kind.startswith("i"):
            return text
        opcode = "ptrtoint" if leaf.kind == "ptr" else "bitcast"
        return code.op(f"{opcode} {vector_type(leaf.kind)} {text} to {vector_type(f'i{bits}')}")

    def _from_integer(self, text: str, kind: str, bits: int) -> Value:
        code = self._code
        if kind.startswith("i"):
            return code.varying(kind, text)
        opcode = "inttoptr" if kind == "ptr" else "bitcast"
        return code.varying(
            kind, code.op(f"{opcode} {vector_type(f'i{bits}')} {text} to {vector_type(kind)}")
        )

    # ---- addresses ---------------------------------------------------------------------------

    def pointer(self, parsed: Parsed, operands: list[Value]) -> Value:
        if parsed.kind != "ptr":
            raise NotVectorisable("a vector of addresses in the kernel's own code")
        result = operands[0]
        named = {id(o): value for o, value in zip(parsed.operands, operands, strict=True)}
        for index, size in self._rules.steps(parsed):
            value = named.get(id(index)) or self._code.known("i64", lanes.constant(int(index.text)))
            result = self._moved(result, value, size)
        return result

    def _moved(self, pointer: Value, index: Value, size: int) -> Value:
        code = self._code
        if index.kind != "i64":
            opcode = Parsed("sext", None, "i64")
            index = self.cast(opcode, index)
        step = self._rules.stride(pointer.facts, size)
        facts = self._rules.step(pointer.facts, index.facts, size)

        def compute() -> str:
            base, distance = code.vector(pointer), code.vector(index)
            wide = vector_type("i64")
            if step != 1:
                distance = code.op(f"mul {wide} {distance}, splat (i64 {step})")
            return code.op(f"getelementptr i8, {vector_type('ptr')} {base}, {wide} {distance}")

        if facts.is_varying:
            return Value("ptr", facts, vector=self._varying_pointer(pointer, index, step, compute))
        base = pointer.base
        if index.facts.base is None:
            distance = index.base
            if step != 1:
                distance = code.op(f"mul i64 {distance}, {step}")
            base = code.op(f"getelementptr i8, ptr {base}, i64 {distance}")
        return self._pattern("ptr", facts, base, [pointer, index], compute)

    def _varying_pointer(
        self, pointer: Value, index: Value, step: int, compute: Callable[[], str]
    ) -> str:
        """A scalar start and a vector of indices is what gathers like best."""
        code = self._code
        if not pointer.facts.is_uniform:
            return compute()
        wide = vector_type("i64")
        element = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}.get(step, f"[{step} x i8]")
        return code.op(
            f"getelementptr {element}, ptr {code.scalar(pointer)}, {wide} {code.vector(index)}"
        )

    # ---- parts of vectors and structures -----------------------------------------------------

    def _parts(self, parsed: Parsed, operands: list[Value]) -> Value:
        if all(operand.facts.is_uniform for operand in operands):
            return self._scalar_parts(parsed, operands)
        opcode = parsed.opcode
        if opcode == "extractvalue":
            value = operands[0]
            for number in parsed.numbers:
                value = self._code.parts_of(value)[number]
            return value
        if opcode == "insertvalue":
            return self._with_part(operands[0], parsed.numbers, operands[1])
        if opcode == "shufflevector":
            both = [*self._code.parts_of(operands[0]), *self._code.parts_of(operands[1])]
            element = self._code.types.parts(parsed.kind)[0]
            poison = self._code.uniform(element, "poison")
            return self._code.compound(
                parsed.kind, [both[n] if n >= 0 else poison for n in parsed.numbers]
            )
        if opcode == "extractelement":
            return self._element(operands[0], operands[1])
        return self._with_element(*operands)

    def _scalar_parts(self, parsed: Parsed, operands: list[Value]) -> Value:
        code = self._code
        listed = ", ".join(f"{o.kind} {code.scalar(o)}" for o in operands)
        tail = ""
        if parsed.opcode in ("extractvalue", "insertvalue"):
            tail = ", " + ", ".join(map(str, parsed.numbers))
        elif parsed.opcode == "shufflevector":
            numbers = ", ".join(f"i32 {n}" if n >= 0 else "i32 poison" for n in parsed.numbers)
            tail = f", <{len(parsed.numbers)} x i32> <{numbers}>"
        return code.uniform(parsed.kind, code.op(f"{parsed.opcode} {listed}{tail}"))

    def _with_part(self, aggregate: Value, numbers: list[int], part: Value) -> Value:
        parts = list(self._code.parts_of(aggregate))
        if len(numbers) > 1:
            part = self._with_part(parts[numbers[0]], numbers[1:], part)
        parts[numbers[0]] = part
        return self._code.compound(aggregate.kind, parts)

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
        return self._code.compound(vector.kind, parts)

    def _equals(self, index: Value, number: int) -> Value:
        parsed = Parsed("icmp", None, "i1", predicate="eq")
        parsed.operands = [Operand(index.kind, ""), Operand(index.kind, str(number))]
        return self.compare(parsed, index, self._code.known(index.kind, lanes.constant(number)))


_SELECT = Parsed("select", None)
_DIVISIONS = frozenset(("udiv", "sdiv", "urem", "srem"))
_PART_OPERATIONS = frozenset(
    ("extractvalue", "insertvalue", "shufflevector", "extractelement", "insertelement")
)
