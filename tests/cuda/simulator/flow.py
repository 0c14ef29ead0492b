"""Where the loops of a kernel are, and which of two lanes is behind the other."""

from __future__ import annotations

from itertools import pairwise

from tests.cuda.simulator.ptx import Instruction, Kernel, Label

from anymetal.ir.flow import loop_aware_order


def label_of(name: str) -> str:
    """A label as C++ has it."""
    return name.replace("$", "S")


def rounds_of(header: str) -> str:
    """The register that counts the rounds of a loop."""
    return f"rounds_of_{label_of(header)}"


class Flow:
    """Where loops are, and what comes before what."""

    def __init__(self, kernel: Kernel) -> None:
        block: list[Instruction] = []
        blocks = {"": block}
        for item in kernel.code:
            if isinstance(item, Label):
                block = blocks[item.name] = []
            else:
                block.append(item)
        following = dict(pairwise(blocks))
        graph = {
            name: _successors(kernel, code, following.get(name)) for name, code in blocks.items()
        }
        order, self._loops = loop_aware_order(_reachable(graph), "")
        self._ranks = {name: number for number, name in enumerate(order)}
        self.headers = {loop.header for loop in self._loops}

    def is_round(self, block: str, header: str) -> bool:
        return any(loop.header == header and block in loop.blocks for loop in self._loops)

    def when(self, block: str, place: int) -> list[str]:
        """What tells which of two lanes is behind the other: the first number that differs. Those
        for which none does are at the same place in the same rounds of all loops around it."""
        found = []
        for loop in self._loops:
            if block in loop.blocks:
                found += [str(self._ranks[loop.header]), f"r.{rounds_of(loop.header)}"]
        return [*found, str(self._ranks.get(block, len(self._ranks))), str(place)]


def _reachable(graph: dict[str, list[str]]) -> dict[str, list[str]]:
    reached, pending = {""}, [""]
    while pending:
        new = [name for name in graph[pending.pop()] if name not in reached]
        reached.update(new)
        pending += new
    return {name: successors for name, successors in graph.items() if name in reached}


def _successors(kernel: Kernel, block: list[Instruction], following: str | None) -> list[str]:
    found: list[str] = []
    for one in block:
        first = one.parts[0]
        if first == "bra":
            found.append(str(one.operands[0]))
        elif first == "brx":
            found += kernel.tables[str(one.operands[1])]
        if first in ("bra", "brx", "ret", "exit", "trap") and not one.guard:
            return list(dict.fromkeys(found))
    return list(dict.fromkeys([*found, *([following] if following else [])]))
