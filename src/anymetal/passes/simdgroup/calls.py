"""Calls: elementwise intrinsics on vectors; everything else serialised over the active lanes."""

from __future__ import annotations

from anymetal.ir import I32, VOID, Instruction, Operand, Parts, boolean, i32
from anymetal.machine.layout import Wait, waits_for
from anymetal.passes.count.observe import OBSERVE
from anymetal.passes.lower.machine import STOP, TAKEN
from anymetal.passes.lower.powers import SCALED, scaled
from anymetal.passes.simdgroup import scaling
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.lasting import WAIT
from anymetal.passes.simdgroup.matrix import Matrices
from anymetal.passes.simdgroup.observers import Observers
from anymetal.passes.simdgroup.rules import ACTIVE, LEADER, MEMORY_INTRINSICS, matrix_part
from anymetal.passes.simdgroup.serial import Serial
from anymetal.passes.simdgroup.values import Code, Value, mangled, vector_type

# One operation on every element, whatever the type.
_ELEMENTWISE = frozenset(
    "llvm." + name
    for name in [
        "fma",
        "fmuladd",
        "sqrt",
        "fabs",
        "floor",
        "ceil",
        "trunc",
        "rint",
        "nearbyint",
        "round",
        "roundeven",
        "minnum",
        "maxnum",
        "minimum",
        "maximum",
        "minimumnum",
        "maximumnum",
        "copysign",
        "umin",
        "umax",
        "smin",
        "smax",
        "abs",
        "ctpop",
        "ctlz",
        "cttz",
        "bswap",
        "bitreverse",
        "fshl",
        "fshr",
        "uadd.sat",
        "usub.sat",
        "sadd.sat",
        "ssub.sat",
        "canonicalize",
        "fptoui.sat",
        "fptosi.sat",
        "ucmp",
        "scmp",
        "exp",
        "exp2",
        "log",
        "log2",
        "log10",
        "pow",
        "sin",
        "cos",
        "is.fpclass",
    ]
)
# Their last argument is a number for all elements.
_SCALAR_LAST = frozenset(("llvm.ctlz", "llvm.cttz", "llvm.abs", "llvm.is.fpclass"))
# The type of their last argument stands in their name as well.
_TWO_TYPES = frozenset(("llvm.fptoui.sat", "llvm.fptosi.sat", "llvm.ucmp", "llvm.scmp"))

_PASSING = ("zeroext", "signext", "inreg", "align ", "byval(", "sret(")


class Calls:
    """Writes calls."""

    def __init__(self, code: Code, serial: Serial, simd: Operand) -> None:
        self._code = code
        self._serial = serial
        self._simd = simd
        self.matrices = Matrices(code)
        self._observers = Observers(code)
        self.has_barriers = False

    def call(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value | None:
        code = self._code
        if instruction.callee == STOP:
            self._stop(operands[0], mask)
            return None
        if instruction.callee == TAKEN:
            return None
        callee = instruction.callee or ""
        if callee.startswith(OBSERVE):
            self._observers.call(instruction, operands, mask)
            return None
        part = matrix_part(callee)
        if part is not None:
            return self.matrices.element(part, instruction.type, operands, mask)
        name = _family(callee)
        uniform = all(operand.facts.is_uniform for operand in operands)
        if callee.startswith(MEMORY_INTRINSICS):
            if uniform:
                return self._once(instruction, operands)
            return self._lane_by_lane(instruction, operands, mask)
        if callee.startswith(SCALED) and not code.types.parts(instruction.type):
            x, n = operands
            if uniform:
                return code.uniform(scaled(code, code.scalar(x), code.scalar(n)))
            return code.varying(scaling.scaled_lanes(code, code.vector(x), code.vector(n)))
        if callee.startswith("llvm."):
            if uniform:
                return self._once(instruction, operands)
            if name not in _ELEMENTWISE:
                raise NotVectorisable(f"the intrinsic {callee} on values that vary")
            return self._elementwise(instruction, name, operands)
        return self._lane_by_lane(instruction, operands, mask)

    def _once(self, instruction: Instruction, operands: list[Value]) -> Value | None:
        code = self._code
        arguments = [code.scalar(operand) for operand in operands]
        callee = instruction.callee or ""
        result = code.declared_call(instruction.type, callee, arguments, flags=instruction.flags)
        return None if instruction.type is VOID else code.uniform(result)

    def _elementwise(self, instruction: Instruction, name: str, operands: list[Value]) -> Value:
        code = self._code
        if code.types.parts(instruction.type):
            return self._by_part(instruction, name, operands)
        wide = vector_type(instruction.type)
        scalars = 1 if name in _SCALAR_LAST else 0
        vectors = operands[: len(operands) - scalars]
        arguments = [code.vector(value) for value in vectors]
        arguments += [code.scalar(value) for value in operands[len(vectors) :]]
        suffixes = [mangled(wide)]
        if name in _TWO_TYPES:
            suffixes.append(mangled(vector_type(operands[-1].type)))
        if name == "llvm.is.fpclass":
            suffixes = [mangled(vector_type(operands[0].type))]
        full = ".".join([name, *suffixes])
        return code.varying(code.declared_call(wide, full, arguments, flags=instruction.flags))

    def _by_part(self, instruction: Instruction, name: str, operands: list[Value]) -> Value:
        code = self._code
        part = instruction.changed(Parts(type=code.types.parts(instruction.type)[0]))
        split = [code.parts_of(o) if code.types.parts(o.type) else None for o in operands]
        count = len(code.types.parts(instruction.type))
        results = []
        for number in range(count):
            column = [s[number] if s else o for s, o in zip(split, operands, strict=True)]
            results.append(self._elementwise(part, name, column))
        return code.compound(instruction.type, results)

    def _lane_by_lane(
        self, instruction: Instruction, operands: list[Value], mask: Operand | None
    ) -> Value | None:
        def each(arguments: list[Operand]) -> Operand:
            return self._code.declared_call(
                instruction.type,
                instruction.callee or "",
                arguments,
                flags=instruction.flags,
                attributes=[_passing(given) for given in instruction.attributes],
                convention=instruction.convention,
            )

        return self._serial.run(instruction.type, operands, mask, each)

    # ---- stops -------------------------------------------------------------------------------

    def _stop(self, what: Value, mask: Operand | None) -> None:
        """A barrier waits for the other simdgroups; at a collective all lanes have arrived."""
        code = self._code
        assert what.facts.base is not None
        if waits_for(what.facts.base) == Wait.THREADGROUP_BARRIER:
            self.has_barriers = True
            stay = code.fresh("stay")
            code.call(VOID, WAIT, [what.start])
            code.jump(stay)
            code.label(stay)
            return
        active, leader = i32(-1), i32(0)
        if mask is not None:
            active = code.bits(mask)
            leader = code.declared_call(I32, "llvm.cttz.i32", [active, boolean(True)])
        for offset, word in ((ACTIVE, active), (LEADER, leader)):
            code.store(word, code.moved(self._simd, offset), align=4)


def _passing(attributes: tuple[str, ...]) -> tuple[str, ...]:
    """Those that decide where a function finds an argument; the rest are hints."""
    return tuple(a for a in attributes if a.startswith(_PASSING))


def _family(callee: str) -> str:
    """An intrinsic's name without the types at its end."""
    words = callee.split(".")
    while len(words) > 2 and _is_type(words[-1]):
        words.pop()
    return ".".join(words)


def _is_type(word: str) -> bool:
    return word in ("f16", "bf16", "f32", "f64", "p0") or (word[:1] in "iv" and word[1:2].isdigit())
