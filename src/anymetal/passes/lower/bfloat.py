"""Bfloats as bits where LLVM 22's generator of x86 code goes wrong: last, behind the optimiser.

It fails an assertion when the bits of a bfloat are used beside those of its absolute value; the
optimiser makes llvm.fabs of any mask that clears a sign, and a float's may be taken for it. And it
keeps a bfloat that is loaded and used twice, selected, gathered or put into a vector as a float,
which the processor rounds back: denormals become 0 and signalling NaNs quiet. Where a processor
has no vectors of bfloats, LLVM takes them apart and calls a function for each of their elements.
"""

from __future__ import annotations

import re

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    I16,
    I32,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    Type,
    constant,
)
from anymetal.passes.rewrite import rewrite

_FABS = "llvm.fabs."
_MASKED = tuple(f"llvm.masked.{word}." for word in ("gather", "scatter", "load", "store"))
_MOVED = re.compile(
    r" = select [^,\n]*, (?:bfloat|<\d+ x bfloat>) | = bitcast bfloat %| = phi bfloat "
    r"| = (?:insert|extract)element <\d+ x bfloat>|@llvm\.masked\.(?:gather|scatter)\.v\d+bf16"
)
_VECTOR = re.compile(r"<\d+ x bfloat>")
_LOADED = re.compile(r"(%\S+) = load bfloat, ")
_USED = re.compile(r"^(?!.* = fpext ).*?bfloat (%[^\s,)]+)(?:, (%[^\s,)]+))?", re.MULTILINE)
_ALL_BUT_THE_SIGN = 0x7FFF


def needs_bits(ir: str, *, has_vectors: bool = True) -> bool:
    """Whether a module's text has what is done on bits here; `has_vectors`: of bfloats, whether the
    processor has any."""
    if "bfloat" not in ir:
        return False
    if not has_vectors and _VECTOR.search(ir):
        return True
    if _MOVED.search(ir) or (_FABS in ir and "bf16(" in ir):
        return True
    loaded = set(_LOADED.findall(ir))
    return bool(loaded) and any(not loaded.isdisjoint(names) for names in _USED.findall(ir))


def do_on_bits(module: Module, *, has_vectors: bool = True) -> None:
    """Absolute values: to integers, clear the top bit, back to bfloat. What is moved: integers. All
    vectors are, where the processor has none of bfloats."""
    for name, signature in module.declarations().items():
        if _moves_bfloats(name):
            kinds = [_as_integers(one.type) for one in signature.parameters]
            module.declare(_of_integers(name), _as_integers(signature.type), kinds)
    for function in module.functions:
        if has_vectors:
            rewrite(function, _OnBits().rewritten)
            continue
        _choose_bits(function)
        rewrite(function, _VectorsOnBits().rewritten)
        # A block may stand before those that its vectors come from.
        rewrite(function, _VectorsOnBits(function).take_apart)


def _moves_bfloats(callee: str) -> bool:
    return callee.startswith(_MASKED) and "bf16" in callee


def _of_integers(callee: str) -> str:
    return callee.replace("bf16", "i16")


def _as_integers(kind: Type) -> Type:
    return kind.with_scalar(I16) if kind.scalar is BFLOAT else kind


class _OnBits:
    """The instructions of one function, and the integers that are the bits of its bfloats.

    A bfloat that is an integer somewhere stays one: LLVM would load it as a float again.
    """

    def __init__(self) -> None:
        self._known: dict[str, Operand] = {}

    def rewritten(self, build: Builder, one: Instruction) -> bool:
        makers = (self._mask, self._select, self._take_apart, self._gather, self._load)
        others = (self._store, self._element, self._widen)
        return any(make(build, one) for make in (*makers, *others))

    def _is_taken(self, kind: Type) -> bool:
        """Whether what is loaded or stored is integers. Vectors are moved whole."""
        return kind is BFLOAT

    def _bits(self, build: Builder, value: Operand) -> Operand:
        """The bits of a value. One number's are the upper half of a float's: nothing is rounded."""
        if value.text in self._known:
            return self._known[value.text]
        if value.type is not BFLOAT:
            return build.cast("bitcast", value, value.type.with_scalar(I16))
        bits = build.cast("bitcast", build.cast("fpext", value, FLOAT), I32)
        return build.cast("trunc", build.lshr(bits, constant(I32, 16)), I16)

    def _made(self, build: Builder, bits: Operand, one: Instruction) -> bool:
        """Gives an instruction's name to the bfloat that these bits are."""
        assert one.result is not None
        self._known[one.result] = bits
        build.cast("bitcast", bits, one.type, name=one.result)
        return True

    def _take_apart(self, build: Builder, cast: Instruction) -> bool:
        if cast.opcode != "bitcast" or cast.type.scalar is not I16:
            return False
        (value,) = cast.operands
        if value.type is not BFLOAT and value.text not in self._known:
            return False
        bits = self._bits(build, value)
        build.binary("or", bits, constant(cast.type, 0), name=str(cast.result))
        return True

    def _select(self, build: Builder, select: Instruction) -> bool:
        if select.opcode != "select" or select.type.scalar is not BFLOAT:
            return False
        condition, *values = select.operands
        bits = [self._bits(build, value) for value in values]
        return self._made(build, build.select(condition, bits[0], bits[1]), select)

    def _gather(self, build: Builder, call: Instruction) -> bool:
        callee = call.callee or ""
        if not _moves_bfloats(callee):
            return False
        operands = [
            self._bits(build, one) if one.type.scalar is BFLOAT else one for one in call.operands
        ]
        made = build.call(
            *(_as_integers(call.type), _of_integers(callee), operands),
            attributes=call.attributes,
            call_attributes=call.call_attributes,
        )
        return call.result is None or self._made(build, made, call)

    def _load(self, build: Builder, load: Instruction) -> bool:
        if load.opcode != "load" or not self._is_taken(load.type) or load.ordering:
            return False
        volatile = load.is_volatile
        bits = build.load(
            _as_integers(load.type), load.operands[0], load.align, is_volatile=volatile
        )
        return self._made(build, bits, load)

    def _store(self, build: Builder, store: Instruction) -> bool:
        if store.opcode != "store" or not self._is_taken(store.operands[0].type) or store.ordering:
            return False
        value, pointer = store.operands
        bits = self._bits(build, value)
        build.store(bits, pointer, store.align, is_volatile=store.is_volatile)
        return True

    def _element(self, build: Builder, one: Instruction) -> bool:
        if one.opcode not in ("insertelement", "extractelement"):
            return False
        if one.operands[0].type.scalar is not BFLOAT:
            return False
        vector, index = self._bits(build, one.operands[0]), one.operands[-1]
        if one.opcode == "extractelement":
            return self._made(build, build.extract_element(vector, index), one)
        number = self._bits(build, one.operands[1])
        return self._made(build, build.insert_element(vector, number, index), one)

    def _widen(self, build: Builder, one: Instruction) -> bool:
        """To float, and comparisons, of one number whose bits are known."""
        if not any(value.text in self._known for value in _numbers(one)):
            return False
        wide = [self._wide(build, value) for value in one.operands]
        if one.opcode == "fpext":
            build.cast("bitcast", wide[0], FLOAT, name=str(one.result))
        else:
            floats = [build.cast("bitcast", value, FLOAT) for value in wide]
            build.fcmp(one.predicate, floats[0], floats[1], name=str(one.result))
        return True

    def _wide(self, build: Builder, value: Operand) -> Operand:
        """The bits of the float that a bfloat is."""
        bits = build.cast("zext", self._bits(build, value), I32)
        return build.shl(bits, constant(I32, 16))

    def _mask(self, build: Builder, call: Instruction) -> bool:
        callee = call.callee or ""
        if not callee.startswith(_FABS) or not callee.endswith("bf16"):
            return False
        before = len(build.made)
        bits = self._bits(build, call.operands[0])
        clear = build.and_(bits, constant(_as_integers(call.type), _ALL_BUT_THE_SIGN))
        self._made(build, clear, call)
        for made in build.made[before:]:
            made.metadata = call.metadata
        return True


class _VectorsOnBits(_OnBits):
    """No vector of bfloats goes from one instruction to another. What integers those of `function`
    are made of is known."""

    def __init__(self, function: Function | None = None) -> None:
        super().__init__()
        for cast in function.instructions() if function is not None else ():
            if cast.opcode == "bitcast" and _is_vector(cast.type) and cast.result is not None:
                (bits,) = cast.operands
                if bits.type is cast.type.with_scalar(I16):
                    self._known[cast.result] = bits

    def rewritten(self, build: Builder, one: Instruction) -> bool:
        return (
            self._shuffle(build, one) or self._compare(build, one) or super().rewritten(build, one)
        )

    def take_apart(self, build: Builder, one: Instruction) -> bool:
        return self._take_apart(build, one)

    def _is_taken(self, kind: Type) -> bool:
        return kind.scalar is BFLOAT

    def _shuffle(self, build: Builder, one: Instruction) -> bool:
        if one.opcode != "shufflevector" or not _is_vector(one.type):
            return False
        first, second = (self._bits(build, vector) for vector in one.operands)
        return self._made(build, build.shuffle(first, second, one.numbers), one)

    def _compare(self, build: Builder, one: Instruction) -> bool:
        """Comparisons, and what becomes floats."""
        if one.opcode not in ("fcmp", "fpext") or not _is_vector(one.operands[0].type):
            return False
        floats = one.operands[0].type.with_scalar(FLOAT)
        wide = [self._wide(build, value) for value in one.operands]
        if one.opcode == "fcmp":
            left, right = (build.cast("bitcast", value, floats) for value in wide)
            build.fcmp(one.predicate, left, right, name=str(one.result))
        elif one.type is floats:
            build.cast("bitcast", wide[0], floats, name=str(one.result))
        else:
            value = build.cast("bitcast", wide[0], floats)
            build.cast("fpext", value, one.type, name=str(one.result))
        return True

    def _wide(self, build: Builder, value: Operand) -> Operand:
        kind = value.type.with_scalar(I32)
        bits = build.cast("zext", self._bits(build, value), kind)
        return build.shl(bits, constant(kind, 16))


def _is_vector(kind: Type) -> bool:
    return kind.is_vector and kind.scalar is BFLOAT


def _choose_bits(function: Function) -> None:
    """Vectors of bfloats that come from several blocks come as integers."""
    ends: dict[str, Builder] = {block.label: Builder(function.fresh) for block in function.blocks}
    for block in function.blocks:
        chosen, casts = Builder(function.fresh), Builder(function.fresh)
        for phi in block.phis:
            if not _is_vector(phi.type):
                chosen.made.append(phi)
                continue
            kind = phi.type.with_scalar(I16)
            incoming = [
                (ends[label].cast("bitcast", value, kind), label) for value, label in phi.incoming()
            ]
            bits = chosen.phi(kind, incoming)
            casts.cast("bitcast", bits, phi.type, name=str(phi.result))
        block.instructions[: len(block.phis)] = [*chosen.made, *casts.made]
    for block in function.blocks:
        block.instructions[-1:-1] = ends[block.label].made


def _numbers(one: Instruction) -> tuple[Operand, ...]:
    """The operands of a comparison or of a conversion to float, where they are single bfloats."""
    if one.opcode == "fcmp" and one.operands[0].type is BFLOAT:
        return one.operands
    if one.opcode == "fpext" and one.operands[0].type is BFLOAT and one.type is FLOAT:
        return one.operands
    return ()
