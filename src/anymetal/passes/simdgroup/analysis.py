"""Divergence analysis: which values are uniform, patterns or varying, which branches diverge."""

from __future__ import annotations

from dataclasses import replace

from anymetal.ir import Instruction, Operand
from anymetal.passes.simdgroup.facts import PRIVATE, UNIFORM, VARYING, Facts, meet, normal
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.kernel import Kernel
from anymetal.passes.simdgroup.rules import GroupShape, Rules, literal

_MOST_PASSES = 100
# Parts of the machine that are one value as long as a thread runs.
_LASTING = frozenset(("self", "simd", "group", "lane", "position", "group_position", "group_size"))


class Analysis:
    """The facts of every value of a kernel: an optimistic fixed-point iteration."""

    def __init__(self, kernel: Kernel, shape: GroupShape) -> None:
        self.kernel = kernel
        self.private = private_arrays(kernel)
        self.rules = Rules(kernel.types, shape, self.private)
        self.facts: dict[str, Facts] = {
            kernel.buffers.text: UNIFORM,
            kernel.self.text: replace(UNIFORM, tag=("self", 0)),
        }
        self.divergent: set[str] = set()  # blocks that end in a divergent branch
        self._mixed: set[str] = set()  # join points of divergent branches: their phis mix lanes
        self._users = _users(kernel)
        # Results to look at: those that were not, or of which an operand has changed since.
        self._stale = set(kernel.definitions)
        for _ in range(_MOST_PASSES):
            if not self._pass():
                return
        raise NotVectorisable("what lanes share could not be settled")

    def of(self, operand: Operand) -> Facts:
        if not operand.is_name:
            return literal(operand)
        return self.facts.get(operand.text, UNIFORM)

    def _pass(self) -> bool:
        changed = False
        for label in self.kernel.flow.order:
            for instruction in self.kernel.blocks[label]:
                name = instruction.result
                if name is not None and name in self._stale:
                    self._stale.remove(name)
                    is_phi = instruction.opcode == "phi"
                    new = self._phi(label, instruction) if is_phi else self._plain(instruction)
                    if self.facts.get(name) != new:
                        self.facts[name] = new
                        self._stale.update(self._users.get(name, ()))
                        changed = True
            changed |= self._look_at_branch(label)
        return changed

    def _plain(self, instruction: Instruction) -> Facts:
        return normal(self.rules.facts(instruction, self.of))

    def _phi(self, label: str, instruction: Instruction) -> Facts:
        if label in self._mixed and not self._is_one_thing(instruction):
            return VARYING
        result: Facts | None = None
        for operand in instruction.operands:
            if operand.is_name and operand.text not in self.facts:
                continue
            facts = self.of(operand)
            if not facts.sure:
                return VARYING
            if facts.tag is not None and facts.tag[0] == PRIVATE:
                raise AssertionError("a private array's address in a phi")
            result = facts if result is None else meet(result, facts)
        # A limit that holds on entry need not hold after some iterations of a loop.
        return normal(replace(result, limit=None)) if result is not None else UNIFORM

    def _is_one_thing(self, instruction: Instruction) -> bool:
        """Whether a phi has one value on every edge: a constant or a part of the machine."""
        brought = {self.of(operand) for operand in instruction.operands}
        if len(brought) != 1:
            return False
        facts = brought.pop()
        return facts.values is not None or (facts.tag is not None and facts.tag[0] in _LASTING)

    def _look_at_branch(self, label: str) -> bool:
        terminator = self.kernel.blocks[label][-1]
        if label in self.divergent or terminator.opcode != "br" or not terminator.operands:
            return False
        if self.of(terminator.operands[0]).is_uniform:
            return False
        self.divergent.add(label)
        joins = self.kernel.flow.divergence(label).joins
        self._mixed |= joins
        for join in joins & self.kernel.blocks.keys():
            self._stale.update(str(phi.result) for phi in self.kernel.phis(join))
        return True


def _users(kernel: Kernel) -> dict[str, list[str]]:
    """The results that are computed from each value."""
    users: dict[str, list[str]] = {}
    for name, (_, instruction) in kernel.definitions.items():
        for operand in instruction.operands:
            if operand.is_name:
                users.setdefault(operand.text, []).append(name)
    return users


def private_arrays(kernel: Kernel) -> dict[str, int]:
    """For each array of a thread, the bytes of the elements that are interleaved over the lanes.

    Possible where the code only indexes it and loads or stores elements of one size: then the same
    element of all lanes is one contiguous vector. Otherwise 0: a whole copy for each lane.
    """
    names = [n for n, (_, made) in kernel.definitions.items() if made.opcode == "alloca"]
    uses = _uses(kernel) if names else {}
    return {name: _piece(kernel, name, uses) for name in names}


def _uses(kernel: Kernel) -> dict[str, list[Instruction]]:
    """The instructions that each value is an operand of."""
    uses: dict[str, list[Instruction]] = {}
    for label in kernel.flow.order:
        for instruction in kernel.blocks[label]:
            for name in set(instruction.names):
                uses.setdefault(name, []).append(instruction)
    return uses


def _piece(kernel: Kernel, name: str, uses: dict[str, list[Instruction]]) -> int:
    sizes: set[int] = set()
    steps: set[int] = set()
    rules = Rules(kernel.types, GroupShape(), {})
    pointers = [name]
    while pointers:
        pointer = pointers.pop()
        for instruction in uses.get(pointer, ()):
            is_first = instruction.operands[0].text == pointer
            if instruction.opcode == "getelementptr" and is_first and instruction.result:
                pointers.append(instruction.result)
                for index, size in rules.steps(instruction):
                    steps.add(size * (1 if index.integer is None else index.integer))
            elif instruction.opcode == "load" and not instruction.is_atomic:
                sizes |= {kernel.types.size(leaf) for leaf in kernel.types.leaves(instruction.type)}
                if kernel.types.parts(instruction.type):
                    return 0
            elif instruction.opcode == "store" and not is_first and not instruction.is_atomic:
                kind = instruction.operands[0].type
                if kernel.types.parts(kind):
                    return 0
                sizes.add(kernel.types.size(kind))
            else:
                return 0
    if len(sizes) != 1:
        return 0
    piece = sizes.pop()
    return piece if all(step % piece == 0 for step in steps) else 0
