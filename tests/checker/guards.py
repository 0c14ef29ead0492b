"""Tensors go in; out come copies with guard bytes on both sides, outside of their storage."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from bad_kernel import Argument

_GUARD = 256


@dataclass(frozen=True)
class Guarded:
    """Arguments for a launch, and the memory their tensors lie in."""

    arguments: list[Argument]
    arenas: list[bytearray]
    fill: int

    def touched(self) -> bool:
        """Whether a guard byte was written."""
        edge = bytes([self.fill]) * _GUARD
        return any(arena[:_GUARD] != edge or arena[-_GUARD:] != edge for arena in self.arenas)

    def contents(self) -> tuple[bytes, ...]:
        """What the tensors hold."""
        return tuple(bytes(arena[_GUARD:-_GUARD]) for arena in self.arenas)


def guarded(arguments: list[Argument], fill: int = 0) -> Guarded:
    """The same arguments between guard bytes of the value `fill`."""
    arenas: list[bytearray] = []
    copies: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            size = argument.numel() * argument.element_size()
            arena = bytearray([fill]) * (size + 2 * _GUARD)
            arenas.append(arena)
            inside = torch.frombuffer(
                arena, dtype=argument.dtype, count=argument.numel(), offset=_GUARD
            )
            copies.append(inside.view(argument.shape).copy_(argument))
        else:
            copies.append(argument)
    return Guarded(copies, arenas, fill)
