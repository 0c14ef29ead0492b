"""Sums of products of vectors in the IR of our headers: those of one expression are fused.

Apple's compiler fuses `a * b + c` of vectors as clang does of scalars (-ffp-contract=on): where the
product is an operand of the sum in the text. Here vectors are a class and their operators functions
that clang does not look into. But they know by its type whether an operand is a product
(anymetal/vector.h), and call functions that nobody defines. Once variables are in registers, what
they were called with is found here, and they become instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anymetal.ir import BFLOAT, FLOAT, HALF, Builder, Function, Instruction, Module, Operand

# As C++ names the functions of anymetal/arithmetic.h, for two floats, halves and bfloats.
_TYPES = ("ff", "DF16_DF16_", "DF16bDF16b")
_PRODUCTS = frozenset(f"_Z15am_open_product{types}" for types in _TYPES)
_SUMS = frozenset(f"_Z11am_open_sum{types}11am_products" for types in _TYPES)
_DIFFERENCES = frozenset(f"_Z18am_open_difference{types}11am_products" for types in _TYPES)
OPEN = _PRODUCTS | _SUMS | _DIFFERENCES
_LEFT, _RIGHT = 1, 2  # am_products
_FUSED = "llvm.fmuladd."
_SUFFIXES = {"f32": FLOAT, "f16": HALF, "bf16": BFLOAT}
_Factors = tuple[Operand, Operand, bool]
_OFF = re.compile(r"#\s*pragma\s+clang\s+fp\s+contract\s*\(\s*off\s*\)")


def refuses_contraction(text: str) -> bool:
    """Whether a text says somewhere that nothing be fused. Of vectors nothing is then."""
    return "contract" in text and _OFF.search(text) is not None


def contract(module: Module, *, fuse: bool = True) -> None:
    """Puts instructions in place of all open products, sums and differences."""
    if OPEN.isdisjoint(module.declarations()):
        return
    for function in module.functions:
        if any(instruction.callee in OPEN for instruction in function.instructions()):
            definitions = function.definitions() if fuse else {}
            for block in function.blocks:
                block.instructions = [
                    new
                    for one in block.instructions
                    for new in _written(one, function, definitions)
                ]
            _remove_unused(function)
    module.remove_declarations(OPEN)
    for suffix, kind in _SUFFIXES.items():
        module.declare(f"{_FUSED}{suffix}", kind, [kind] * 3)


def _written(
    instruction: Instruction, function: Function, definitions: Mapping[str, Instruction]
) -> list[Instruction]:
    """What stands in place of an instruction: most stand for themselves."""
    if instruction.callee not in OPEN:
        return [instruction]
    name = str(instruction.result)
    build = Builder(function.fresh, metadata=_place(instruction))
    left, right, *which = instruction.operands
    if instruction.callee in _PRODUCTS:
        build.binary("fmul", left, right, name=name)
        return build.made
    is_sum = instruction.callee in _SUMS
    products = which[0].integer or 0
    if products & _LEFT and (factors := _factors(left, definitions)):
        _fuse(build, name, factors, right if is_sum else build.unary("fneg", right))
    elif products & _RIGHT and (factors := _factors(right, definitions)):
        one, other, is_negative = factors
        _fuse(build, name, (one, other, is_negative == is_sum), left)
    else:
        build.binary("fadd" if is_sum else "fsub", left, right, name=name)
    return build.made


def _factors(value: Operand, definitions: Mapping[str, Instruction]) -> _Factors | None:
    """What a value is the product of, and whether it is negated; None where it is no product: of
    `(condition ? a * b : c) + d` it may be either."""
    made = definitions.get(value.text)
    is_negative = made is not None and made.opcode == "fneg"
    if made is not None and is_negative:
        made = definitions.get(made.operands[0].text)
    if made is None or made.callee not in _PRODUCTS:
        return None
    return made.operands[0], made.operands[1], is_negative


def _remove_unused(function: Function) -> None:
    """Takes out products that were needed for a sum alone, and their negations."""
    users, unused = function.users(), set[int]()
    for opcode in ("fneg", "fmul"):
        unused |= {
            id(one)
            for one in function.instructions()
            if one.opcode == opcode and all(id(u) in unused for u in users.get(str(one.result), ()))
        }
    for block in function.blocks:
        block.instructions = [one for one in block.instructions if id(one) not in unused]


def _fuse(build: Builder, name: str, factors: _Factors, addend: Operand) -> None:
    one, other, is_negative = factors
    kind = addend.type
    suffix = next(suffix for suffix, known in _SUFFIXES.items() if known is kind)
    first = build.unary("fneg", one) if is_negative else one
    build.call(kind, f"{_FUSED}{suffix}", [first, other, addend], name=name)


def _place(instruction: Instruction) -> dict[str, str]:
    """Where the author wrote it."""
    place = instruction.metadata.get("dbg")
    return {"dbg": place} if place is not None else {}
