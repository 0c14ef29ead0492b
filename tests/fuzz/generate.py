"""A seed in, a random kernel out: well defined, by construction and by a run of the model."""

from __future__ import annotations

import random
from collections.abc import Callable

from . import tree
from .expressions import binary, compare, convert, uint
from .functions import make_functions
from .memory import ModelError
from .model import Expected, run
from .phases import Phases
from .scalars import FLOATS, LETTERS, Unsuitable, element, is_float, is_integer, width
from .scope import GROUP, SIMD, Local, Output, Scope
from .tree import Expression, Kernel, Memory, Statement

# Grids and threadgroups: whole and partial simdgroups, whole and ragged grids.
LAUNCHES: tuple[tuple[list[int], list[int]], ...] = (
    ([64], [32]),
    ([96], [32]),
    ([128], [64]),
    ([256], [128]),
    ([60], [20]),
    ([200], [100]),
    ([150], [64]),
    ([37], [37]),
    ([16, 12], [8, 8]),
    ([32, 5], [16, 2]),
    ([10, 14, 4], [5, 7, 2]),
    ([11, 9, 3], [5, 7, 2]),
    ([70], [33]),
    ([1], [1]),
    ([33, 3], [32, 2]),
)
Maker = Callable[[Scope], list[Statement]]
ATOMIC_OPERATORS = ("add", "min", "max", "or", "and", "xor")


def generate(seed: int, small: bool = False) -> tuple[Kernel, Expected]:
    """The kernel of a seed and what it should compute. What the model refuses is made again.

    Small kernels compile in a third of the time.
    """
    for attempt in range(100):
        kernel = Generator(random.Random(f"{seed}/{attempt}"), seed, small).kernel
        try:
            return kernel, run(kernel)
        except Unsuitable:
            continue
        except ModelError as error:
            raise AssertionError(f"seed {seed}, attempt {attempt}: {error}") from error
    raise AssertionError(f"seed {seed}: no suitable kernel in 100 attempts")


class Generator(Phases):
    """Builds one kernel."""

    def __init__(self, rng: random.Random, seed: int, small: bool) -> None:
        grid, group = rng.choice(LAUNCHES)
        kernel = Kernel(
            seed=seed,
            grid=list(grid),
            group=list(group),
            short_indices=rng.random() < 0.3,
            memories=[],
            structs=[],
            functions=[],
            body=[],
        )
        super().__init__(rng, kernel, small)
        self._declare_memories()
        self._declare_structs()
        if self.chance(0.6):
            kernel.functions = make_functions(self)
        kernel.body = self._body()

    def _declare_memories(self) -> None:
        add = self.kernel.memories.append
        for kind in [*self.scalars, "int", *self.vectors]:
            size = self.rng.choice([32, 40, 64, 97, 128, 257])
            add(Memory(self.name("in"), "input", kind, size))
        for kind in self.rng.sample(["int", "float", "uint"], 2):
            add(Memory(self.name("table"), "constant", kind, self.rng.choice([4, 16, 33])))
        add(Memory("n", "scalar", "uint", 1))
        if self.chance(0.6):
            add(Memory("m", "scalar", "int", 1))
        for kind in ["int", self.rng.choice(self.scalars), *self.vectors[:1]]:
            self._add_output(kind)
        if self.chance(0.5):
            size = self.rng.choice([1, 5, 32])
            kind = self.rng.choice(["int", "uint"])
            operator = self.rng.choice(ATOMIC_OPERATORS)
            add(Memory("counts", "atomic", kind, size, operator))
        if self.chance(0.15):
            add(Memory("sums", "atomic", "float", self.rng.choice([1, 9]), "add"))
        if self.chance(0.4):
            add(Memory("loose", "output", "float", self.grid_limit, loose=True))
        self._declare_threadgroup_memories()

    def _declare_threadgroup_memories(self) -> None:
        padded = -(-self.group_limit // 32) * 32
        add = self.kernel.memories.append
        if self.chance(0.7):
            power = 1 << (padded - 1).bit_length()
            size = self.rng.choice([padded, padded + 5, power])
            add(Memory(self.name("shared"), "threadgroup", self.rng.choice(self.scalars), size))
        if self.chance(0.25):
            add(Memory(self.name("shared"), "threadgroup", self.vectors[0], padded))
        if self.chance(0.3):
            add(Memory("mail", "threadgroup", self.rng.choice(["int", "float"]), padded))
        if self.chance(0.3):
            operator = self.rng.choice(ATOMIC_OPERATORS)
            add(Memory("tally", "threadgroup", self.rng.choice(["int", "uint"]), 8, operator))

    def _add_output(self, kind: str) -> None:
        slots = self.rng.choice([1, 2, 4, 8])
        layout = self.rng.choice(["rows", "columns", "reversed", "rotated", "columns"])
        memory = Memory(self.name("out"), "output", kind, slots * self.grid_limit)
        self.kernel.memories.append(memory)
        self.outputs.append(Output(memory, slots, layout, self.rng.randrange(1, 9)))

    def _declare_structs(self) -> None:
        if self.chance(0.4):
            plain = [kind for kind in self.scalars if kind != "bfloat"]
            kinds = self.rng.sample([*plain, "int", "half", "char"], 3)
            fields = [[LETTERS[i] + "_value", kind] for i, kind in enumerate(kinds)]
            self.kernel.structs.append(tree.Struct("Record", fields))
            size = self.rng.choice([32, 50])
            self.kernel.memories.append(Memory("records", "input", "Record", size))

    def _body(self) -> list[Statement]:
        scope = Scope()
        for memory in self.kernel.memories:
            if memory.space == "scalar":
                scope.locals.append(Local(memory.name, memory.type, False, GROUP))
        body: list[Statement] = []
        if self.chance(0.15):
            limit = self.rng.randrange(1, self.grid_limit + 1)
            leaves = compare(">=", tree.Variable("uint", "in_grid"), uint(limit))
            body.append(tree.If(leaves, [tree.Return()]))
        for kind in [*self.scalars, *self.vectors[:1]]:
            if not self.small or self.chance(0.6):
                body += self.declare(kind, scope)
        if self.chance(0.4):
            body += self.declare_array(scope)
        if self.kernel.structs and self.chance(0.8):
            body += self.declare_struct(scope)
        for function in self.kernel.functions:
            if self.chance(0.7) and self.may_call(function, scope):
                body += self.call_of(function, scope)
        body += self.statements(scope, self.rng.randrange(3, 9))
        body += self._store_everything(scope)
        return body

    def _store_everything(self, scope: Scope) -> list[Statement]:
        """Whatever a variable holds at the end must be seen."""
        result: list[Statement] = []
        for output in self.outputs:
            kind = output.memory.type
            total: Expression | None = None
            for local in scope.locals:
                value = self._as(kind, self.variable(local))
                if value is not None:
                    operator = "^" if is_integer(kind) else "+"
                    total = value if total is None else binary(operator, total, value)
            if total is not None:
                slot = uint(self.rng.randrange(output.slots))
                result.append(tree.Store(output.memory.name, self.own_index(output, slot), total))
        return result

    def _as(self, kind: str, value: Expression) -> Expression | None:
        """The value in an output's type, if it fits there."""
        if self.kernel.struct(value.type):
            return None
        if width(value.type) > 1:
            if value.type == kind:
                return value
            value = tree.Part(element(value.type), value, LETTERS[width(value.type) - 1])
        if width(kind) > 1:
            return None
        if value.type == "bool":
            return convert(kind, value)
        if is_float(kind) and element(value.type) not in FLOATS:
            return None
        if kind == "half":
            value = self.bounded_value(value, 100)
        return convert(kind, value)

    def statements(self, scope: Scope, count: int) -> list[Statement]:
        result: list[Statement] = []
        for _ in range(count):
            if self.budget <= 0:
                break
            result += self.statement(scope)
        return result

    def statement(self, scope: Scope) -> list[Statement]:
        self.budget -= 1
        choices: list[tuple[float, Maker]] = [
            (6 if scope.depth else 3, self.assign),
            (1.5, lambda s: self.declare(self.rng.choice(self.scalars), s)),
            (0.4, lambda s: self.declare(self.rng.choice(self.vectors), s)),
            (0.5, self.assign_part),
            (0.4, self.declare_array),
            (1, self.store_array),
            (2, self.collective_statement),
        ]
        if not scope.in_function:
            choices += [
                (1.5, self.store_output),
                (0.4, self.read_back),
                (0.7, self.atomic),
                (0.4, self.store_loose),
                (1.5 if self.kernel.functions else 0, self.call),
                (0.4, self.load_record),
            ]
        if scope.depth < 4:
            choices += [
                (2.5, self.branch),
                (0.4, self.mirrored_branch),
                (0.7, self.switch),
                (2, self.counted_loop),
                (0.7, self.while_loop),
                (0.5, self.search_loop),
            ]
        if scope.loop and not scope.in_switch:
            choices.append((4, self.leave_loop))
        if scope.depth and not scope.in_switch:
            choices.append((0.15, self.early_return))
        if scope.level == GROUP and not scope.in_function:
            choices += [(2.5, self.exchange_phase), (0.5, self.tree_reduction)]
            choices.append((0.6, self.tally_phase))
        if scope.level <= SIMD and not scope.in_function:
            choices.append((0.8, self.mail))
        weights, makers = zip(*choices, strict=True)
        maker: Maker = self.rng.choices(makers, weights)[0]
        return maker(scope)
