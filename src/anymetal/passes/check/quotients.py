"""Divisions whose results are followed, to tell one by zero that matters from one that does not.

`uint q = i / n; if (n != 0) y[i] = q;` divides by zero where n is 0, and nobody uses what comes out
of it. So a division is marked twice: by a check where it stands, and by a call in its place, which
has no side effects and thus goes where its result is never used. Where the result is, it is
followed (passes/check/followed.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anymetal.ir import I32, Builder, Function, Instruction, Module, Operand, constant, i32
from anymetal.passes.check.followed import Followed
from anymetal.passes.lower.arithmetic import DIVISIONS
from anymetal.passes.rewrite import rewrite

QUOTIENT = "am_quotient"
_OPCODES = sorted(DIVISIONS)
_PURE = ("memory(none)", "nounwind", "willreturn")


def hide(build: Builder, module: Module, division: Instruction, opcode: str = "") -> None:
    """A call instead of a division: no pass may take anything from a divisor being unlike zero.
    `opcode` says which it is where a function divides."""
    name = f"{QUOTIENT}.{division.type}"
    module.declare(name, division.type, [I32, division.type, division.type], _PURE)
    operands = [i32(_OPCODES.index(opcode or division.opcode)), *division.operands]
    build.call(division.type, name, operands, name=str(division.result))
    if "dbg" in division.metadata:
        build.made[-1].attach("dbg", division.metadata["dbg"])


def restore(function: Function) -> dict[str, Instruction]:
    """Divisions again for all calls; gives those that may be by zero, by their results."""
    found: dict[str, Instruction] = {}

    def emit(build: Builder, call: Instruction) -> bool:
        if not (call.callee or "").startswith(QUOTIENT):
            return False
        opcode, left, right = call.operands
        build.binary(_OPCODES[opcode.integer or 0], left, right, name=str(call.result))
        division = build.made[-1]
        if "dbg" in call.metadata:
            division.attach("dbg", call.metadata["dbg"])
        if right.integer is None or right.integer == 0:
            found[str(call.result)] = division
        return True

    rewrite(function, emit)
    return found


class Quotients(Followed):
    """The divisions of one function whose results are followed."""

    def __init__(
        self,
        function: Function,
        divisions: Mapping[str, Instruction],
        users: Mapping[str, Sequence[Instruction]],
    ) -> None:
        super().__init__(function, divisions, users, "quotient")

    def is_wrong(self, build: Builder, source: Instruction) -> Operand:
        divisor = source.operands[1]
        return build.icmp("eq", divisor, constant(divisor.type, 0))

    def stands_for(self, mark: Instruction) -> bool:
        """Whether a division that is used at once follows its mark: then its check is enough."""
        return any(
            self.is_used_at_once(division)
            and division.operands[1].text == mark.operands[0].text
            and division.metadata.get("dbg") == mark.metadata.get("dbg")
            and self.blocks[id(division)] is self.blocks[id(mark)]
            for division in self.sources.values()
        )
