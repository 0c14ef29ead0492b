"""Accesses that only move bits: what is read is stored as it is, or taken for a float's bits.

A kernel that copies floats as `uint` is right, and one that counts in them is not.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from anymetal.ir import Float, Function, Instruction, Integer, Type, Vector

_MOVES = frozenset(
    ("phi", "select", "freeze", "extractelement", "insertelement", "shufflevector", "extractvalue")
)
_OF_BITS = frozenset(("zext", "trunc", "shl", "lshr", "and", "or"))


class Moves:
    """Answers for the accesses of one function."""

    def __init__(self, function: Function, users: Mapping[str, Sequence[Instruction]]) -> None:
        self._users = users
        self._function = function

    @functools.cached_property
    def _definitions(self) -> dict[str, Instruction]:
        return self._function.definitions()

    def is_move(self, access: Instruction) -> bool:
        """Whether a load or store of integers leaves them as they are. Others do by definition."""
        if access.opcode == "load":
            return not _is_integer(access.type) or self._goes(str(access.result), set(), False)
        if access.opcode == "store":
            value = access.value
            return not _is_integer(value.type) or self._comes(value.text, set(), False)
        return access.opcode == "call"

    def _goes(self, value: str, seen: set[str], changed: bool) -> bool:
        """Whether all that becomes of a value is a store, or a float."""
        if value in seen:
            return True
        seen.add(value)
        for user in self._users.get(value, ()):
            if user.opcode == "store":
                good = user.value.text == value and not changed
            elif user.opcode in _MOVES | _OF_BITS:
                good = self._goes(str(user.result), seen, changed or user.opcode in _OF_BITS)
            else:
                good = _makes_float(user)
            if not good:
                return False
        return True

    def _comes(self, value: str, seen: set[str], changed: bool) -> bool:
        """Whether a value is what was loaded, or the bits of a float."""
        if value in seen or not value.startswith("%"):
            return True
        seen.add(value)
        made = self._definitions.get(value)
        if made is None:
            return False
        if made.opcode == "load":
            return not changed
        if made.opcode in _MOVES | _OF_BITS:
            whole = changed or made.opcode in _OF_BITS
            operands = made.operands[1:] if made.opcode == "select" else made.operands
            return all(self._comes(o.text, seen, whole) for o in operands if _is_integer(o.type))
        return made.opcode == "bitcast" and not _is_integer(made.operands[0].type)


def _makes_float(user: Instruction) -> bool:
    return user.opcode == "bitcast" and not _is_integer(user.type)


def _is_integer(kind: Type) -> bool:
    scalar = kind.element if isinstance(kind, Vector) else kind
    return isinstance(scalar, Integer) or not isinstance(scalar, Float)
