"""A Kernel in, the expected contents of its buffers out.

The whole grid runs in lockstep: every value is an array with one entry a lane, every statement runs
under a mask. Lanes that took different branches meet again after the statement; lanes that left a
loop wait at its end. Barriers need no waiting, but check that all threads still there have come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from . import scalars, tree
from .lanes import LANES, Mask, collective
from .memory import Contents, ModelError, Places, Private, Shared
from .scalars import LETTERS, Array, Unsuitable, dtype, is_float
from .tree import Expression, Kernel, Statement

MOST_ITERATIONS = 600
MOST_WORK = 40_000
"""Statements one run may execute: what takes longer is no test of an engine."""

Value = Array | Contents


@dataclass
class Frame:
    """The variables of one call."""

    variables: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, Private] = field(default_factory=dict)
    memories: dict[str, Shared] = field(default_factory=dict)
    returned: Mask | None = None
    result: Value | None = None


@dataclass
class Stops:
    """Lanes that left the innermost loop or switch, or this round of the loop."""

    broken: Mask
    continued: Mask
    loop: Stops | None = None


@dataclass
class Expected:
    """Contents after the run, by memory and field, and by how much floating point may differ."""

    contents: dict[str, Contents]
    tolerance: dict[str, Array]


def run(kernel: Kernel) -> Expected:
    """What the kernel should leave. Raises ModelError or Unsuitable where nothing can be said."""
    machine = Machine(kernel)
    machine.body()
    shared = {m.name: machine.memories[m.name] for m in kernel.memories}
    return Expected(
        {n: s.data for n, s in shared.items() if s.writable and s.memory.space != "threadgroup"},
        {n: s.tolerance for n, s in shared.items() if s.tolerance is not None},
    )


class Machine:
    """One launch of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.functions = {function.name: function for function in kernel.functions}
        self.frames = [Frame()]
        self.stops: Stops | None = None
        self.work = 0
        self.depth = 0
        self._place_threads()
        groups = int(self.places.group.max()) + 1
        self.memories = {m.name: Shared(kernel, m, groups) for m in kernel.memories}
        self.frame.memories = dict(self.memories)
        for memory in kernel.memories:
            if memory.space == "scalar":
                value = self.memories[memory.name].data[""][0]
                self.frame.variables[memory.name] = np.full(self.lanes, value)

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def _place_threads(self) -> None:
        """The threads of all threadgroups, each padded to whole simdgroups."""
        grid = np.array([*self.kernel.grid, 1, 1][:3])
        nominal = np.array([*self.kernel.group, 1, 1][:3])
        counts = -(-grid // nominal)
        columns: dict[str, list[Array]] = {name: [] for name in _PLACES}
        for z, y, x in np.ndindex(*counts[::-1]):
            corner = np.array([x, y, z]) * nominal
            size = np.minimum(nominal, grid - corner)
            for name, values in _group_columns(corner, size, grid).items():
                columns[name].append(values)
            group = x + counts[0] * (y + counts[1] * z)
            columns["group"].append(np.full(len(columns["live"][-1]), group))
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        self.lanes = len(joined["live"])
        self.alive: Mask = joined["live"].astype(bool)
        number = np.arange(self.lanes)
        zeros = np.zeros(self.lanes, np.int64)
        self.places = Places(joined["group"].astype(np.int64), number, zeros, zeros.copy())
        index = np.uint16 if self.kernel.short_indices else np.uint32
        for name, values in joined.items():
            kind = index if name in ("lane", "simd", "in_group") else np.uint32
            self.frame.variables[name] = values.astype(kind)

    def body(self) -> None:
        self.frame.returned = np.zeros(self.lanes, bool)
        self.block(self.kernel.body, self.alive.copy())

    # ---- Statements ------------------------------------------------------------------------------

    def block(self, statements: list[Statement], mask: Mask) -> None:
        for statement in statements:
            mask = self.still_here(mask)
            if not mask.any():
                return
            self.work += 1
            if self.work > MOST_WORK:
                raise Unsuitable("too much work")
            getattr(self, f"run_{type(statement).__name__}")(statement, mask)

    def still_here(self, mask: Mask) -> Mask:
        assert self.frame.returned is not None
        mask = mask & ~self.frame.returned
        if self.stops is not None:
            mask = mask & ~self.stops.broken & ~self.stops.continued
        return mask

    def set(self, name: str, value: Value, mask: Mask) -> None:
        self.frame.variables[name] = _merge(self.frame.variables[name], value, mask)

    def run_Declare(self, node: tree.Declare, mask: Mask) -> None:
        value = self.value(node.value, mask)
        # A name may be declared again in the next round, or for other lanes in another branch.
        before = self.frame.variables.get(node.name)
        self.frame.variables[node.name] = (
            value if before is None or _differ(before, value) else _merge(before, value, mask)
        )

    def run_DeclareArray(self, node: tree.DeclareArray, mask: Mask) -> None:
        values = [self.array(value, mask) for value in node.values]
        array = Private(values)
        before = self.frame.arrays.get(node.name)
        if before is not None and before.data.shape == array.data.shape:
            array.data = np.where(_like(mask, array.data), array.data, before.data)
        self.frame.arrays[node.name] = array

    def run_DeclareStruct(self, node: tree.DeclareStruct, mask: Mask) -> None:
        struct = self.kernel.struct(node.type)
        assert struct is not None
        names = [name for name, _ in struct.fields]
        value: Contents = {n: self.array(v, mask) for n, v in zip(names, node.values, strict=True)}
        before = self.frame.variables.get(node.name)
        self.frame.variables[node.name] = (
            value if before is None or _differ(before, value) else _merge(before, value, mask)
        )

    def run_Assign(self, node: tree.Assign, mask: Mask) -> None:
        value = self.value(node.value, mask)
        if node.operator:
            assert not isinstance(value, dict)
            old = self.array(node.target, mask)
            value = scalars.binary(node.operator, node.target.type, old, value)
            self.check_finite(node.target.type, value, mask)
        if isinstance(node.target, tree.Variable):
            self.set(node.target.name, value, mask)
            return
        assert isinstance(node.target, tree.Part) and not isinstance(value, dict)
        assert isinstance(node.target.base, tree.Variable)
        whole = self.frame.variables[node.target.base.name]
        if isinstance(whole, dict):
            whole = {**whole, node.target.name: _merge(whole[node.target.name], value, mask)}
        else:
            whole = whole.copy()
            place = LETTERS.index(node.target.name)
            whole[:, place] = np.where(mask, value, whole[:, place])
        self.frame.variables[node.target.base.name] = whole

    def run_Store(self, node: tree.Store, mask: Mask) -> None:
        index, value = self.array(node.index, mask), self.value(node.value, mask)
        if node.memory in self.frame.arrays:
            assert not isinstance(value, dict)
            self.frame.arrays[node.memory].store(index, value, mask)
            return
        contents = value if isinstance(value, dict) else {"": value}
        self.frame.memories[node.memory].store(index, contents, mask, self.places)

    def run_StoreLoose(self, node: tree.StoreLoose, mask: Mask) -> None:
        index, value = self.array(node.index, mask), self.array(node.value, mask)
        memory = self.frame.memories[node.memory]
        exact = collective(node.collective, [value.astype(np.float64)], mask, LANES)
        size = collective(node.collective, [np.abs(value).astype(np.float64)], mask, LANES)
        memory.store(index, {"": exact.astype(value.dtype)}, mask, self.places)
        lanes, cells = memory.cells(index, mask, self.places)
        assert memory.tolerance is not None
        memory.tolerance[cells] = size[lanes] * 32 * np.finfo(value.dtype).eps

    def run_Atomic(self, node: tree.Atomic, mask: Mask) -> None:
        index, value = self.array(node.index, mask), self.array(node.value, mask)
        memory = self.frame.memories[node.memory]
        memory.combine(node.operator, index, value, mask, self.places)

    def run_If(self, node: tree.If, mask: Mask) -> None:
        condition = self.array(node.condition, mask).astype(bool)
        self.block(node.then, mask & condition)
        self.block(node.otherwise, mask & ~condition)

    @contextmanager
    def stopping(self, is_loop: bool) -> Iterator[Stops]:
        """A loop, or a switch: its `continue` is that of the loop around it."""
        outer = self.stops
        stops = Stops(np.zeros(self.lanes, bool), np.zeros(self.lanes, bool))
        stops.loop = stops if is_loop else outer.loop if outer else None
        self.stops = stops
        try:
            yield stops
        finally:
            self.stops = outer

    def run_For(self, node: tree.For, mask: Mask) -> None:
        before = self.frame.variables.get(node.variable)
        self.frame.variables[node.variable] = self.array(node.start, mask)
        step = np.full(self.lanes, node.step).astype(dtype(node.type))
        with self.stopping(True) as stops:
            for _ in range(MOST_ITERATIONS):
                counter = self.array(tree.Variable(node.type, node.variable), mask)
                bound = self.array(node.bound, mask)
                mask = mask & scalars.COMPARISONS[node.operator](counter, bound)
                if not mask.any():
                    break
                mask = self.round(node.body, stops, mask)
                counter = self.array(tree.Variable(node.type, node.variable), mask)
                self.set(node.variable, scalars.binary("+", node.type, counter, step), mask)
            else:
                raise Unsuitable("a loop does not end")
        if before is not None:
            self.frame.variables[node.variable] = before

    def round(self, body: list[Statement], stops: Stops, mask: Mask) -> Mask:
        """One round of a loop; the lanes that begin the next one, if their condition holds."""
        self.block(body, mask)
        stops.continued[:] = False
        return self.still_here(mask)

    def run_While(self, node: tree.While, mask: Mask) -> None:
        with self.stopping(True) as stops:
            for number in range(MOST_ITERATIONS):
                if number or not node.at_end:
                    mask = mask & self.array(node.condition, mask).astype(bool)
                if not mask.any():
                    return
                mask = self.round(node.body, stops, mask)
                if not mask.any():
                    return
        raise Unsuitable("a loop does not end")

    def run_Switch(self, node: tree.Switch, mask: Mask) -> None:
        value = self.array(node.value, mask)
        labels = [case.label for case in node.cases if case.label is not None]
        with self.stopping(False):
            fallen = np.zeros(self.lanes, bool)
            for case in node.cases:
                chosen = ~np.isin(value, labels) if case.label is None else value == case.label
                here = self.still_here((mask & chosen) | fallen)
                self.block(case.body, here)
                fallen = self.still_here(here) if case.falls else np.zeros(self.lanes, bool)

    def run_Break(self, node: tree.Break, mask: Mask) -> None:
        assert self.stops is not None
        self.stops.broken |= mask

    def run_Continue(self, node: tree.Continue, mask: Mask) -> None:
        stops = self.stops
        assert stops is not None and stops.loop is not None
        stops.loop.continued |= mask
        if stops is not stops.loop:
            stops.broken |= mask

    def run_Return(self, node: tree.Return, mask: Mask) -> None:
        if node.value is not None:
            value = self.value(node.value, mask)
            old = self.frame.result
            self.frame.result = value if old is None else _merge(old, value, mask)
        assert self.frame.returned is not None
        self.frame.returned |= mask

    def run_Barrier(self, node: tree.Barrier, mask: Mask) -> None:
        returned = self.frames[0].returned
        assert returned is not None
        there = self.alive & ~returned
        owner = self.places.group if node.scope == "threadgroup" else self.places.simd
        arrived = np.bincount(owner[mask], minlength=owner.max() + 1) > 0
        if (there & arrived[owner] & ~mask).any():
            raise ModelError("a barrier that not all threads reach")
        if node.scope == "threadgroup":
            self.places.group_phase += arrived[owner]
        else:
            self.places.simd_phase += arrived[owner]

    # ---- Expressions -----------------------------------------------------------------------------

    def array(self, node: Expression, mask: Mask) -> Array:
        value = self.value(node, mask)
        assert not isinstance(value, dict)
        return value

    def value(self, node: Expression, mask: Mask) -> Value:
        result: Value = getattr(self, f"value_{type(node).__name__}")(node, mask)
        if not isinstance(result, dict):
            assert result.dtype == dtype(node.type), (node, result.dtype)
            self.check_finite(node.type, result, mask)
        return result

    def check_finite(self, kind: str, value: Array, mask: Mask) -> None:
        if is_float(kind) and not np.isfinite(value[mask]).all():
            raise Unsuitable("an infinity")

    def value_Literal(self, node: tree.Literal, mask: Mask) -> Value:
        return np.full(self.lanes, node.value).astype(dtype(node.type))

    def value_Variable(self, node: tree.Variable, mask: Mask) -> Value:
        if node.name not in self.frame.variables:
            raise ModelError(f"no variable {node.name}")
        return self.frame.variables[node.name]

    def value_Part(self, node: tree.Part, mask: Mask) -> Value:
        whole = self.value(node.base, mask)
        if isinstance(whole, dict):
            return whole[node.name]
        return whole[:, LETTERS.index(node.name)]

    def value_Construct(self, node: tree.Construct, mask: Mask) -> Value:
        return np.stack([self.array(part, mask) for part in node.parts], axis=1)

    def value_Unary(self, node: tree.Unary, mask: Mask) -> Value:
        operand = self.array(node.operand, mask)
        with np.errstate(all="ignore"):
            if node.operator == "-":
                return np.negative(operand)
            return ~operand

    def value_Binary(self, node: tree.Binary, mask: Mask) -> Value:
        left, right = self.array(node.left, mask), self.array(node.right, mask)
        if node.operator in ("/", "%") and (right[mask] == 0).any():
            raise Unsuitable("a division by zero")
        return scalars.binary(node.operator, node.type, left, right)

    def value_Compare(self, node: tree.Compare, mask: Mask) -> Value:
        left, right = self.array(node.left, mask), self.array(node.right, mask)
        return scalars.COMPARISONS[node.operator](left, right)

    def value_Logical(self, node: tree.Logical, mask: Mask) -> Value:
        left = self.array(node.left, mask).astype(bool)
        asks = mask & (left if node.operator == "&&" else ~left)
        if not asks.any():
            return left
        right = self.array(node.right, asks).astype(bool)
        return np.where(asks, right, left)

    def value_Ternary(self, node: tree.Ternary, mask: Mask) -> Value:
        condition = self.array(node.condition, mask).astype(bool)
        yes, no = mask & condition, mask & ~condition
        if not no.any():
            return self.value(node.yes, yes)
        if not yes.any():
            return self.value(node.no, no)
        first = self.value(node.yes, yes)
        return _merge(self.value(node.no, no), first, yes)

    def value_Convert(self, node: tree.Convert, mask: Mask) -> Value:
        return scalars.convert(self.array(node.operand, mask), node.type)

    def value_Load(self, node: tree.Load, mask: Mask) -> Value:
        index = self.array(node.index, mask).astype(np.int64) + node.offset
        if node.memory in self.frame.arrays:
            return self.frame.arrays[node.memory].load(index, mask)
        if node.memory not in self.frame.memories:
            raise ModelError(f"no memory {node.memory}")
        contents = self.frame.memories[node.memory].load(index, mask, self.places)
        return contents.get("", contents)

    def value_LoadEither(self, node: tree.LoadEither, mask: Mask) -> Value:
        condition = self.array(node.condition, mask).astype(bool)
        index = self.array(node.index, mask)
        memories = self.frame.memories
        first = memories[node.first].load(index, mask & condition, self.places)[""]
        second = memories[node.second].load(index, mask & ~condition, self.places)[""]
        return _merge(second, first, condition)

    def value_AtomicLoad(self, node: tree.AtomicLoad, mask: Mask) -> Value:
        index = self.array(node.index, mask)
        return self.frame.memories[node.memory].load(index, mask, self.places)[""]

    def value_Builtin(self, node: tree.Builtin, mask: Mask) -> Value:
        values = [self.array(argument, mask) for argument in node.arguments]
        return scalars.builtin(node.name, node.type, values)

    def value_Collective(self, node: tree.Collective, mask: Mask) -> Value:
        values = [self.array(argument, mask) for argument in node.arguments]
        return collective(node.name, values, mask, node.modulo)

    def value_Invoke(self, node: tree.Invoke, mask: Mask) -> Value:
        function = self.functions[node.function]
        frame, written_back = self._call_frame(node, function, mask)
        outer_stops, self.stops = self.stops, None
        if self.depth > 40:
            raise Unsuitable("recursion that does not end")
        self.depth += 1
        self.frames.append(frame)
        try:
            self.block(function.body, mask)
        finally:
            self.frames.pop()
            self.depth -= 1
            self.stops = outer_stops
        assert frame.returned is not None
        if frame.result is None or (mask & ~frame.returned).any():
            raise ModelError(f"{node.function}: a way without a return")
        for outside, inside in written_back:
            self.set(outside, frame.variables[inside], mask)
        return frame.result

    def _call_frame(
        self, node: tree.Invoke, function: tree.Function, mask: Mask
    ) -> tuple[Frame, list[tuple[str, str]]]:
        frame = Frame(returned=np.zeros(self.lanes, bool))
        values = [p for p in function.parameters if p.kind != "memory"]
        pointers = [p for p in function.parameters if p.kind == "memory"]
        written_back = []
        for parameter, argument in zip(values, node.arguments, strict=True):
            frame.variables[parameter.name] = self.value(argument, mask)
            if parameter.kind == "reference":
                assert isinstance(argument, tree.Variable)
                written_back.append((argument.name, parameter.name))
        for parameter, name in zip(pointers, node.memories, strict=True):
            if name in self.frame.arrays:
                frame.arrays[parameter.name] = self.frame.arrays[name]
            elif name in self.frame.memories:
                frame.memories[parameter.name] = self.frame.memories[name]
            else:
                raise ModelError(f"no memory {name}")
        return frame, written_back


# ---- Places of threads, and values under masks ---------------------------------------------------

_PLACES = ("live", "lane", "simd", "in_group", "in_grid", "group", "group_threads")


def _group_columns(corner: Array, size: Array, grid: Array) -> dict[str, Array]:
    """One threadgroup, x fastest, padded with lanes that have no thread."""
    threads = int(np.prod(size))
    padded = -(-threads // LANES) * LANES
    index = np.arange(padded)
    inside = np.minimum(index, threads - 1)
    x, y, z = (
        inside % size[0] + corner[0],
        inside // size[0] % size[1] + corner[1],
        inside // (size[0] * size[1]) + corner[2],
    )
    return {
        "live": index < threads,
        "lane": index % LANES,
        "simd": index // LANES,
        "in_group": inside,
        "in_grid": x + grid[0] * (y + grid[1] * z),
        "group_threads": np.full(padded, threads),
    }


def _like(mask: Mask, values: Array) -> Mask:
    return mask.reshape(mask.shape + (1,) * (values.ndim - 1))


def _differ(one: Value, other: Value) -> bool:
    """Whether two values cannot share a variable, having different types."""
    if isinstance(one, dict) or isinstance(other, dict):
        return not (isinstance(one, dict) and isinstance(other, dict)) or one.keys() != other.keys()
    return one.dtype != other.dtype or one.shape != other.shape


def _merge(old: Value, new: Value, mask: Mask) -> Value:
    if isinstance(old, dict) or isinstance(new, dict):
        assert isinstance(old, dict) and isinstance(new, dict)
        return {name: _merge(old[name], new[name], mask) for name in old}
    return np.where(_like(mask, new), new, old)
