"""Signed 32-bit arithmetic whose result becomes an index: found before anything is simplified.

Signed overflow is undefined to Apple's compiler, and wraps around here. The IR does not say which
additions are signed, but an index that is widened with its sign is, and so is what it is made of.
Indices are followed back through variables, helper functions and their parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from anymetal.ir import I32, I64, Function, Instruction, Operand

CHECKED = {"add": 0, "sub": 1, "mul": 2}
_PASSED_ON = frozenset(("phi", "select", "freeze", "sext", "trunc", *CHECKED))


class _Values:
    """The values of one function: what defines them, what is stored where, who calls whom."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self.parameters = [parameter.name for parameter in function.parameters]

    @functools.cached_property
    def definitions(self) -> dict[str, Instruction]:
        return self._function.definitions()

    @functools.cached_property
    def stored(self) -> dict[str, list[Operand]]:
        """What is stored in each variable."""
        found: dict[str, list[Operand]] = {}
        for instruction in self._function.instructions():
            if instruction.opcode == "store":
                found.setdefault(instruction.pointer.text, []).append(instruction.value)
        return found

    @functools.cached_property
    def returned(self) -> list[Operand]:
        ends = (i for i in self._function.instructions() if i.opcode == "ret")
        return [operand for end in ends for operand in end.operands]

    def indices(self) -> Iterator[Operand]:
        for step in self._function.instructions():
            if step.opcode == "getelementptr":
                yield from (operand for operand in step.operands[1:] if operand.is_name)


def doubtful_indices(functions: Iterable[Function]) -> set[int]:
    """The arithmetic to be checked, as the `id` of its instructions."""
    known = [function for function in functions if _widens(function)]
    return _Search(functions).run(known) if known else set()


def _widens(function: Function) -> bool:
    return any("sext i32" in i.text for block in function.blocks for i in block.instructions)


class _Search:
    """One search through all functions of the author's."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self._values = {function.name: _Values(function) for function in functions}
        self._functions = {function.name: function for function in functions}
        self._waiting: list[tuple[str, Operand]] = []
        self._seen: set[tuple[str, str]] = set()
        self._found: set[int] = set()

    def run(self, known: Iterable[Function]) -> set[int]:
        for function in known:
            for index in self._values[function.name].indices():
                self._add(function.name, index)
        while self._waiting:
            name, value = self._waiting.pop()
            self._follow(name, value)
        return self._found

    def _add(self, function: str, value: Operand) -> None:
        if value.is_name and value.type in (I32, I64) and (function, value.text) not in self._seen:
            self._seen.add((function, value.text))
            self._waiting.append((function, value))

    def _follow(self, name: str, value: Operand) -> None:
        values = self._values[name]
        made = values.definitions.get(value.text)
        if made is None:
            self._follow_parameter(name, value)
        elif made.opcode == "load":
            for stored in values.stored.get(made.pointer.text, ()):
                self._add(name, stored)
        elif made.opcode == "call" and made.callee in self._values:
            for result in self._values[made.callee].returned:
                self._add(made.callee, result)
        elif made.opcode in _PASSED_ON:
            if made.opcode in CHECKED and value.type is I32 and _may_overflow(made):
                self._found.add(id(made))
            for operand in made.operands:
                self._add(name, operand)

    def _follow_parameter(self, name: str, value: Operand) -> None:
        parameters = self._values[name].parameters
        if value.text not in parameters:
            return
        place = parameters.index(value.text)
        for caller, function in self._functions.items():
            for call in function.calls(name):
                if place < len(call.operands):
                    self._add(caller, call.operands[place])


def _may_overflow(made: Instruction) -> bool:
    """A counter that goes up by one does not, before the loop has ended."""
    return made.opcode == "mul" or all(operand.is_name for operand in made.operands)
