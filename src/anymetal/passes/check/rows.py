"""Indices into a row of an array or into an array that is a member: marked where they are used.

An index past the end of a row still points into the variable, so its bounds do not tell.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from anymetal.ir import Array, Function, Global, Instruction, Module, Operand, Type

_ACCESSES = frozenset(("load", "store", "atomicrmw", "cmpxchg"))


@dataclass(frozen=True)
class RowIndex:
    """An index and how many elements there are."""

    index: Operand
    count: int


class Rows:
    """Finds the indices of one function that must be checked.

    `of_array`: the function is one of metal::array's, which hands out a reference to an element.
    """

    def __init__(self, function: Function, module: Module, *, of_array: bool = False) -> None:
        self._function = function
        self._module = module
        self._of_array = of_array

    @functools.cached_property
    def _definitions(self) -> dict[str, Instruction]:
        return self._function.definitions()

    @functools.cached_property
    def _users(self) -> dict[str, list[Instruction]]:
        return self._function.users()

    @functools.cached_property
    def _globals(self) -> dict[str, Global]:
        return self._module.globals

    def index(self, step: Instruction) -> RowIndex | None:
        """The index that a getelementptr takes into a part of a variable, if it is doubtful."""
        if "[" not in step.text:
            return None
        kind = step.element
        # An array of one at the end of a structure stands for as many as there are.
        if not isinstance(kind, Array) or kind.count < 2 or len(step.operands) != 3:
            return None
        index = step.operands[2]
        if index.integer is not None and 0 <= index.integer < kind.count:
            return None
        if self._of_array or (self._is_part(step.pointer, kind) and self._is_accessed(step)):
            return RowIndex(index, kind.count)
        return None

    def _is_part(self, pointer: Operand, kind: Type) -> bool:
        """Whether the array is a row or a member of something larger."""
        if pointer.is_global:
            return pointer.text in self._globals and self._globals[pointer.text].type is not kind
        made = self._definitions.get(pointer.text)
        if made is None:
            return not pointer.is_name
        return made.opcode == "getelementptr" or (
            made.opcode == "alloca" and made.element is not kind
        )

    def _is_accessed(self, step: Instruction) -> bool:
        """Whether there is a load or store at the address, and not only the address itself."""
        waiting = [str(step.result)]
        for result in waiting:
            for user in self._users.get(result, ()):
                if user.opcode in _ACCESSES and user.pointer.text == result:
                    return True
                if (user.callee or "").startswith("llvm.mem"):
                    return True
                if user.opcode == "getelementptr":
                    waiting.append(str(user.result))
        return False
