"""Integer constants in attributes: `[[buffer(FIRST + 2)]]`, `[[function_constant(MODE)]]`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anymetal.msl.structure import Structure
from anymetal.msl.tokens import TokenRange

_LEVELS = (("|",), ("^",), ("&",), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))


class Integers:
    """Evaluates token ranges with the enumerators and constants of the program in sight."""

    def __init__(self, structure: Structure) -> None:
        self.tokens = structure.tokens
        self.values: dict[str, int] = {}
        self._read_enums(structure)
        self._read_variables(structure)

    def evaluate(self, start: int, end: int, given: Mapping[str, int] | None = None) -> int | None:
        """The value, or None where the range is no integer constant that we can see.

        `given` are further names, those of template parameters.
        """
        values = {**self.values, **given} if given else self.values
        return _Parser(self.tokens, start, end, values).value()

    def _read_enums(self, structure: Structure) -> None:
        for enum in structure.enums:
            following: int | None = 0
            for first, last in self.tokens.split_commas(enum.body[0] + 1, enum.body[1]):
                if self.tokens.text(first + 1) == "=":
                    following = self.evaluate(first + 2, last)
                if following is not None and self.tokens.is_name(first):
                    self.values[self.tokens.text(first)] = following
                    following += 1

    def _read_variables(self, structure: Structure) -> None:
        for variable in structure.variables:
            for index in range(variable.head, variable.end):
                if self.tokens.text(index) == "=" and self.tokens.is_name(index - 1):
                    value = self.evaluate(index + 1, variable.end - 1)
                    if value is not None:
                        self.values[self.tokens.text(index - 1)] = value
                    break


class _Parser:
    """Recursive descent over one range; any surprise makes the whole value None."""

    def __init__(self, tokens: TokenRange, index: int, end: int, values: Mapping[str, int]) -> None:
        self.tokens = tokens
        self.index = index
        self.end = end
        self.values = values

    def value(self) -> int | None:
        try:
            result = self._binary(0)
        except (ValueError, ZeroDivisionError):
            return None
        return result if self.index == self.end else None

    def _peek(self) -> str:
        if self.index >= self.end:
            return ""
        text = self.tokens.text(self.index)
        if text == ">" and self.tokens.text(self.index + 1) == ">":
            return ">>"
        return text

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while (operator := self._peek()) in _LEVELS[level]:
            self.index += len(operator) if operator == ">>" else 1
            left = _apply(operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> int:
        text = self._peek()
        if text in ("-", "+", "~"):
            self.index += 1
            value = self._unary()
            return -value if text == "-" else ~value if text == "~" else value
        if text == "(":
            self.index += 1
            value = self._binary(0)
            if self._peek() != ")":
                raise ValueError
            self.index += 1
            return value
        return self._primary()

    def _primary(self) -> int:
        while self.tokens.text(self.index + 1) == "::" and self.index + 2 < self.end:
            self.index += 2  # Enum::value
        text = self._peek()
        self.index += 1
        if text in self.values:
            return self.values[text]
        match = re.fullmatch(r"(0[xX][\da-fA-F']+|0[bB][01']+|\d[\d']*)[uUlL]*", text)
        if match is None:
            raise ValueError(text)
        digits = match[1].replace("'", "")
        is_octal = digits.startswith("0") and digits.isdigit() and len(digits) > 1
        return int(digits, 8 if is_octal else 0)


def _apply(operator: str, left: int, right: int) -> int:
    match operator:
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "&":
            return left & right
        case "<<":
            return left << right
        case ">>":
            return left >> right
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    quotient = abs(left) // abs(right)
    quotient = quotient if (left < 0) == (right < 0) else -quotient
    return quotient if operator == "/" else left - right * quotient
