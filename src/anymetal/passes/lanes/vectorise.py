"""Writes the function that runs a kernel for 32 lanes at once.

There are two kinds of copies of a kernel's blocks. While all lanes are active and agree on every
branch, the full copy runs: the kernel's own control flow, with vectors in place of values. Where
lanes part, a masked copy of the blocks up to where they all meet again runs under a mask a block,
in an order in which loops stand together; then the full copy goes on. A simdgroup with fewer than
32 threads, or of which some lanes have returned, runs in a masked copy of the whole kernel.

Values that live in more than one block go through variables, which LLVM turns into registers; in
masked copies only phis need to keep the values of lanes that are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from anymetal.passes.flow import Loop
from anymetal.passes.lanes import facts as lanes
from anymetal.passes.lanes.analysis import Analysis
from anymetal.passes.lanes.calls import Calls
from anymetal.passes.lanes.facts import UNIFORM, WIDTH, Facts
from anymetal.passes.lanes.graph import EXIT, NotVectorisable
from anymetal.passes.lanes.kernel import Kernel
from anymetal.passes.lanes.memory import Access, Memory
from anymetal.passes.lanes.operations import Operations
from anymetal.passes.lanes.rules import (
    GROUP,
    GROUP_SIZE,
    INDEX,
    POSITION,
    SIMD,
    GroupShape,
    literal,
)
from anymetal.passes.lanes.together import loads_together, stores_together
from anymetal.passes.lanes.values import MASK, Code, Value, lanes_text, vector_type
from anymetal.passes.operands import Operand, Parsed

LIVE_LANES = 12  # machine.h: am_simdgroup::threads

# What an address is computed with: nothing that reads memory.
_ADDRESS_OPERATIONS = frozenset(
    [
        "getelementptr",
        "add",
        "sub",
        "mul",
        "shl",
        "and",
        "or",
        "xor",
        "lshr",
        "zext",
        "sext",
        "trunc",
    ]
)


@dataclass
class Slot:
    """Where a value lives between blocks: a variable for each of its scalars."""

    kind: str
    facts: Facts
    variables: list[str]


@dataclass
class Region:
    """A masked copy of blocks, shared by all branches that part and meet in one round of a loop.

    `ends` are the blocks where lanes may all be together again: there the full copy goes on. The
    region outside all loops (`loop` is None) also serves simdgroups that never are complete.
    """

    number: int
    loop: Loop | None
    members: set[str] = field(default_factory=set)
    ends: set[str] = field(default_factory=set)
    masks: dict[str, str] = field(default_factory=dict)  # the variable of each block's mask


@dataclass
class Scope:
    """One block being written: its mask (None: all lanes) and the values at hand."""

    label: str
    mask: str | None
    values: dict[str, Value] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)  # instructions written with an earlier one
    groups: dict[int, list[Parsed]] = field(default_factory=dict)  # stores to write with the last


Writer = Callable[["Vectoriser", Parsed, list[Value], Scope], Value | None]


class Vectoriser:
    """Vectorises one kernel for one shape of threadgroups."""

    def __init__(self, kernel: Kernel, shape: GroupShape, heaviest: int) -> None:
        self._kernel = kernel
        self._heaviest = heaviest
        self._flow = kernel.flow
        self._shape = shape
        self._analysis = Analysis(kernel, shape)
        self._code = Code(kernel.types)
        self._operations = Operations(self._code, self._analysis.rules)
        self._memory = Memory(self._code)
        self._calls = Calls(self._code, "%am.simd")
        self._slots: dict[str, Slot] = {}
        self._machine: dict[tuple[str, int], Value] = {}
        self._arrays: dict[str, str] = {}
        self._regions: dict[Loop | None, Region] = {}

    @property
    def has_barriers(self) -> bool:
        return self._calls.has_barriers

    @property
    def functions(self) -> list[str]:
        """Further functions that the body calls."""
        return list(self._code.functions.values())

    @property
    def declarations(self) -> list[str]:
        return sorted(self._code.declarations)

    def body(self) -> list[str]:
        """The lines between the braces of `(ptr buffers, ptr self)`."""
        code = self._code
        self._make_slots()
        self._enter()
        for label in self._flow.order:
            self._write_full(label)
        for region in self._regions.values():
            self._write_region(region)
            if code.weight > self._heaviest:
                raise NotVectorisable(
                    "its vector code would be so long that compiling it takes seconds"
                )
        code.label("am.done")
        code.line("ret void")
        return ["entry:", *code.variables, *code.lines]

    # ---- entry -------------------------------------------------------------------------------

    def _enter(self) -> None:
        code, self_text = self._code, self._kernel.self
        for offset, name in ((SIMD, "%am.simd"), (GROUP, "%am.group.here")):
            place = code.moved("ptr", self_text, offset)
            code.line(f"{name} = load ptr, ptr {place}, !invariant.load !4000000")
        self._read_positions()
        if self._shape.complete:
            code.jump("full.0")
            return
        whole = self._region(None)
        whole.members.update(self._flow.order)
        live = code.op(f"load i32, ptr {code.moved('ptr', '%am.simd', LIVE_LANES)}")
        full = code.op(f"icmp eq i32 {live}, {WIDTH}")
        code.branch(full, "full.0", "am.partial")
        code.label("am.partial")
        counts = code.splat("i32", live)
        numbers = lanes_text("i32", range(WIDTH))
        mask = code.op(f"icmp ult {vector_type('i32')} {numbers}, {counts}")
        code.store(MASK, mask, self._mask(whole, self._flow.entry))
        code.jump(self._guard(whole, self._flow.entry))

    def _read_positions(self) -> None:
        code, self_text = self._code, self._kernel.self

        def read(offset: int) -> str:
            place = code.moved("ptr", self_text, offset)
            return code.op(f"load i32, ptr {place}, !invariant.load !4000000")

        index = read(INDEX)
        self._machine["self", INDEX] = Value("i32", self._index_facts(), index)
        for axis in range(3):
            facts = self._shape.position(axis)
            value = Value("i32", facts, read(POSITION + 4 * axis))
            self._machine["self", POSITION + 4 * axis] = value
        if self._shape.row == 0:
            self._compute_positions(index)
        for offset, tag, name in ((SIMD, "simd", "%am.simd"), (GROUP, "group", "%am.group.here")):
            facts = replace(UNIFORM, tag=(tag, 0))
            self._machine["self", offset] = Value("ptr", facts, name)

    def _index_facts(self) -> Facts:
        return Facts(lanes.LANE_NUMBERS, divisor=WIDTH, limit=1024)

    def _compute_positions(self, index: str) -> None:
        """Positions of lanes that lie anyhow; exact, since all numbers are below 1025."""
        code = self._code
        wide, real = vector_type("i32"), vector_type("float")
        rest = code.op(f"add {wide} {code.splat('i32', index)}, {lanes_text('i32', range(WIDTH))}")
        for axis in range(3):
            place = code.moved("ptr", "%am.group.here", GROUP_SIZE + 4 * axis)
            size = code.splat("i32", code.op(f"load i32, ptr {place}, !invariant.load !4000000"))
            middle = code.op(f"uitofp {wide} {rest} to {real}")
            middle = code.op(f"fadd {real} {middle}, splat (float 5.000000e-01)")
            divisor = code.op(f"uitofp {wide} {size} to {real}")
            quotient = code.op(f"fdiv {real} {middle}, {divisor}")
            count = code.op(f"fptoui {real} {quotient} to {wide}")
            product = code.op(f"mul {wide} {count}, {size}")
            position = code.op(f"sub {wide} {rest}, {product}")
            facts = self._shape.position(axis)
            self._machine["self", POSITION + 4 * axis] = Value("i32", facts, vector=position)
            rest = count

    # ---- values between blocks ---------------------------------------------------------------

    def _make_slots(self) -> None:
        """A slot for every phi, and for every value that another block asks for."""
        wanted: set[tuple[str, str]] = set()
        for label, instructions in self._kernel.blocks.items():
            for parsed in instructions:
                for number, operand in enumerate(parsed.operands):
                    place = parsed.labels[number] if parsed.opcode == "phi" else label
                    self._want(operand.text, place, wanted)
        names = {name for name, _ in wanted}
        for name, (_, parsed) in self._kernel.definitions.items():
            elsewhere = name in names and not self._made_again(name)
            if parsed.opcode == "phi" or elsewhere:
                self._slots[name] = self._new_slot(parsed.kind, self._analysis.facts[name])

    def _want(self, name: str, place: str, wanted: set[tuple[str, str]]) -> None:
        """Notes that a block uses a value of another one; patterns are computed again there."""
        definition = self._kernel.definitions.get(name)
        if definition is None or definition[0] == place or (name, place) in wanted:
            return
        wanted.add((name, place))
        if self._made_again(name):
            for operand in definition[1].operands:
                self._want(operand.text, place, wanted)

    def _made_again(self, name: str) -> bool:
        """Patterns cost little and cannot be kept where a condition goes with them."""
        parsed = self._kernel.definitions[name][1]
        facts = self._analysis.facts[name]
        if parsed.opcode == "alloca":
            return False
        if parsed.opcode == "phi":
            return False
        if facts.tag is not None and facts.tag[0] == "private":
            return True
        return facts.is_pattern or facts.values is not None

    def _new_slot(self, kind: str, facts: Facts) -> Slot:
        code = self._code
        if facts.is_varying:
            leaves = code.types.leaves(kind)
            return Slot(kind, facts, [code.variable(vector_type(leaf)) for leaf in leaves])
        return Slot(kind, facts, [code.variable(kind)])

    def _read_slot(self, slot: Slot) -> Value:
        code = self._code
        if not slot.facts.is_varying:
            text = code.load(slot.kind, slot.variables[0])
            return code.settled(slot.kind, slot.facts, text)
        leaves = code.types.leaves(slot.kind)
        pairs = zip(leaves, slot.variables, strict=True)
        values = [code.varying(leaf, code.load(vector_type(leaf), v)) for leaf, v in pairs]
        return code.assembled(slot.kind, iter(values))

    def _texts(self, slot: Slot, value: Value) -> list[str]:
        """What to write into each variable of a slot."""
        if not slot.facts.is_varying:
            return [value.base]
        return [self._code.vector(leaf) for leaf in self._code.leaves_of(value)]

    def _write_slot(self, slot: Slot, texts: list[str], mask: str | None, taken: str) -> None:
        """`mask`: lanes that bring a value, None for all; `taken`: whether there are any."""
        code = self._code
        if not slot.facts.is_varying:
            text = texts[0]
            if taken:
                before = code.load(slot.kind, slot.variables[0])
                text = code.op(f"select i1 {taken}, {slot.kind} {text}, {slot.kind} {before}")
            code.store(slot.kind, text, slot.variables[0])
            return
        kinds = code.types.leaves(slot.kind)
        for kind, text, variable in zip(kinds, texts, slot.variables, strict=True):
            wide = vector_type(kind)
            merged = text
            if mask is not None:
                before = code.load(wide, variable)
                merged = code.op(f"select {MASK} {mask}, {wide} {text}, {wide} {before}")
            code.store(wide, merged, variable)

    # ---- one block ---------------------------------------------------------------------------

    def _operand(self, operand: Operand, scope: Scope) -> Value:
        if operand.is_name:
            return self._value(operand.text, scope)
        facts = literal(operand)
        if facts.values is not None and operand.kind != "ptr":
            return self._code.known(operand.kind, facts)
        return Value(operand.kind, facts, base=operand.text)

    def _value(self, name: str, scope: Scope) -> Value:
        value = scope.values.get(name)
        if value is not None:
            return value
        if name in (self._kernel.buffers, self._kernel.self):
            value = Value("ptr", self._analysis.facts[name], base=name)
        else:
            value = self._from_elsewhere(name, scope)
        if not self._code.is_aside:
            scope.values[name] = value
        return value

    def _from_elsewhere(self, name: str, scope: Scope) -> Value:
        slot = self._slots.get(name)
        if slot is not None:
            return self._read_slot(slot)
        _, parsed = self._kernel.definitions[name]
        value = self._compute(parsed, scope)
        assert value is not None, name
        return value

    def _write_instructions(self, scope: Scope) -> None:
        block = list(self._kernel.body(scope.label))
        self._code.kept.clear()
        for number, parsed in enumerate(block):
            if parsed.opcode in ("br", "ret", "unreachable"):
                return
            if id(parsed) in scope.done:
                continue
            if parsed.result is not None and parsed.result in scope.values:
                self._keep(parsed.result, scope.values[parsed.result])
                continue
            if self._draw_together(block, number, scope):
                continue
            value = self._compute(parsed, scope)
            if parsed.result is not None and value is not None:
                scope.values[parsed.result] = value
                self._keep(parsed.result, value)

    def _keep(self, name: str, value: Value) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            self._write_slot(slot, self._texts(slot, value), None, "")

    # ---- accesses drawn together -------------------------------------------------------------

    def _draw_together(self, block: list[Parsed], number: int, scope: Scope) -> bool:
        """Writes a load or store together with later ones, if they cover memory only together."""
        parsed = block[number]
        if parsed.opcode not in ("load", "store"):
            return False
        kind = parsed.kind if parsed.opcode == "load" else parsed.operands[0].kind
        if not self._memory.is_simple(parsed, kind):
            return False
        address = self._operand(parsed.operands[-1], scope)
        if not self._memory.needs_company(kind, address):
            return False
        search = loads_together if parsed.opcode == "load" else stores_together
        size = self._kernel.types.size(kind)
        members = search(
            block,
            number,
            address,
            size,
            lambda other: self._ahead(other.operands[-1], scope),
            distinct=parsed.opcode == "store" or scope.mask is not None,
        )
        if members is None:
            return False
        if parsed.opcode == "load":
            self._load_together(kind, members, scope)
        else:
            last = members[-1]
            scope.groups[id(last)] = members
            scope.done.update(id(member) for member in members[:-1])
        return True

    def _ahead(self, operand: Operand, scope: Scope) -> Value | None:
        """An address that is asked for early, if everything it is made of is known already."""
        name = operand.text
        if not operand.is_name or name in scope.values:
            return self._operand(operand, scope)
        definition = self._kernel.definitions.get(name)
        if definition is None or definition[0] != scope.label or definition[1].opcode == "phi":
            return self._operand(operand, scope)
        parsed = definition[1]
        if parsed.opcode not in _ADDRESS_OPERATIONS:
            return None
        if any(self._ahead(part, scope) is None for part in parsed.operands):
            return None
        value = self._compute(parsed, scope)
        if value is not None:
            scope.values[name] = value
        return value

    def _access(self, parsed: Parsed, kind: str, scope: Scope) -> Access:
        address = self._operand(parsed.operands[-1], scope)
        return Access(kind, address, parsed.align, scope.mask, parsed.is_invariant)

    def _load_together(self, kind: str, members: list[Parsed], scope: Scope) -> None:
        accesses = [self._access(member, kind, scope) for member in members]
        values = self._memory.load_together(accesses)
        for member, value in zip(members, values, strict=True):
            assert member.result is not None
            scope.values[member.result] = value
        self._keep(members[0].result or "", values[0])

    def _store_together(self, members: list[Parsed], scope: Scope) -> None:
        kind = members[0].operands[0].kind
        accesses = [self._access(member, kind, scope) for member in members]
        values = [self._operand(member.operands[0], scope) for member in members]
        self._memory.store_together(accesses, values)

    def _compute(self, parsed: Parsed, scope: Scope) -> Value | None:
        operands = [self._operand(operand, scope) for operand in parsed.operands]
        result = self._operations.apply(parsed, operands, scope.mask)
        if result is not None:
            return result
        writer = self._writers.get(parsed.opcode)
        if writer is None:
            raise NotVectorisable(f"the instruction {parsed.opcode}")
        return writer(self, parsed, operands, scope)

    def _write_load(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        facts = self._analysis.rules.facts(
            parsed, lambda _: operands[0].facts, all_active=scope.mask is None
        )
        if facts.values is not None:
            return self._code.known(parsed.kind, facts)
        tag = operands[0].facts.tag
        if tag is not None and tag in self._machine:
            return replace(self._machine[tag])
        if tag == ("simd", 0) and scope.mask is None and parsed.kind == MASK:
            return self._code.uniform(MASK, "splat (i1 true)")
        if parsed.is_atomic and not operands[0].facts.is_uniform:
            return self._serial_atomic(parsed, operands, scope)
        value = self._memory.load(parsed, operands[0], scope.mask)
        if facts.is_uniform:
            value.facts = facts
        return value

    def _write_store(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        if id(parsed) in scope.groups:
            self._store_together(scope.groups[id(parsed)], scope)
            return None
        if parsed.is_atomic and not all(operand.facts.is_uniform for operand in operands):
            return self._serial_atomic(parsed, operands, scope)
        self._memory.store(parsed, operands[0], operands[1], scope.mask)
        return None

    def _serial_atomic(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        code = self._code
        tail = f" {parsed.ordering}, align {parsed.align}"
        volatile = " volatile" if parsed.is_volatile else ""

        def each(texts: list[str]) -> str:
            typed = [f"{o.kind} {text}" for o, text in zip(operands, texts, strict=True)]
            if parsed.opcode == "load":
                return code.op(f"load atomic{volatile} {parsed.kind}, {typed[0]}{tail}")
            if parsed.opcode == "store":
                code.line(f"store atomic{volatile} {typed[0]}, {typed[1]}{tail}")
                return ""
            if parsed.opcode == "atomicrmw":
                head = f"atomicrmw{volatile} {parsed.predicate}"
            else:
                head = f"cmpxchg{' weak' if parsed.flags else ''}{volatile}"
            return code.op(f"{head} {', '.join(typed)}{tail}")

        return self._calls.serial(parsed.kind, operands, scope.mask, each)

    def _write_call(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        return self._calls.call(parsed, operands, scope.mask)

    def _write_alloca(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        if operands:
            raise NotVectorisable("a variable of unknown size")
        assert parsed.result is not None
        facts = self._analysis.facts[parsed.result]
        if parsed.result not in self._arrays:
            size = self._kernel.types.size(parsed.element)
            copy = -(-size // 16) * 16
            self._arrays[parsed.result] = self._code.variable(f"[{copy * WIDTH} x i8]", align=64)
        return Value("ptr", facts, self._arrays[parsed.result])

    def _write_fence(self, parsed: Parsed, operands: list[Value], scope: Scope) -> Value | None:
        self._code.line(f"fence {parsed.ordering}")
        return None

    _writers: ClassVar[dict[str, Writer]] = {
        "load": _write_load,
        "store": _write_store,
        "call": _write_call,
        "alloca": _write_alloca,
        "atomicrmw": _serial_atomic,
        "cmpxchg": _serial_atomic,
        "fence": _write_fence,
    }

    # ---- the full copy -----------------------------------------------------------------------

    def _full_name(self, label: str) -> str:
        return f"full.{self._flow.rank[label]}"

    def _write_full(self, label: str) -> None:
        code = self._code
        code.label(self._full_name(label))
        scope = Scope(label, None)
        self._write_instructions(scope)
        terminator = self._kernel.blocks[label][-1]
        if terminator.opcode == "unreachable":
            code.line("unreachable")
        elif terminator.opcode == "ret":
            code.jump("am.done")
        elif not terminator.operands:
            self._full_edge(scope, terminator.labels[0])
        else:
            self._full_branch(scope, terminator)

    def _full_edge(self, scope: Scope, target: str) -> None:
        with self._code.aside():
            self._bring(self._brought(scope, target), None, "")
        self._code.jump(self._full_name(target))

    def _full_branch(self, scope: Scope, terminator: Parsed) -> None:
        code = self._code
        condition = self._operand(terminator.operands[0], scope)
        yes, no = terminator.labels
        known = condition.facts.values
        if known is not None and condition.facts.is_uniform:
            self._full_edge(scope, yes if known[0] else no)
            return
        names = [code.fresh("yes"), code.fresh("no"), code.fresh("mixed"), code.fresh("some")]
        if condition.facts.is_uniform:
            code.branch(code.scalar(condition), names[0], names[1])
        else:
            chosen = code.vector(condition)
            bits = code.bits(chosen)
            code.branch(code.op(f"icmp eq i32 {bits}, -1"), names[0], names[3])
            code.label(names[3])
            code.branch(code.op(f"icmp eq i32 {bits}, 0"), names[1], names[2])
            code.label(names[2])
            with code.aside():
                self._part_ways(scope, terminator, chosen)
        for name, target in zip(names, (yes, no), strict=False):
            code.label(name)
            self._full_edge(scope, target)

    def _part_ways(self, scope: Scope, terminator: Parsed, chosen: str) -> None:
        """From the full copy into a masked one, each lane to the block it wants."""
        code = self._code
        region = self._region_after(scope.label)
        brought = [self._brought(scope, target) for target in terminator.labels]
        masks = (chosen, code.inverted(chosen))
        for target, values, mask in zip(terminator.labels, brought, masks, strict=True):
            self._bring(values, mask, "true")
            self._add_lanes(region, target, mask)
        first = min(terminator.labels, key=self._flow.rank.__getitem__)
        code.jump(self._guard(region, self._entered_at(region, first)))

    def _entered_at(self, region: Region, label: str) -> str:
        """The header of the largest loop of a region around a block: loops are entered there."""
        loops = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and loop.blocks <= region.members
        ]
        largest = max(loops, key=lambda loop: len(loop.blocks), default=None)
        return largest.header if largest else label

    def _brought(self, scope: Scope, target: str) -> list[tuple[Slot, list[str]]]:
        """What an edge brings to the phis of its target. Read before any of them is written."""
        brought = []
        for phi in self._kernel.phis(target):
            assert phi.result is not None
            slot = self._slots[phi.result]
            value = self._operand(phi.operands[phi.labels.index(scope.label)], scope)
            brought.append((slot, self._texts(slot, value)))
        return brought

    def _bring(self, brought: list[tuple[Slot, list[str]]], mask: str | None, taken: str) -> None:
        for slot, texts in brought:
            self._write_slot(slot, texts, mask, taken)

    # ---- masked copies -----------------------------------------------------------------------

    def _region(self, loop: Loop | None) -> Region:
        if loop not in self._regions:
            self._regions[loop] = Region(len(self._regions), loop)
        return self._regions[loop]

    def _region_after(self, label: str) -> Region:
        """The region for lanes that part at the end of a block."""
        end, between = self._flow.meeting_point(label), self._flow.between(label)
        around = [
            loop
            for loop in self._flow.loops
            if label in loop.blocks and end in loop.blocks and loop.header not in between
        ]
        region = self._region(min(around, key=lambda loop: len(loop.blocks), default=None))
        region.members |= between
        if end != EXIT:
            region.ends.add(end)
        return region

    def _mask(self, region: Region, label: str) -> str:
        if label not in region.masks:
            variable = region.masks[label] = self._code.variable(MASK)
            self._code.variables.append(f"  store {MASK} zeroinitializer, ptr {variable}")
        return region.masks[label]

    def _guard(self, region: Region, label: str) -> str:
        return f"masked{region.number}.{self._flow.rank[label]}"

    def _add_lanes(self, region: Region, target: str, mask: str) -> None:
        code, variable = self._code, self._mask(region, target)
        before = code.load(MASK, variable)
        code.store(MASK, code.op(f"or {MASK} {before}, {mask}"), variable)

    def _write_region(self, region: Region) -> None:
        code = self._code
        ordered = [
            label for label in self._flow.order if label in region.members or label in region.ends
        ]
        for position, label in enumerate(ordered):
            after = code.fresh("after")
            self._write_guarded(region, label, after)
            code.label(after)
            for header in self._loops_ending(region, ordered, position):
                onward = code.fresh("onward")
                again = code.any(code.load(MASK, self._mask(region, header)))
                code.branch(again, self._guard(region, header), onward)
                code.label(onward)
            if position + 1 < len(ordered):
                code.jump(self._guard(region, ordered[position + 1]))
            elif region.loop is None:
                code.jump("am.done")
            else:
                code.line("unreachable")

    def _write_guarded(self, region: Region, label: str, after: str) -> None:
        """One block, skipped where no lane wants it; where all do, the full copy takes over."""
        code, variable = self._code, self._mask(region, label)
        code.label(self._guard(region, label))
        mask = code.load(MASK, variable)
        code.store(MASK, "zeroinitializer", variable)
        bits = code.bits(mask)
        body = code.fresh("body")
        if label in region.ends:
            together = code.fresh("apart")
            code.branch(code.op(f"icmp eq i32 {bits}, -1"), self._full_name(label), together)
            code.label(together)
            if label not in region.members:
                code.jump(after)
                return
        code.branch(code.op(f"icmp ne i32 {bits}, 0"), body, after)
        code.label(body)
        self._write_masked(region, label, mask)
        code.jump(after)

    def _loops_ending(self, region: Region, ordered: list[str], position: int) -> list[str]:
        """Headers of the loops whose last block stands at `position`, innermost first."""
        ending = [
            loop
            for loop in self._flow.loops
            if loop.blocks <= region.members
            and max(map(self._flow.rank.__getitem__, loop.blocks))
            == self._flow.rank[ordered[position]]
        ]
        return [loop.header for loop in sorted(ending, key=lambda loop: len(loop.blocks))]

    def _write_masked(self, region: Region, label: str, mask: str) -> None:
        scope = Scope(label, mask)
        self._write_instructions(scope)
        terminator = self._kernel.blocks[label][-1]
        if terminator.opcode in ("ret", "unreachable"):
            return
        ways = self._ways(scope, terminator, mask)
        brought = [self._brought(scope, target) for target, _, _ in ways]
        for (target, share, taken), values in zip(ways, brought, strict=True):
            self._bring(values, share, taken)
            self._add_lanes(region, target, share)

    def _ways(self, scope: Scope, terminator: Parsed, mask: str) -> list[tuple[str, str, str]]:
        """The ways out of a block: target, the lanes that go there, whether there are any."""
        if not terminator.operands:
            return [(terminator.labels[0], mask, "")]
        condition = self._operand(terminator.operands[0], scope)
        yes, no = terminator.labels
        known = condition.facts.values
        if known is not None and condition.facts.is_uniform:
            return [(yes if known[0] else no, mask, "")]
        return [
            (target, *self._share(scope, condition, wanted))
            for target, wanted in ((yes, True), (no, False))
        ]

    def _share(self, scope: Scope, condition: Value, wanted: bool) -> tuple[str, str]:
        """The lanes that take one way out of a branch, and whether there are any."""
        code = self._code
        assert scope.mask is not None
        if condition.facts.is_uniform:
            taken = code.scalar(condition)
            if not wanted:
                taken = code.op(f"xor i1 {taken}, true")
            share = f"select i1 {taken}, {MASK} {scope.mask}, {MASK} zeroinitializer"
            return code.op(share), taken
        chosen = code.vector(condition)
        share = code.both(scope.mask, chosen if wanted else code.inverted(chosen))
        return share, code.any(share)
