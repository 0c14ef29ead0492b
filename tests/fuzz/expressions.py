"""Random expressions: a type and a scope in, a tree that is defined for every lane out."""

from __future__ import annotations

import random
from collections.abc import Callable

from . import tree
from .scalars import FLOATS, INTEGERS, SMALL, bits, element, is_float, is_integer, is_signed, width
from .scope import GROUP, LANE, SIMD, Bounded, Local, Scope
from .tree import Expression, Kernel, Memory

LANE_SCALARS = ("char", "uchar", "short", "ushort", "int", "uint", "half", "float")
EXCHANGES = (
    "broadcast_first",
    "shuffle",
    "shuffle",
    "broadcast",
    "shuffle_xor",
    "shuffle_down",
    "shuffle_up",
    "shuffle_rotate_down",
    "shuffle_rotate_up",
    "shuffle_and_fill_down",
    "shuffle_and_fill_up",
)
REDUCTIONS = ("sum", "sum", "product", "min", "max", "and", "or", "xor")
SCANS = (
    "prefix_inclusive_sum",
    "prefix_exclusive_sum",
    "prefix_inclusive_product",
    "prefix_exclusive_product",
)
COMPARE = ("<", "<=", ">", ">=", "==", "!=")


def literal(kind: str, value: int | float) -> tree.Literal:
    return tree.Literal(kind, value)


def uint(value: int) -> tree.Literal:
    return tree.Literal("uint", value)


def binary(operator: str, left: Expression, right: Expression) -> tree.Binary:
    return tree.Binary(left.type, operator, left, right)


def compare(operator: str, left: Expression, right: Expression) -> tree.Compare:
    return tree.Compare("bool", operator, left, right)


def convert(kind: str, operand: Expression) -> Expression:
    if {kind, operand.type} == {"half", "bfloat"}:  # not into each other
        operand = tree.Convert("float", operand)
    return operand if operand.type == kind else tree.Convert(kind, operand)


def builtin(name: str, *arguments: Expression) -> tree.Builtin:
    return tree.Builtin(arguments[0].type, name, list(arguments))


class Expressions:
    """Makes expressions over the variables of a scope and the memories of a kernel."""

    def __init__(self, rng: random.Random, kernel: Kernel, small: bool) -> None:
        self.rng = rng
        self.kernel = kernel
        self.small = small
        others = rng.sample([*SMALL, "long", "ulong", *FLOATS], 1 if small else 3)
        self.scalars = ["int", "uint", *others, "float"]
        self.vectors = rng.sample(["float2", "float4", "int2", "uint4", "half4", "short2"], 2)
        self.group_limit = min(32 * 32, _product(kernel.group))
        self.grid_limit = _product(kernel.grid)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # ---- Leaves ----------------------------------------------------------------------------------

    def variable(self, local: Local) -> tree.Variable:
        return tree.Variable(local.type, local.name)

    def index_variable(self, name: str) -> Expression:
        """`lane`, `simd` or `in_group` as a uint, whatever the kernel takes them as."""
        if self.kernel.short_indices:
            return tree.Convert("uint", tree.Variable("ushort", name))
        return tree.Variable("uint", name)

    def some_literal(self, kind: str) -> tree.Literal:
        if kind == "bool":
            return literal(kind, self.chance(0.5))
        if is_float(kind):
            return literal(kind, self.rng.randrange(-40, 41) / 8)
        low = -(1 << (bits(kind) - 1)) if is_signed(kind) else 0
        high = (1 << (bits(kind) - 1)) - 1 if is_signed(kind) else (1 << bits(kind)) - 1
        value = self.rng.choice([0, 1, 2, 3, 5, 7, 8, 13, 31, 32, 33, 100, high, low])
        if is_signed(kind) and self.chance(0.3):
            value = -value
        return literal(kind, min(max(value, low), high))

    def leaf(self, kind: str, scope: Scope) -> Expression:
        choices = scope.of_type(kind)
        varying = [local for local in choices if local.level == LANE]
        if varying and self.chance(0.7):
            return self.variable(self.rng.choice(varying))
        if choices and self.chance(0.2):
            return self.variable(self.rng.choice(choices))
        if kind == "uint" and not scope.in_function and self.chance(0.6):
            return self.bounded().expression
        inputs = [] if scope.in_function else self.readable(kind, scope)
        if inputs and self.chance(0.6):
            memory = self.rng.choice(inputs)
            return tree.Load(kind, memory.name, self.affine_index(memory.size))
        others = [v for v in scope.locals if v.type in INTEGERS or v.type in FLOATS]
        if others and self.chance(0.5):
            return self.converted(kind, self.variable(self.rng.choice(others)))
        return self.some_literal(kind)

    def converted(self, kind: str, operand: Expression) -> Expression:
        """A conversion that stays finite in half, and exact from integers to bfloat."""
        if kind == "bool":
            return compare("!=", operand, literal(operand.type, 0))
        if kind == "half" or (kind == "bfloat" and is_integer(operand.type)):
            operand = self.bounded_value(operand, 100)
        return convert(kind, operand)

    def bounded_value(self, operand: Expression, limit: int) -> Expression:
        if is_integer(operand.type):
            return binary("&", operand, literal(operand.type, limit))
        if operand.type == "bool":
            return operand
        low, high = literal(operand.type, -float(limit)), literal(operand.type, float(limit))
        return builtin("clamp", operand, low, high)

    # ---- Uniform values --------------------------------------------------------------------------

    def uniform(self, level: int, scope: Scope) -> Expression:
        """A uint that is the same for all of the threadgroup, or the simdgroup."""
        names = [v for v in scope.locals if v.level <= level and v.type in ("uint", "int")]
        parts: list[Callable[[], Expression]] = [lambda: uint(self.rng.randrange(0, 9))]
        if names:
            choice = self.rng.choice(names)
            parts += [lambda: convert("uint", self.variable(choice))] * 2
        if not scope.in_function:
            parts.append(lambda: tree.Variable("uint", "group"))
            parts.append(lambda: tree.Variable("uint", "group_threads"))
            if level >= SIMD:
                parts.append(lambda: self.index_variable("simd"))
        value = self.rng.choice(parts)()
        if self.chance(0.4):
            operator = self.rng.choice(["+", "*", "^", "&", ">>"])
            value = binary(operator, value, uint(self.rng.randrange(1, 6)))
        return value

    def uniform_condition(self, level: int, scope: Scope) -> Expression:
        return self.some_of_both(self.uniform(level, scope))

    def some_of_both(self, value: Expression) -> Expression:
        """A question about the low bits of a value, with either answer."""
        mask = self.rng.choice([1, 3, 7])
        low = binary("&", value, literal(value.type, mask))
        operator, least = self.rng.choice([("<", 1), (">=", 1), ("==", 0), ("!=", 0)])
        return compare(operator, low, literal(value.type, self.rng.randrange(least, mask + 1)))

    # ---- Indices ---------------------------------------------------------------------------------

    def index(self, size: int, scope: Scope) -> Expression:
        """An index below `size`: along the lanes, strided, reversed, gathered or the same."""
        shape = self.rng.random()
        if shape < 0.45 and not scope.in_function:
            return self.affine_index(size)
        if shape < 0.6:
            return binary("%", self.uniform(GROUP, scope), uint(size))
        value = self.expression(self.rng.choice(["uint", "uint", "int"]), 1, scope)
        if size & (size - 1) == 0 and self.chance(0.6):
            return binary("&", value, literal(value.type, size - 1))
        return binary("%", convert("uint", value), uint(size))

    def bounded(self) -> Bounded:
        """lane, in_group or in_grid, and what it stays below."""
        name, limit = self.rng.choice(
            [("lane", 32), ("in_group", self.group_limit), ("in_grid", self.grid_limit)]
        )
        if name == "in_grid":
            return Bounded(tree.Variable("uint", name), limit)
        return Bounded(self.index_variable(name), limit)

    def affine_index(self, size: int) -> Expression:
        base = self.bounded()
        if base.limit > size:
            return binary("%", base.expression, uint(size))
        value, room = base.expression, size - base.limit
        if self.chance(0.3):
            value = binary("-", uint(base.limit - 1), value)
        elif self.chance(0.3) and base.limit * 2 <= size:
            value, room = binary("*", value, uint(2)), size - 2 * base.limit + 1
        elif self.chance(0.2):
            value = self.rng.choice(
                [binary("/", value, uint(3)), binary(">>", value, uint(1))],
            )
        if room > 0 and self.chance(0.6):
            value = binary("+", value, uint(self.rng.randrange(0, room + 1)))
        return convert(self.rng.choice(["uint", "int", "uint", "ulong"]), value)

    def guarded_load(self, memory: Memory, scope: Scope) -> Expression:
        """`i < size ? memory[i] : other`, where i runs out of range in some lanes, and may wrap."""
        base = self.bounded().expression
        kind = self.rng.choice(["uint", "uint", "ushort", "int"])
        index = convert(kind, base)
        amount = literal(kind, self.rng.choice([1, 5, 16, 30]))
        index = binary(self.rng.choice(["-", "-", "+"]), index, amount)
        if self.chance(0.2):
            index = binary("*", index, literal(kind, 3))
        inside: Expression = compare("<", index, literal(kind, memory.size))
        if kind == "int":
            positive = compare(">=", index, literal(kind, 0))
            inside = tree.Logical("bool", "&&", positive, inside)
        other = self.expression(memory.type, 1, scope)
        return tree.Ternary(memory.type, inside, tree.Load(memory.type, memory.name, index), other)

    # ---- Loads -----------------------------------------------------------------------------------

    def readable(self, kind: str, scope: Scope) -> list[Memory]:
        spaces = ["input", "constant"]
        if scope.shared_readable:
            spaces.append("threadgroup")
        return [
            m
            for m in self.kernel.memories
            if m.type == kind and m.space in spaces and not m.operator and m.name != "mail"
        ]

    def load(self, kind: str, scope: Scope) -> Expression | None:
        arrays = [array for array in scope.arrays if array.type == kind]
        if arrays and self.chance(0.4):
            array = self.rng.choice(arrays)
            return tree.Load(kind, array.name, self.index(array.size, scope))
        if scope.in_function:
            return None
        memories = self.readable(kind, scope)
        if not memories:
            return None
        memory = self.rng.choice(memories)
        inputs = [m for m in memories if m.space == "input"]
        if self.chance(0.25):
            return self.guarded_load(memory, scope)
        if len(inputs) > 1 and self.chance(0.3):
            first, second = self.rng.sample(inputs, 2)
            index = self.index(min(first.size, second.size), scope)
            condition = self.condition(1, scope)
            return tree.LoadEither(kind, condition, first.name, second.name, index)
        if memory.space == "input" and memory.size > 64 and self.chance(0.2):
            offset = self.rng.randrange(1, 20)
            index = binary("-", convert("int", self.affine_index(64)), literal("int", offset))
            return tree.Load(kind, memory.name, index, offset)
        return tree.Load(kind, memory.name, self.index(memory.size, scope))

    # ---- Collectives -----------------------------------------------------------------------------

    def collective(self, kind: str, depth: int, scope: Scope) -> Expression | None:
        """A collective that gives this type, or None where there is none."""
        group = self.rng.choice(["simd", "simd", "quad"])
        if kind == "bool":
            name = self.rng.choice(["any", "all", "is_first"])
            votes = [] if name == "is_first" else [self.condition(depth, scope)]
            return tree.Collective(kind, f"{group}_{name}", list(votes))
        if element(kind) not in LANE_SCALARS:
            return None
        if kind == "uint" and self.chance(0.3):
            if self.chance(0.3):
                return tree.Collective(kind, f"{group}_active_threads_mask", [])
            return tree.Collective(kind, f"{group}_ballot", [self.condition(depth, scope)])
        value = self.expression(kind, depth, scope)
        if self.chance(0.5):
            return self.exchange(group, value, depth, scope)
        return self.reduction(group, value)

    def exchange(self, group: str, value: Expression, depth: int, scope: Scope) -> tree.Collective:
        lanes = 32 if group == "simd" else 4
        name = self.rng.choice(EXCHANGES)
        arguments = [value]
        modulo = 32
        if "_and_fill_" in name:
            arguments.append(self.expression(value.type, 1, scope))
            modulo = self.rng.choice([32, 32, 2, 8, 16] if group == "simd" else [32, 2])
            lanes = min(lanes, modulo)
        if name == "shuffle":
            source = self.expression("uint", 1, scope)
            # Lanes outside of the group, which read themselves, are wanted too.
            reach = lanes - 1 if self.chance(0.7) else 2 * lanes - 1
            arguments.append(convert("ushort", binary("&", source, uint(reach))))
        elif name != "broadcast_first":
            distance = self.rng.randrange(0, lanes)
            if name == "shuffle_xor" and self.chance(0.6):
                distance = self.rng.choice([1, 2, 4, 8, 16]) % lanes
            arguments.append(literal("ushort", distance))
        return tree.Collective(value.type, f"{group}_{name}", arguments, modulo)

    def reduction(self, group: str, value: Expression) -> tree.Collective:
        if is_float(value.type):
            name = self.rng.choice(["min", "max", "sum", "prefix_inclusive_sum"])
            if name not in ("min", "max"):
                if width(value.type) > 1:
                    name = "max"
                else:  # whole numbers: exact in any order
                    value = builtin("whole", value)
        else:
            name = self.rng.choice([*REDUCTIONS, *(SCANS if group == "simd" else SCANS[:1])])
        return tree.Collective(value.type, f"{group}_{name}", [value])

    # ---- Everything ------------------------------------------------------------------------------

    def condition(self, depth: int, scope: Scope) -> Expression:
        return self.expression("bool", depth, scope)

    def expression(self, kind: str, depth: int, scope: Scope) -> Expression:
        if depth <= 0 and width(kind) == 1:
            return self.leaf(kind, scope)
        if scope.collectives and self.chance(0.12):
            found = self.collective(kind, depth - 1, scope)
            if found is not None:
                return found
        if kind != "bool" and self.chance(0.22):
            found = self.load(kind, scope)
            if found is not None:
                return found
        if kind != "bool" and self.chance(0.06):
            return tree.Ternary(
                kind,
                self.condition(depth - 1, scope),
                self.expression(kind, depth - 1, scope),
                self.expression(kind, depth - 1, scope),
            )
        if width(kind) > 1:
            return self.vector(kind, depth, scope)
        if kind == "bool":
            return self.truth(depth, scope)
        if is_float(kind):
            return self.floating(kind, depth, scope)
        return self.integer(kind, depth, scope)

    def vector(self, kind: str, depth: int, scope: Scope) -> Expression:
        choices = scope.of_type(kind)
        if choices and self.chance(0.6):
            return self.variable(self.rng.choice(choices))
        if depth > 0 and self.chance(0.4):
            operators = ["+", "-"] if is_float(kind) else ["+", "-", "*", "&", "^"]
            left, right = (self.expression(kind, depth - 1, scope) for _ in range(2))
            return binary(self.rng.choice(operators), left, right)
        parts = [self.expression(element(kind), depth - 1, scope) for _ in range(width(kind))]
        return tree.Construct(kind, parts)

    def truth(self, depth: int, scope: Scope) -> Expression:
        if depth > 0 and self.chance(0.25):
            left, right = (self.condition(depth - 1, scope) for _ in range(2))
            return tree.Logical("bool", self.rng.choice(["&&", "||"]), left, right)
        if depth > 0 and self.chance(0.1):
            return tree.Unary("bool", "!", self.condition(depth - 1, scope))
        kind = self.rng.choice(self.scalars)
        left = self.expression(kind, depth - 1, scope)
        if is_integer(kind) and self.chance(0.6):
            return self.some_of_both(left)
        return compare(self.rng.choice(COMPARE), left, self.expression(kind, depth - 1, scope))

    def floating(self, kind: str, depth: int, scope: Scope) -> Expression:
        first, second = (self.expression(kind, depth - 1, scope) for _ in range(2))
        choice = self.rng.random()
        if choice < 0.45:
            return binary(self.rng.choice(["+", "-"]), first, second)
        if choice < 0.6:
            return binary("*", first, self.bounded_value(second, 2))
        if choice < 0.66:
            return binary("/", first, builtin("max", builtin("abs", second), literal(kind, 1.0)))
        if choice < 0.7 and kind == "float":
            return builtin("fma", first, self.bounded_value(second, 3), self.leaf(kind, scope))
        if choice < 0.78 and kind != "bfloat":
            third = builtin("whole", self.leaf(kind, scope))
            factor = literal(kind, float(self.rng.randrange(-8, 9)))
            return builtin("multiply_add", builtin("whole", first), factor, third)
        if choice < 0.84:
            return builtin(self.rng.choice(["floor", "ceil", "trunc", "rint", "abs"]), first)
        if choice < 0.87:
            return builtin("sqrt", builtin("abs", first))
        if choice < 0.92:
            return tree.Builtin(kind, "select", [first, second, self.condition(depth - 1, scope)])
        if choice < 0.96:
            return self.converted(kind, self.expression(self.other(kind), depth - 1, scope))
        return builtin(self.rng.choice(["min", "max"]), first, second)

    def other(self, kind: str) -> str:
        return self.rng.choice([scalar for scalar in self.scalars if scalar != kind])

    def integer(self, kind: str, depth: int, scope: Scope) -> Expression:
        first = self.expression(kind, depth - 1, scope)
        second = self.expression(kind, depth - 1, scope)
        choice = self.rng.random()
        if choice < 0.5:
            return binary(self.rng.choice(["+", "-", "*", "&", "|", "^"]), first, second)
        if choice < 0.6:
            count: Expression = binary("&", second, literal(kind, bits(kind) - 1))
            if self.chance(0.5):
                count = literal(kind, self.rng.randrange(1, bits(kind)))
            return binary(self.rng.choice(["<<", ">>"]), first, count)
        if choice < 0.7:
            divisor: Expression = literal(kind, self.rng.choice([2, 3, 7, 10, 16, 100]))
            if self.chance(0.4):
                divisor = binary("+", binary("&", second, literal(kind, 7)), literal(kind, 1))
            return binary(self.rng.choice(["/", "%"]), first, divisor)
        if choice < 0.75:
            return tree.Unary(kind, self.rng.choice(["-", "~"]), first)
        if choice < 0.82:
            return self.converted(kind, self.expression(self.other(kind), depth - 1, scope))
        if choice < 0.86:
            return convert(kind, self.condition(depth - 1, scope))
        if choice < 0.9:
            return tree.Builtin(kind, "select", [first, second, self.condition(depth - 1, scope)])
        return self.integer_builtin(kind, first, second)

    def integer_builtin(self, kind: str, first: Expression, second: Expression) -> Expression:
        names = ["min", "max", "clamp", "popcount"]
        if bits(kind) <= 32:
            names += ["clz", "ctz", "rotate", "add_saturated", "subtract_saturated"]
        if is_signed(kind):
            names.append("abs")
        name = self.rng.choice(names)
        if name == "clamp":
            return builtin(name, first, literal(kind, 3), literal(kind, 90))
        if name in ("popcount", "clz", "ctz", "abs"):
            return builtin(name, first)
        return builtin(name, first, second)


def _product(numbers: list[int]) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result
