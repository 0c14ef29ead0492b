"""Random use of threadgroup memory: written between barriers, each element by one thread."""

from __future__ import annotations

from . import tree
from .expressions import binary, compare, uint
from .flow import Flow
from .scalars import is_integer, width
from .scope import GROUP, Local, Scope
from .tree import Expression, Memory, Statement


class Phases(Flow):
    """Makes exchanges through threadgroup memory, which all threads still there must reach."""

    def shared(self) -> list[Memory]:
        plain = [m for m in self.kernel.memories if m.space == "threadgroup" and not m.operator]
        return [m for m in plain if m.name != "mail"]

    def own_shared_index(self, memory: Memory) -> Expression:
        """An element of a threadgroup array that no other thread of the group has."""
        own = self.index_variable("in_group")
        choice = self.rng.random()
        if choice < 0.25:
            return binary("-", uint(memory.size - 1), own)
        if choice < 0.45 and memory.size % 2 == 0:
            return binary("^", own, uint(1))
        if choice < 0.6 and memory.size & (memory.size - 1) == 0:
            odd = uint(self.rng.choice([3, 5, 7]))
            return binary("&", binary("*", own, odd), uint(memory.size - 1))
        if choice < 0.75:
            shifted = binary("+", own, uint(self.rng.randrange(1, 40)))
            return binary("%", shifted, uint(memory.size))
        return own

    def exchange_phase(self, scope: Scope) -> list[Statement]:
        """Every thread writes an element of its own between two barriers; then all may read."""
        memories = self.shared()
        if not memories:
            return [tree.Barrier("threadgroup")]
        memory = self.rng.choice(memories)
        index = self.own_shared_index(memory)
        inner = scope.inner(shared_readable=False)
        store = tree.Store(
            memory.name, index, self.tame(self.expression(memory.type, 2, inner), inner)
        )
        written: list[Statement] = [store]
        if self.chance(0.4):
            written = [tree.If(self.condition(2, inner), written)]
        read = tree.Load(memory.type, memory.name, self.index(memory.size, scope))
        local = Local(self.name(), memory.type)
        result: list[Statement] = [tree.Barrier("threadgroup"), *written]
        result += [tree.Barrier("threadgroup"), tree.Declare(local.name, local.type, read)]
        scope.locals.append(local)
        return result

    def tree_reduction(self, scope: Scope) -> list[Statement]:
        memories = [m for m in self.shared() if is_integer(m.type) and width(m.type) == 1]
        if not memories:
            return self.exchange_phase(scope)
        memory = self.rng.choice(memories)
        own = self.index_variable("in_group")
        half = 1 << (memory.size.bit_length() - 2)
        distance = self.name("d")
        far = tree.Variable("uint", distance)
        inner = scope.inner(shared_readable=False)
        here = tree.Load(memory.type, memory.name, own)
        there = tree.Load(memory.type, memory.name, binary("+", own, far))
        operator = self.rng.choice(["+", "^", "|"])
        step = tree.Store(memory.name, own, binary(operator, here, there))
        local = Local(self.name(), memory.type, True, GROUP)
        scope.locals.append(local)
        return [
            tree.Barrier("threadgroup"),
            tree.Store(memory.name, own, self.expression(memory.type, 1, inner)),
            tree.Barrier("threadgroup"),
            tree.Declare(distance, "uint", uint(half)),
            tree.While(
                compare(">", far, uint(0)),
                [
                    tree.If(compare("<", own, far), [step]),
                    tree.Barrier("threadgroup"),
                    tree.Assign(far, "", binary(">>", far, uint(1))),
                ],
            ),
            tree.Declare(local.name, local.type, tree.Load(memory.type, memory.name, uint(0))),
        ]

    def tally_phase(self, scope: Scope) -> list[Statement]:
        """Atomics on threadgroup memory, read after a barrier."""
        if not any(m.name == "tally" for m in self.kernel.memories):
            return self.exchange_phase(scope)
        memory = self.kernel.memory("tally")
        update: list[Statement] = [self.atomic_on(memory, scope)]
        if self.chance(0.5):
            update = [tree.If(self.condition(1, scope), update)]
        local = Local(self.name(), memory.type)
        read = tree.AtomicLoad(memory.type, memory.name, self.index(memory.size, scope))
        result = [tree.Barrier("threadgroup"), *update, tree.Barrier("threadgroup")]
        result += [tree.Declare(local.name, local.type, read), tree.Barrier("threadgroup")]
        scope.locals.append(local)
        return result

    def mail(self, scope: Scope) -> list[Statement]:
        """The lanes of a simdgroup pass values on through threadgroup memory."""
        if not any(m.name == "mail" for m in self.kernel.memories):
            return [tree.Barrier("simdgroup")]
        memory = self.kernel.memory("mail")
        start = binary("*", self.index_variable("simd"), uint(32))
        lane = self.index_variable("lane")
        own = binary("+", start, lane)
        shifted = binary("+", lane, uint(self.rng.randrange(1, 32)))
        wanted = binary("+", start, binary("&", shifted, uint(31)))
        value = self.tame(self.expression(memory.type, 2, scope), scope)
        local = Local(self.name(), memory.type)
        result: list[Statement] = [
            tree.Barrier("simdgroup"),
            tree.Store(memory.name, own, value),
            tree.Barrier("simdgroup"),
            tree.Declare(local.name, local.type, tree.Load(memory.type, memory.name, wanted)),
        ]
        scope.locals.append(local)
        return result
