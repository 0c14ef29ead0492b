"""Bfloats as bits where LLVM 22's generator of x86 code goes wrong: last, behind the optimiser.

It fails an assertion when the bits of a bfloat are used beside those of its absolute value; the
optimiser makes llvm.fabs of any mask that clears a sign, and a float's may be taken for it. And it
keeps a bfloat that is loaded and used twice, selected, gathered or put into a vector as a float,
which the processor rounds back: denormals become 0 and signalling NaNs quiet.
"""

from __future__ import annotations

import re

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    I16,
    I32,
    Builder,
    Instruction,
    Module,
    Operand,
    Type,
    constant,
)
from anymetal.passes.rewrite import rewrite

_FABS = "llvm.fabs."
_GATHER, _SCATTER = "llvm.masked.gather.", "llvm.masked.scatter."
_MOVED = re.compile(
    r" = select [^,\n]*, (?:bfloat|<\d+ x bfloat>) | = bitcast bfloat %| = phi bfloat "
    r"| = (?:insert|extract)element <\d+ x bfloat>|@llvm\.masked\.(?:gather|scatter)\.v\d+bf16"
)
_LOADED = re.compile(r"(%\S+) = load bfloat, ")
_USED = re.compile(r"^(?!.* = fpext ).*?bfloat (%[^\s,)]+)(?:, (%[^\s,)]+))?", re.MULTILINE)
_ALL_BUT_THE_SIGN = 0x7FFF


def needs_bits(ir: str) -> bool:
    """Whether a module's text has what is done on bits here."""
    if "bfloat" not in ir:
        return False
    if _MOVED.search(ir) or (_FABS in ir and "bf16(" in ir):
        return True
    loaded = set(_LOADED.findall(ir))
    return bool(loaded) and any(not loaded.isdisjoint(names) for names in _USED.findall(ir))


def do_on_bits(module: Module) -> None:
    """Absolute values: to integers, clear the top bit, back to bfloat. What is moved: integers."""
    for name, signature in module.declarations().items():
        if _moves_bfloats(name):
            kinds = [_as_integers(one.type) for one in signature.parameters]
            module.declare(_of_integers(name), _as_integers(signature.type), kinds)
    for function in module.functions:
        rewrite(function, _OnBits().rewritten)


def _moves_bfloats(callee: str) -> bool:
    return callee.startswith((_GATHER, _SCATTER)) and "bf16" in callee


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
        """One number; vectors are moved whole."""
        if load.opcode != "load" or load.type is not BFLOAT or load.ordering:
            return False
        volatile = load.is_volatile
        bits = build.load(I16, load.operands[0], load.align, is_volatile=volatile)
        return self._made(build, bits, load)

    def _store(self, build: Builder, store: Instruction) -> bool:
        if store.opcode != "store" or store.operands[0].type is not BFLOAT or store.ordering:
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


def _numbers(one: Instruction) -> tuple[Operand, ...]:
    """The operands of a comparison or of a conversion to float, where they are single bfloats."""
    if one.opcode == "fcmp" and one.operands[0].type is BFLOAT:
        return one.operands
    if one.opcode == "fpext" and one.operands[0].type is BFLOAT and one.type is FLOAT:
        return one.operands
    return ()
