"""PTX goes in; what every register is surely a multiple of comes out, as a number of low bits that
are zero.

A register's value is a multiple of what all instructions that write it make: those of a loop are
looked at until nothing changes any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from anymetal.engines.cuda.assembly import Address, Line
from anymetal.engines.cuda.block import Block
from anymetal.engines.cuda.target import ENTRY

_ALL = 64  # the low bits of 0 that are zero
_LARGEST = 6  # more is of no use
_PARAMETER = f"{ENTRY}_param_0"
_ARRAYS_ALIGNED = 4  # bits; launches place [[threadgroup(n)]] parameters at multiples of 16
_VARIABLE = re.compile(r"\.align (\d+) \.[busf]\d+\s+([\w$.]+)")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)$")
_BYTES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8}

Rule = Callable[[Sequence[int], Sequence[str]], int]  # of operands' zero bits and their texts


def zero_bits(number: int) -> int:
    """The low bits of a number that are zero."""
    return (number & -number).bit_length() - 1 if number else _ALL


def variables_of(text: str) -> dict[str, int]:
    """The zero bits of the addresses of a module's variables."""
    return {name: zero_bits(int(align)) for align, name in _VARIABLE.findall(text)}


class Code:
    """The instructions of one function, as far as they tell what registers are multiples of."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.rules: list[tuple[str, Rule, list[str]]] = []  # a register, and what makes it
        self.loads: list[tuple[Line, list[str]]] = []  # from the block of arguments
        self.unknown: set[str] = set()  # what is made in ways that tell nothing
        self.bases = {_PARAMETER}  # names of the block's address
        for line in lines:
            if line.text.lstrip().startswith("{"):  # several instructions in one line
                self.unknown.update(line.all_registers)
            elif line.opcode:
                self._read(line)

    def _read(self, line: Line) -> None:
        results, rest = _result_and_rest(line)
        if line.opcode.startswith("mov.") and rest == [_PARAMETER]:
            self.bases.update(results)
        if line.opcode.startswith("ld.param."):
            self.loads.append((line, results))
            return
        rule = _rule_of(line.opcode, rest) if len(results) == 1 else None
        if rule is None:
            self.unknown.update(results)
        else:
            self.rules.append((results[0], *rule))


class Multiples:
    """What is known of the registers of a function. `buffers` are the zero bits of the addresses
    that stand in its block of arguments; `variables` those of what has a name."""

    def __init__(
        self,
        code: Code,
        block: Block,
        buffers: Mapping[int, int],
        variables: Mapping[str, int],
    ) -> None:
        self._code = code
        self._block = block
        self._buffers = buffers
        self._variables = variables
        self._known = {result: _ALL for result, _, _ in code.rules}
        for line, results in code.loads:
            for place, result in enumerate(results):
                bits = self._loaded(line, place)
                self._known[result] = min(self._known.get(result, _ALL), bits)
        self._known.update(dict.fromkeys(code.unknown, 0))
        while self._learn_more():
            pass

    def _learn_more(self) -> bool:
        """Whether a look at all instructions lowers what was known of any register."""
        changed = False
        for result, rule, rest in self._code.rules:
            known = self._known[result]
            if known:
                bits = rule([self.of(operand) for operand in rest], rest)
                if bits < known:
                    self._known[result] = bits
                    changed = True
        return changed

    def at(self, address: Address) -> int:
        """What an address is a multiple of: a power of two, in bytes."""
        bits = min(self.of(address.base), zero_bits(address.offset))
        return 1 << min(bits, _LARGEST)

    def of(self, operand: str) -> int:
        """The zero bits of a register, a number or the address of a variable."""
        known = self._known.get(operand)
        if known is not None:
            return known
        if _INTEGER.match(operand):
            return zero_bits(int(operand, 0))
        return self._variables.get(operand, 0)

    def _loaded(self, line: Line, place: int) -> int:
        """The zero bits of one of the values that are loaded from the block of arguments."""
        address = line.address
        size = _BYTES.get(line.opcode.rsplit(".", 1)[-1], 0)
        if address is None or address.base not in self._code.bases:
            return 0
        offset = address.offset + place * size
        if size == _BYTES["b32"] and self._block.arrays_at <= offset < self._block.arrays_end:
            return _ARRAYS_ALIGNED
        if size != _BYTES["b64"] or not self._block.is_address(offset):
            return 0
        return self._buffers.get(self._block.buffer_at(offset) or 0, 0)


def _rule_of(opcode: str, operands: list[str]) -> tuple[Rule, list[str]] | None:
    """How an instruction's result follows from its operands, or from the parts that it is put
    together of; None where nothing is known of it."""
    name, *kinds = opcode.split(".")
    if not kinds or kinds[-1][0] not in "bsu":
        return None
    if any(kind[0] == "f" or kind in ("hi", "sat") for kind in kinds):
        return None
    if operands and operands[0].startswith("{"):
        parts = _parts(operands[0])
        return _lowest_part(int(kinds[-1][1:]) // len(parts)), parts
    rule = _RULES.get(name)
    return (rule, operands) if rule and operands else None


def _parts(operand: str) -> list[str]:
    return [part.strip() for part in operand.strip("{}").split(",")]


def _result_and_rest(line: Line) -> tuple[list[str], list[str]]:
    """The registers that an instruction writes, and its other operands."""
    if line.opcode.startswith(("st.", "red.", "bra", "ret", "bar", "call")):
        return [], []
    first, *rest = line.operands or [""]
    written = _parts(first) if first.startswith("{") else first.split("|")
    return [one for one in written if one.startswith("%")], rest


def _lowest_part(width: int) -> Rule:
    return lambda bits, _: min(bits[0], width)


def _least(bits: Sequence[int], _: Sequence[str]) -> int:
    return min(bits)


def _first(bits: Sequence[int], _: Sequence[str]) -> int:
    return bits[0]


def _of_either(bits: Sequence[int], _: Sequence[str]) -> int:
    return min(bits[:2])


def _most(bits: Sequence[int], _: Sequence[str]) -> int:
    return max(bits)


def _product(bits: Sequence[int], _: Sequence[str]) -> int:
    return bits[0] + bits[1]


def _product_and_sum(bits: Sequence[int], _: Sequence[str]) -> int:
    return min(bits[0] + bits[1], bits[2])


def _shifted_left(bits: Sequence[int], operands: Sequence[str]) -> int:
    return bits[0] + (int(operands[1], 0) if _INTEGER.match(operands[1]) else 0)


def _shifted_right(bits: Sequence[int], operands: Sequence[str]) -> int:
    return max(bits[0] - int(operands[1], 0), 0) if _INTEGER.match(operands[1]) else 0


def _funnel(bits: Sequence[int], operands: Sequence[str]) -> int:
    """`shf.l.wrap` from zeros is a shift to the left (assembler_faults.py)."""
    return bits[1] if operands[0] == "0" else 0


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("add", "sub", "or", "xor", "min", "max"), _least),
    **dict.fromkeys(("mov", "cvt", "cvta", "neg"), _first),
    "selp": _of_either,
    "and": _most,
    "mul": _product,
    "mad": _product_and_sum,
    "shl": _shifted_left,
    "shr": _shifted_right,
    "shf": _funnel,
}
