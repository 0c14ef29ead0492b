"""Random statements without control flow: declarations, assignments, memory and calls."""

from __future__ import annotations

import random
from abc import abstractmethod

from . import tree
from .expressions import LANE_SCALARS, Expressions, binary, builtin, literal, uint
from .scalars import LETTERS, element, is_float, is_integer, width
from .scope import Local, LocalArray, Output, Scope
from .tree import Expression, Kernel, Memory, Statement


class Statements(Expressions):
    """Makes statements; what they declare is in the scope afterwards."""

    def __init__(self, rng: random.Random, kernel: Kernel, small: bool) -> None:
        super().__init__(rng, kernel, small)
        self.counter = 0
        self.budget = rng.choice([4, 7, 10, 14] if small else [8, 16, 24, 34])
        self.outputs: list[Output] = []

    @abstractmethod
    def statements(self, scope: Scope, count: int) -> list[Statement]:
        """Up to `count` statements of any kind."""

    def name(self, prefix: str = "v") -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def declare(self, kind: str, scope: Scope) -> list[Statement]:
        name = self.name()
        statement = tree.Declare(name, kind, self.tame(self.expression(kind, 2, scope), scope))
        scope.locals.append(Local(name, kind))
        return [statement]

    def tame(self, value: Expression, scope: Scope) -> Expression:
        """Floating point that grows round by round is held back."""
        if is_float(value.type) and width(value.type) == 1 and (scope.loop or value.type == "half"):
            return self.bounded_value(value, 200)
        return value

    def assignable(self, scope: Scope) -> list[Local]:
        return [v for v in scope.locals if v.mutable and not self.kernel.struct(v.type)]

    def assign(self, scope: Scope) -> list[Statement]:
        choices = self.assignable(scope)
        if not choices:
            return self.declare("int", scope)
        target = self.variable(self.rng.choice(choices))
        value = self.expression(target.type, 3, scope)
        operator = ""
        if is_integer(target.type) and self.chance(0.4):
            operator = self.rng.choice(["+", "-", "*", "^", "|", "&"])
        elif is_float(target.type) and width(target.type) == 1 and not scope.loop:
            operator = self.rng.choice(["", "", "+", "-"])
        if target.type == "bool":
            operator = ""
        return [tree.Assign(target, operator, self.tame(value, scope))]

    def assign_part(self, scope: Scope) -> list[Statement]:
        vectors = [v for v in scope.locals if width(v.type) > 1 and v.mutable]
        structs = [v for v in scope.locals if self.kernel.struct(v.type) and v.mutable]
        if structs and (not vectors or self.chance(0.5)):
            local = self.rng.choice(structs)
            struct = self.kernel.struct(local.type)
            assert struct is not None
            name, kind = self.rng.choice(struct.fields)
        elif vectors:
            local = self.rng.choice(vectors)
            kind = element(local.type)
            name = self.rng.choice(LETTERS[: width(local.type)])
        else:
            return self.assign(scope)
        target = tree.Part(kind, self.variable(local), name)
        return [tree.Assign(target, "", self.tame(self.expression(kind, 2, scope), scope))]

    def declare_array(self, scope: Scope) -> list[Statement]:
        name, kind = self.name("a"), self.rng.choice(["int", "float", *self.scalars])
        size = self.rng.choice([2, 4, 8])
        values = [self.tame(self.leaf(kind, scope), scope) for _ in range(size)]
        scope.arrays.append(LocalArray(name, kind, size))
        return [tree.DeclareArray(name, kind, values)]

    def store_array(self, scope: Scope) -> list[Statement]:
        arrays = [array for array in scope.arrays if array.mutable]
        if not arrays:
            return self.declare_array(scope)
        array = self.rng.choice(arrays)
        index: Expression = uint(self.rng.randrange(array.size))
        if self.chance(0.6):
            value = self.expression(self.rng.choice(["uint", "int"]), 1, scope)
            index = binary("&", value, literal(value.type, array.size - 1))
        value = self.tame(self.expression(array.type, 2, scope), scope)
        return [tree.Store(array.name, index, value)]

    def declare_struct(self, scope: Scope) -> list[Statement]:
        struct = self.kernel.structs[0]
        values = [self.tame(self.expression(kind, 1, scope), scope) for _, kind in struct.fields]
        name = self.name("r")
        scope.locals.append(Local(name, struct.name))
        return [tree.DeclareStruct(name, struct.name, values)]

    def load_record(self, scope: Scope) -> list[Statement]:
        if not self.kernel.structs:
            return self.assign(scope)
        struct, records = self.kernel.structs[0], self.kernel.memory("records")
        record = tree.Load(struct.name, records.name, self.index(records.size, scope))
        known = [v for v in scope.locals if v.type == struct.name]
        if known and self.chance(0.4):
            return [tree.Assign(self.variable(self.rng.choice(known)), "", record)]
        name, kind = self.rng.choice(struct.fields)
        local = Local(self.name(), kind)
        scope.locals.append(local)
        return [tree.Declare(local.name, kind, tree.Part(kind, record, name))]

    def collective_statement(self, scope: Scope) -> list[Statement]:
        if not scope.collectives:
            return self.assign(scope)
        outer = [v for v in self.assignable(scope) if element(v.type) in LANE_SCALARS]
        if scope.depth and outer and self.chance(0.7):  # what is declared here ends here
            target = self.variable(self.rng.choice(outer))
            found = self.collective(target.type, 2, scope)
            return [tree.Assign(target, "", self.tame(found, scope))] if found else []
        kind = self.rng.choice([*self.scalars, *self.vectors, "uint", "int", "bool"])
        value = self.collective(kind, 2, scope)
        if value is None:
            return self.assign(scope)
        local = Local(self.name(), kind)
        scope.locals.append(local)
        return [tree.Declare(local.name, kind, self.tame(value, scope))]

    def own_index(self, output: Output, slot: Expression) -> Expression:
        """An element that belongs to this thread alone."""
        place: Expression = tree.Variable("uint", "in_grid")
        if output.layout == "reversed":
            place = binary("-", uint(self.grid_limit - 1), place)
        elif output.layout == "rotated":
            place = binary("+", place, uint(output.shift))
            place = binary("%", place, uint(self.grid_limit))
        if output.layout == "columns":
            return binary("+", binary("*", slot, uint(self.grid_limit)), place)
        if output.slots == 1:
            return place
        return binary("+", binary("*", place, uint(output.slots)), slot)

    def slot(self, output: Output, scope: Scope) -> Expression:
        if self.chance(0.6):
            return uint(self.rng.randrange(output.slots))
        return binary("&", self.expression("uint", 1, scope), uint(output.slots - 1))

    def store_output(self, scope: Scope) -> list[Statement]:
        output = self.rng.choice(self.outputs)
        index = self.own_index(output, self.slot(output, scope))
        return [
            tree.Store(output.memory.name, index, self.expression(output.memory.type, 2, scope))
        ]

    def read_back(self, scope: Scope) -> list[Statement]:
        output = self.rng.choice(self.outputs)
        kind = output.memory.type
        index = self.own_index(output, self.slot(output, scope))
        local = Local(self.name(), kind)
        scope.locals.append(local)
        return [tree.Declare(local.name, kind, tree.Load(kind, output.memory.name, index))]

    def store_loose(self, scope: Scope) -> list[Statement]:
        if not any(m.name == "loose" for m in self.kernel.memories) or not scope.collectives:
            return self.store_output(scope)
        value = self.expression("float", 2, scope)
        name = self.rng.choice(["simd_sum", "quad_sum", "simd_prefix_inclusive_sum"])
        return [tree.StoreLoose("loose", tree.Variable("uint", "in_grid"), name, value)]

    def atomic(self, scope: Scope) -> list[Statement]:
        memories = [m for m in self.kernel.memories if m.space == "atomic"]
        if not memories:
            return self.assign(scope)
        memory = self.rng.choice(memories)
        return [self.atomic_on(memory, scope)]

    def atomic_on(self, memory: Memory, scope: Scope) -> tree.Atomic:
        value = self.expression(memory.type, 2, scope)
        if is_float(memory.type):
            value = builtin("whole", value)
        operator = memory.operator
        if operator == "add" and not is_float(memory.type) and self.chance(0.3):
            operator = "sub"
        return tree.Atomic(memory.name, operator, self.index(memory.size, scope), value)

    def call(self, scope: Scope) -> list[Statement]:
        functions = [f for f in self.kernel.functions if self.may_call(f, scope)]
        if not functions:
            return self.assign(scope)
        return self.call_of(self.rng.choice(functions), scope)

    def call_of(self, function: tree.Function, scope: Scope) -> list[Statement]:
        """A call whose result is declared; under a condition, now and then."""
        arguments: list[Expression] = []
        memories: list[str] = []
        for parameter in function.parameters:
            if parameter.kind == "reference":
                locals_of_type = [v for v in scope.of_type(parameter.type) if v.mutable]
                arguments.append(self.variable(self.rng.choice(locals_of_type)))
            elif parameter.kind == "memory":
                memories.append(self.rng.choice(self._pointees(parameter, scope)))
            elif function.name == "recursive":
                value = self.expression(parameter.type, 1, scope)
                arguments.append(binary("&", value, literal(parameter.type, 7)))
            else:
                arguments.append(self.expression(parameter.type, 2, scope))
        local = Local(self.name(), function.type)
        value = tree.Invoke(function.type, function.name, arguments, memories)
        result: list[Statement] = [tree.Declare(local.name, local.type, value)]
        if self.chance(0.4):
            declared = tree.Declare(local.name, local.type, literal(local.type, 3))
            target = tree.Variable(local.type, local.name)
            called = tree.Assign(target, "", value)
            result = [declared, tree.If(self.condition(1, scope), [called])]
        scope.locals.append(local)
        return result

    def _pointees(self, parameter: tree.Parameter, scope: Scope) -> list[str]:
        if parameter.space == "thread":
            arrays = [a for a in scope.arrays if a.type == parameter.type and a.mutable]
            return [a.name for a in arrays if a.size == 4]
        inputs = [m for m in self.kernel.memories if m.space == "input"]
        return [m.name for m in inputs if m.type == parameter.type]

    def may_call(self, function: tree.Function, scope: Scope) -> bool:
        if not scope.collectives and any(
            isinstance(node, tree.Collective) for node in tree.walk(function)
        ):
            return False
        for parameter in function.parameters:
            if parameter.kind == "reference" and not [
                v for v in scope.of_type(parameter.type) if v.mutable
            ]:
                return False
            if parameter.kind == "memory" and not self._pointees(parameter, scope):
                return False
        return True
