"""Random control flow: branches, loops, switches, and the ways out of them."""

from __future__ import annotations

from . import tree
from .expressions import binary, compare, convert, literal, uint
from .scope import GROUP, LANE, SIMD, Local, Scope
from .statements import Statements
from .tree import Expression, Statement

MOST_ROUNDS = 48
"""How often the innermost statement of nested loops may run."""
NEVER = 0x12345678
"""A number that no expression here comes to, which a compiler cannot know."""


class Flow(Statements):
    """Makes statements that hold others."""

    def branch(self, scope: Scope) -> list[Statement]:
        level = self.rng.choice([LANE, LANE, LANE, SIMD, GROUP])
        level = max(level, scope.level)
        if level == LANE:
            condition = self.condition(2, scope)
        else:
            condition = self.uniform_condition(level, scope)
        inner = [scope.inner(level=level), scope.inner(level=level)]
        then = self.statements(inner[0], self.rng.randrange(1, 4)) or self.assign(inner[0])
        otherwise = self.statements(inner[1], self.rng.randrange(1, 3)) if self.chance(0.5) else []
        return [tree.If(condition, then, otherwise)]

    def mirrored_branch(self, scope: Scope) -> list[Statement]:
        """The same call in all arms: collectives of different lanes, which must not become one."""
        if not scope.collectives:
            return self.branch(scope)
        declared = self.call(scope) if self.chance(0.3) else []
        if len(declared) > 1:
            return declared
        if declared and isinstance(declared[0], tree.Declare):
            local, value = scope.locals.pop(), declared[0].value
        else:
            kind = self.rng.choice(["int", "uint"])
            local, value = Local(self.name(), kind), self.reduction("simd", self.leaf(kind, scope))
        target = tree.Variable(local.type, local.name)
        arms: list[Statement]
        if self.chance(0.7):
            condition = self.condition(2, scope)
            same = [[tree.Assign(target, "", value)] for _ in range(2)]
            arms = [tree.If(condition, list(same[0]), list(same[1]))]
        else:
            chosen = binary("&", self.expression("uint", 2, scope), uint(3))
            cases = [tree.Case(n, [tree.Assign(target, "", value)]) for n in (0, 1, 2, None)]
            arms = [tree.Switch(chosen, cases)]
        scope.locals.append(local)
        return [tree.Declare(local.name, local.type, literal(local.type, 0)), *arms]

    def switch(self, scope: Scope) -> list[Statement]:
        kind = self.rng.choice(["int", "uint"])
        value = binary("&", self.expression(kind, 2, scope), literal(kind, 3))
        labels: list[int | None] = list(self.rng.sample(range(4), self.rng.randrange(1, 4)))
        if self.chance(0.6):
            labels.append(None)
        cases: list[tree.Case] = []
        for label in labels:
            # Where lanes fall into a case from above, it is open who meets whom.
            after_fall = bool(cases) and cases[-1].falls
            inner = scope.inner(level=LANE, in_switch=True)
            inner.collectives = scope.collectives and not after_fall
            falls = label is not labels[-1] and self.chance(0.2)
            body = self.statements(inner, self.rng.randrange(1, 3)) or self.assign(inner)
            cases.append(tree.Case(label, body, falls))
        return [tree.Switch(value, cases)]

    def rounds(self, scope: Scope) -> int:
        return max(1, min(8, MOST_ROUNDS // scope.rounds))

    def accumulate(self, scope: Scope, counter: Local) -> list[Statement]:
        """Shows in the end which rounds a lane took part in."""
        choices = [v for v in self.assignable(scope) if v.type in ("int", "uint")]
        if not choices or self.chance(0.3):
            return []
        target = self.variable(self.rng.choice(choices))
        grown = binary("*", target, literal(target.type, 3))
        value = binary("+", grown, convert(target.type, self.variable(counter)))
        return [tree.Assign(target, "", value)]

    def counted_loop(self, scope: Scope) -> list[Statement]:
        most = self.rng.randrange(1, self.rounds(scope) + 1)
        name, kind = self.name("i"), self.rng.choice(["uint", "int", "int", "uint", "short"])
        uniform = self.chance(0.5)
        step = self.rng.choice([1, 1, 1, 2, 3])
        start: Expression = literal(kind, 0)
        bound: Expression = literal(kind, most * step)
        if uniform:
            if kind == "uint" and self.chance(0.5):
                value = self.uniform(scope.level, scope)
                bound = binary("%", value, uint(most * step + 1))
        else:
            value = self.expression("uint", 2, scope)
            bound = convert(kind, binary("%", value, uint(most * step + 1)))
            if self.chance(0.3):
                start = convert(kind, binary("&", self.expression("uint", 1, scope), uint(3)))
        operator = "<"
        if kind != "uint" and self.chance(0.25):
            start, bound, step, operator = bound, literal(kind, 0), -step, ">"
        flow = "uniform" if uniform and self.chance(0.6) else "varying"
        level = scope.level if flow == "uniform" else LANE
        inner = scope.inner(level=level, loop=flow, rounds=scope.rounds * most, in_switch=False)
        inner.loop_level = level
        # A stride over varying rounds gives the lanes different values.
        counter = inner.counter = Local(name, kind, False, scope.level if uniform else LANE)
        inner.locals.append(counter)
        body = self.statements(inner, self.rng.randrange(1, 5)) or self.assign(inner)
        body += self.accumulate(scope, counter)
        return [tree.For(name, kind, start, operator, bound, step, body)]

    def while_loop(self, scope: Scope) -> list[Statement]:
        """A counter of each lane runs down; all lanes go on while any does, or each by itself."""
        most = self.rounds(scope)
        name = self.name("w")
        left = tree.Variable("uint", name)
        start = binary("%", self.expression("uint", 2, scope), uint(most + 1))
        condition: Expression = compare(">", left, uint(0))
        together = scope.collectives and scope.level <= SIMD and self.chance(0.4)
        if together:
            condition = tree.Collective("bool", "simd_any", [condition])
        inner = scope.inner(rounds=scope.rounds * most, in_switch=False)
        inner.level, inner.loop = (SIMD, "uniform") if together else (LANE, "varying")
        inner.loop_level = inner.level
        counter = inner.counter = Local(name, "uint", False)
        inner.locals.append(counter)
        body = self.statements(inner, self.rng.randrange(1, 4)) + self.accumulate(scope, counter)
        less: Expression = binary("-", left, uint(1))
        if self.chance(0.3):
            less = binary(">>", left, uint(1))
        if together:
            less = tree.Ternary("uint", compare(">", left, uint(0)), less, uint(0))
        at_end = self.chance(0.3)
        if at_end:  # the first round is not asked for
            less = tree.Ternary("uint", compare(">", left, uint(0)), less, uint(0))
        # The counter goes first: a `continue` must not pass it by.
        body.insert(0, tree.Assign(left, "", less))
        return [tree.Declare(name, "uint", start), tree.While(condition, body, at_end)]

    def search_loop(self, scope: Scope) -> list[Statement]:
        """A loop without a bound of its own, a flag set on the way out, and a question after it."""
        most = self.rounds(scope)
        counter, found = self.name("i"), self.name("f")
        count, flag = tree.Variable("int", counter), tree.Variable("int", found)
        inner = scope.inner(level=LANE, loop="varying", rounds=scope.rounds * most)
        inner.in_switch, inner.loop_level = False, LANE
        inner.collectives = scope.collectives and not scope.in_function
        inner.counter = Local(counter, "int", False)
        inner.locals.append(inner.counter)
        body = self.statements(inner, self.rng.randrange(1, 3))
        leave: list[Statement] = [tree.Assign(flag, "", literal("int", 5)), tree.Break()]
        plain = scope.inner(collectives=False, level=LANE)
        body.append(tree.If(self.unproven(self.condition(2, plain), inner), leave))
        body.insert(0, tree.Assign(count, "+", literal("int", 1)))
        end = compare(">", count, literal("int", most))
        body.insert(1, tree.If(end, [tree.Break()]))
        after = scope.inner(level=LANE)
        asked = compare("==", flag, literal("int", 5))
        then = self.statements(after, self.rng.randrange(1, 3)) or self.assign(after)
        result: list[Statement] = [
            tree.Declare(counter, "int", literal("int", 0)),
            tree.Declare(found, "int", literal("int", 0)),
            tree.While(tree.Literal("bool", True), body),
            tree.If(asked, then),
        ]
        scope.locals.append(Local(found, "int", False))
        return result

    def leave_loop(self, scope: Scope) -> list[Statement]:
        """`break` or `continue`. Before a `break` no collective: who would be there is open."""
        if scope.loop == "uniform":
            if scope.level == LANE or scope.level != scope.loop_level:
                return self.assign(scope)
            condition = self.uniform_condition(scope.level, scope)
        else:
            condition = self.condition(2, scope)
            if self.chance(0.6):
                condition = self.some_of_both(self.leaf("uint", scope))
        may_break = self.chance(0.4) and not (scope.in_function and scope.collectives)
        leaves = tree.Break() if may_break else tree.Continue()
        inner = scope.inner(collectives=scope.collectives and isinstance(leaves, tree.Continue))
        inner.level = LANE
        first = self.assign(inner) if self.chance(0.5) else []
        if isinstance(leaves, tree.Break):
            condition = self.unproven(condition, scope)
        return [tree.If(condition, [*first, leaves])]

    def unproven(self, condition: Expression, scope: Scope) -> Expression:
        """The same condition, which no compiler can prove to hold, nor test before the loop.

        What always leaves a loop is no part of it for the compiler, and lanes of all rounds meet in
        the collectives before. Loops of functions have no `break` and collectives both.
        """
        if scope.in_function or scope.counter is None:
            return condition
        counter = convert("uint", self.variable(scope.counter))
        mixed = binary("^", tree.Variable("uint", "n"), counter)
        return tree.Logical("bool", "&&", condition, compare("!=", mixed, uint(NEVER)))

    def early_return(self, scope: Scope) -> list[Statement]:
        if scope.in_function or scope.loop == "uniform":
            return self.assign(scope)
        inner = scope.inner(collectives=scope.collectives and not scope.loop, level=LANE)
        first = self.store_output(inner) if self.chance(0.6) else []
        return [tree.If(self.condition(2, scope), [*first, tree.Return()])]
