"""What would let a kernel reach the host: a GPU has none of it, and Apple's compiler neither.

Kernels run here as native code of this process. Of the compiler's own functions only those on a
list of harmless ones are taken; attributes that place code, name it or make it run by itself are
refused. Calls of functions that the source does not define are refused where they are compiled.
"""

from __future__ import annotations

import re

from anymetal.msl.diagnostics import Problem
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Structure

# Functions of the compiler: `__builtin_trap`, `__sync_fetch_and_add`, `__c11_atomic_load`.
_INTRINSIC = re.compile(r"__(?:builtin|sync|atomic|c11_atomic|scoped_atomic|arithmetic)_\w+")
# Those that compute from their operands alone: types, bits, hints, integer overflow.
_HARMLESS = re.compile(
    r"__builtin_(?:"
    r"offsetof|types_compatible_p|choose_expr|constant_p|is_constant_evaluated|bit_cast|addressof"
    r"|expect|expect_with_probability|assume|assume_aligned|unreachable|launder"
    r"|convertvector|shufflevector|bitreverse\d+|bswap\d+|rotate(?:left|right)\d+"
    r"|(?:clz|ctz|ffs|popcount|parity|clrsb)(?:s|l|ll|g)?"
    r"|(?:[su]?(?:add|sub|mul)(?:l|ll)?)_overflow"
    r"|is(?:nan|inf|finite|normal|greater|less|unordered)\w*|signbitf?"
    r"|(?:inf|nan|nans|huge_val)f|fabsf|copysignf"
    r")"
)
# Attributes that say where code lies, what it is called, when it runs, or how it is entered.
_REFUSED_ATTRIBUTES = frozenset(
    [
        "alias", "alloc_size", "cleanup", "constructor", "destructor", "ifunc", "init_priority",
        "init_seg", "interrupt", "malloc", "naked", "nocommon", "regparm", "section", "selectany",
        "target", "target_clones", "target_version", "tls_model", "weak", "weak_import", "weakref",
    ]
)  # fmt: skip
_ATTRIBUTE_WORDS = frozenset({"__attribute__", "__attribute", "__declspec"})


class HostChecker:
    """Looks for words that name the machine under the kernel."""

    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.tokens = structure.tokens
        self.origins = origins
        self.problems: list[Problem] = []

    def run(self) -> None:
        for index, token in enumerate(self.tokens.tokens):
            if token.text in _ATTRIBUTE_WORDS:
                self._attributes(index + 1)
            elif self.tokens.is_attribute(index):
                self._attributes(index)
            elif _INTRINSIC.fullmatch(token.text) and not _HARMLESS.fullmatch(token.text):
                self._refuse(index, f"'{token.text}' is not supported in Metal")

    def _attributes(self, opening: int) -> None:
        """Every name inside the brackets, be it `alias`, `__alias__` or `gnu::alias`."""
        for index in range(opening, self.tokens.after(opening)):
            name = self.tokens.text(index).strip("_")
            if name in _REFUSED_ATTRIBUTES and not self._is_argument(index):
                self._refuse(index, f"attribute '{name}' is not supported in Metal")

    def _is_argument(self, index: int) -> bool:
        """`function_constant(section)` names a constant, not an attribute."""
        before = self.tokens.text(index - 2)
        is_call = self.tokens.text(index - 1) == "(" and self.tokens.is_name(index - 2)
        return is_call and before not in _ATTRIBUTE_WORDS

    def _refuse(self, index: int, text: str) -> None:
        position = self.origins.position(self.tokens.tokens[index])
        self.problems.append(Problem(position, "error", text))
