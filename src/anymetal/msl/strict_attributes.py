"""Attributes that Metal does not have: most are one it has, spelled another way."""

from __future__ import annotations

import difflib

from anymetal.msl.builtins import BUILTINS, OTHER_ATTRIBUTES, UNSUPPORTED_ATTRIBUTES
from anymetal.msl.diagnostics import Problem
from anymetal.msl.reflect import Attribute, Kernel, attributes_in
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Structure

_KNOWN = (*BUILTINS, *OTHER_ATTRIBUTES, *UNSUPPORTED_ATTRIBUTES)


class AttributeChecker:
    """Apple's compiler ignores an unknown attribute, with a warning. On a parameter of a kernel it
    is an error here: the parameter then has nothing to take its value from, or another buffer."""

    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.tokens = structure.tokens
        self.origins = origins
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def run(self, kernels: list[Kernel]) -> None:
        parameters = [kernel.function.parameters for kernel in kernels]
        for index, text in enumerate(self.tokens.texts):
            if text != "[" or not self.tokens.is_attribute(index):
                continue
            is_parameter = any(start < index < end for start, end in parameters)
            for attribute in attributes_in(self.tokens, index, self.tokens.after(index)):
                if not self._is_known(attribute):
                    self._report(attribute, "error" if is_parameter else "warning")

    def _is_known(self, attribute: Attribute) -> bool:
        """Those of a namespace, as in `clang::noinline`, are the compiler's own matter."""
        is_qualified = "::" in (
            self.tokens.text(attribute.index - 1),
            self.tokens.text(attribute.index + 1),
        )
        return is_qualified or attribute.name.strip("_") in _KNOWN

    def _report(self, attribute: Attribute, severity: str) -> None:
        near = difflib.get_close_matches(attribute.name, _KNOWN, n=1, cutoff=0.5)
        starting = [name for name in BUILTINS if name.startswith(attribute.name)]
        meant = (starting or near)[:1]
        text = f"unknown attribute '{attribute.name}' ignored"
        text += f"; did you mean '{meant[0]}'?" if meant else ""
        position = self.origins.position(self.tokens.tokens[attribute.index])
        kept = self.problems if severity == "error" else self.warnings
        kept.append(Problem(position, severity, text))
