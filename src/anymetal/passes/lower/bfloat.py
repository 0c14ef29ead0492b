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
        rewrite(function, _rewritten)


def _moves_bfloats(callee: str) -> bool:
    return callee.startswith((_GATHER, _SCATTER)) and "bf16" in callee


def _of_integers(callee: str) -> str:
    return callee.replace("bf16", "i16")


def _as_integers(kind: Type) -> Type:
    return kind.with_scalar(I16) if kind.scalar is BFLOAT else kind


def _rewritten(build: Builder, one: Instruction) -> bool:
    return any(make(build, one) for make in _MAKERS)


def _bits(build: Builder, value: Operand, name: str = "") -> Operand:
    """The bits of a value. One number's are the upper half of a float's: nothing is rounded."""
    if value.type is not BFLOAT:
        return build.cast("bitcast", value, value.type.with_scalar(I16), name=name)
    bits = build.cast("bitcast", build.cast("fpext", value, FLOAT), I32)
    return build.cast("trunc", build.lshr(bits, constant(I32, 16)), I16, name=name)


def _take_apart(build: Builder, cast: Instruction) -> bool:
    if cast.opcode != "bitcast" or cast.operands[0].type is not BFLOAT or cast.type is not I16:
        return False
    _bits(build, cast.operands[0], name=str(cast.result))
    return True


def _select(build: Builder, select: Instruction) -> bool:
    if select.opcode != "select" or select.type.scalar is not BFLOAT:
        return False
    condition, *values = select.operands
    bits = [_bits(build, value) for value in values]
    chosen = build.select(condition, bits[0], bits[1])
    build.cast("bitcast", chosen, select.type, name=str(select.result))
    return True


def _gather(build: Builder, call: Instruction) -> bool:
    callee = call.callee or ""
    if not _moves_bfloats(callee):
        return False
    operands = [_bits(build, one) if one.type.scalar is BFLOAT else one for one in call.operands]
    made = build.call(
        *(_as_integers(call.type), _of_integers(callee), operands),
        attributes=call.attributes,
        call_attributes=call.call_attributes,
    )
    if call.result is not None:
        build.cast("bitcast", made, call.type, name=call.result)
    return True


def _load(build: Builder, load: Instruction) -> bool:
    """One number; vectors are moved whole."""
    if load.opcode != "load" or load.type is not BFLOAT or load.ordering:
        return False
    volatile = load.is_volatile
    bits = build.load(I16, load.operands[0], load.align, is_volatile=volatile)
    build.cast("bitcast", bits, BFLOAT, name=str(load.result))
    return True


def _store(build: Builder, store: Instruction) -> bool:
    if store.opcode != "store" or store.operands[0].type is not BFLOAT or store.ordering:
        return False
    value, pointer = store.operands
    build.store(_bits(build, value), pointer, store.align, is_volatile=store.is_volatile)
    return True


def _element(build: Builder, one: Instruction) -> bool:
    if one.opcode not in ("insertelement", "extractelement"):
        return False
    if one.operands[0].type.scalar is not BFLOAT:
        return False
    vector, index = _bits(build, one.operands[0]), one.operands[-1]
    if one.opcode == "insertelement":
        made = build.insert_element(vector, _bits(build, one.operands[1]), index)
    else:
        made = build.extract_element(vector, index)
    build.cast("bitcast", made, one.type, name=str(one.result))
    return True


def _mask(build: Builder, call: Instruction) -> bool:
    callee = call.callee or ""
    if not callee.startswith(_FABS) or not callee.endswith("bf16"):
        return False
    integers = _as_integers(call.type)
    before = len(build.made)
    clear = build.and_(_bits(build, call.operands[0]), constant(integers, _ALL_BUT_THE_SIGN))
    build.cast("bitcast", clear, call.type, name=str(call.result))
    for made in build.made[before:]:
        made.metadata = call.metadata
    return True


_MAKERS = (_mask, _select, _take_apart, _gather, _load, _store, _element)
