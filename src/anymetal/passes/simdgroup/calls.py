"""Calls: intrinsics on vectors, and everything else one active lane after the other."""

from __future__ import annotations

from dataclasses import replace

from anymetal.passes.lower.machine import BARRIER, STOP, TAKEN
from anymetal.passes.operands import Parsed
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.matrix import Matrices
from anymetal.passes.simdgroup.memory import mangled
from anymetal.passes.simdgroup.rules import ACTIVE, LEADER, MEMORY_INTRINSICS, matrix_part
from anymetal.passes.simdgroup.serial import Serial
from anymetal.passes.simdgroup.values import Code, Value, vector_type

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
        "ldexp",
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
_TWO_TYPES = frozenset(
    ("llvm.ldexp", "llvm.fptoui.sat", "llvm.fptosi.sat", "llvm.ucmp", "llvm.scmp")
)


class Calls:
    """Writes calls."""

    def __init__(self, code: Code, serial: Serial, simd: str) -> None:
        self._code = code
        self._serial = serial
        self._simd = simd
        self._matrices = Matrices(code)
        self.has_barriers = False

    def call(self, parsed: Parsed, operands: list[Value], mask: str | None) -> Value | None:
        if parsed.callee == STOP:
            self._stop(operands[0], mask)
            return None
        if parsed.callee == TAKEN:
            return None
        part = matrix_part(parsed.callee)
        if part is not None:
            return self._matrices.element(part, parsed.kind, operands, mask)
        name = _family(parsed.callee)
        uniform = all(operand.facts.is_uniform for operand in operands)
        if parsed.callee.startswith(MEMORY_INTRINSICS):
            if uniform:
                return self._once(parsed, operands)
            return self._lane_by_lane(parsed, operands, mask)
        if parsed.callee.startswith("llvm."):
            if uniform:
                return self._once(parsed, operands)
            if name not in _ELEMENTWISE:
                raise NotVectorisable(f"the intrinsic {parsed.callee} on values that vary")
            return self._elementwise(parsed, name, operands)
        return self._lane_by_lane(parsed, operands, mask)

    def _once(self, parsed: Parsed, operands: list[Value]) -> Value | None:
        arguments = [(operand.kind, self._code.scalar(operand)) for operand in operands]
        text = self._code.call(parsed.kind, parsed.callee, arguments, parsed.flags)
        return self._code.uniform(parsed.kind, text) if text else None

    def _elementwise(self, parsed: Parsed, name: str, operands: list[Value]) -> Value:
        code = self._code
        if code.types.parts(parsed.kind):
            return self._by_part(parsed, name, operands)
        wide = vector_type(parsed.kind)
        scalars = 1 if name in _SCALAR_LAST else 0
        vectors = operands[: len(operands) - scalars]
        arguments = [(vector_type(v.kind), code.vector(v)) for v in vectors]
        arguments += [(v.kind, code.scalar(v)) for v in operands[len(vectors) :]]
        suffixes = [mangled(wide)]
        if name in _TWO_TYPES:
            suffixes.append(mangled(vector_type(operands[-1].kind)))
        if name == "llvm.is.fpclass":
            suffixes = [mangled(vector_type(operands[0].kind))]
        full = ".".join([name, *suffixes])
        return code.varying(parsed.kind, code.call(wide, full, arguments, parsed.flags))

    def _by_part(self, parsed: Parsed, name: str, operands: list[Value]) -> Value:
        code = self._code
        part = replace(parsed, kind=code.types.parts(parsed.kind)[0])
        split = [code.parts_of(o) if code.types.parts(o.kind) else None for o in operands]
        count = len(code.types.parts(parsed.kind))
        results = []
        for number in range(count):
            column = [s[number] if s else o for s, o in zip(split, operands, strict=True)]
            results.append(self._elementwise(part, name, column))
        return code.compound(parsed.kind, results)

    def _lane_by_lane(
        self, parsed: Parsed, operands: list[Value], mask: str | None
    ) -> Value | None:
        def each(arguments: list[str]) -> str:
            pairs = [(o.kind, text) for o, text in zip(operands, arguments, strict=True)]
            words = " ".join(filter(None, (parsed.flags, parsed.convention)))
            return self._code.call(parsed.kind, parsed.callee, pairs, words, parsed.attributes)

        return self._serial.run(parsed.kind, operands, mask, each)

    # ---- stops -------------------------------------------------------------------------------

    def _stop(self, what: Value, mask: str | None) -> None:
        """A barrier waits for the other simdgroups; at a collective all lanes are here already."""
        code = self._code
        assert what.facts.base is not None
        if what.facts.base & 15 == BARRIER:
            self.has_barriers = True
            left = code.call("i8", "am_suspend", [("i32", str(what.facts.base))])
            leave, stay = code.fresh("leave"), code.fresh("stay")
            code.branch(code.op(f"icmp eq i8 {left}, 0"), stay, leave)
            code.label(leave)
            code.call("void", "am_leave", [])
            code.line("unreachable")
            code.label(stay)
            return
        active, leader = "-1", "0"
        if mask is not None:
            active = code.bits(mask)
            leader = code.call("i32", "llvm.cttz.i32", [("i32", active), ("i1", "true")])
        for offset, text in ((ACTIVE, active), (LEADER, leader)):
            place = code.moved("ptr", self._simd, offset)
            code.line(f"store i32 {text}, ptr {place}, align 4")


def _family(callee: str) -> str:
    """An intrinsic's name without the types at its end."""
    words = callee.split(".")
    while len(words) > 2 and _is_type(words[-1]):
        words.pop()
    return ".".join(words)


def _is_type(word: str) -> bool:
    return word in ("f16", "bf16", "f32", "f64", "p0") or (word[:1] in "iv" and word[1:2].isdigit())
