"""What a version of the language does not have yet, where another one has it."""

from __future__ import annotations

from anymetal.msl.diagnostics import Problem
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Structure
from anymetal.nouns import Language

# Functions that Metal 3.2 brought.
_SINCE_3_2 = frozenset({"atomic_thread_fence"})
_BEHIND_CAPTURES = frozenset({"(", "{", "<", "mutable", "->"})
_BEFORE_EXPRESSIONS = frozenset({"return", "case", "else", "do"})
_CLOSING = frozenset({")", "]", "}", ">"})


class LanguageChecker:
    def __init__(self, structure: Structure, origins: Origins, language: Language) -> None:
        self.tokens = structure.tokens
        self.origins = origins
        self.language = language
        self.problems: list[Problem] = []

    def run(self) -> None:
        if self.language != "3.1":
            return
        for index, text in enumerate(self.tokens.texts):
            if text == "[" and self._starts_lambda(index):
                self._refuse(index, "lambda expressions are not supported in Metal")
            elif text in _SINCE_3_2 and self.tokens.text(index + 1) == "(":
                self._refuse(index, f"use of undeclared identifier '{text}'")

    def _starts_lambda(self, index: int) -> bool:
        """Brackets with captures: neither a subscript, nor an array's extent, nor an attribute."""
        tokens = self.tokens
        if tokens.is_attribute(index) or tokens.is_attribute(index - 1):
            return False
        before = tokens.text(index - 1)
        follows_value = before in _CLOSING or (
            index > 0
            and tokens.tokens[index - 1].kind != "symbol"
            and before not in _BEFORE_EXPRESSIONS
        )
        return not follows_value and tokens.text(tokens.after(index)) in _BEHIND_CAPTURES

    def _refuse(self, index: int, text: str) -> None:
        position = self.origins.position(self.tokens.tokens[index])
        note = f"the language is Metal {self.language}; 3.2 has it (compile_shader(language=...))"
        self.problems.append(Problem(position, "error", text))
        self.problems.append(Problem(position, "note", note, brief=True))
