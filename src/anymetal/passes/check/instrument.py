"""Inserts a check before every memory access of a kernel and before arithmetic that can go wrong.

Each check returns the address to use: the one given, or that of a sink where the access is wrong,
so that no kernel can write outside its buffers. The checks themselves are C++
(checker/shadow/fast.cpp), linked to the kernel as IR.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from anymetal.ir import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    Global,
    Instruction,
    Integer,
    Module,
    Operand,
    Type,
    array,
    boolean,
    constant,
    i32,
    i64,
    structure,
)
from anymetal.machine import shadow
from anymetal.machine.layout import Group, Thread
from anymetal.machine.shadow import (
    FIRST_DYNAMIC,
    FIRST_STATIC,
    LARGEST_CELL,
    UNKNOWN_REGION,
    Use,
)
from anymetal.machine.table import offset_of
from anymetal.nouns import AddedBytes
from anymetal.passes.accesses import Access, accesses_of
from anymetal.passes.check.debug_info import DebugInfo, Spot
from anymetal.passes.check.mark import (
    DIVISOR,
    FENCE,
    INDEX,
    MARKS,
    NUMBER,
    OVERFLOW,
    RETURN,
    SHUFFLE,
)
from anymetal.passes.check.moves import Moves
from anymetal.passes.check.padding import Padding
from anymetal.passes.check.quotients import Quotients, restore
from anymetal.passes.check.sites import AccessSite, Instrumented
from anymetal.passes.check.unset import LOCAL
from anymetal.passes.check.unset_values import UnsetValues
from anymetal.passes.check.wholes import Wholes, unit
from anymetal.passes.lower.coroutine import has_suspends
from anymetal.passes.lower.invariant import invariant
from anymetal.passes.lower.machine import GROUP_MAIN, GROUP_OFFSET, THREAD_MAIN, self_of
from anymetal.passes.provenance import MACHINE, UNKNOWN, Provenance, Root
from anymetal.passes.rewrite import rewrite

DIVIDED = "division by zero"
DIVIDED_FOR_NOTHING = f"{DIVIDED}, whose result is never used"
_MATRIX_HEADER = "metal_simdgroup_matrix"
INDEX_OFFSET = offset_of(Thread, "index")
LISTENER_DATA_OFFSET = offset_of(Group, "listener_data")
# Classes of llvm.is.fpclass.
_NAN, _INFINITE, _FINITE, _ALL_CLASSES = 3, 516, 504, 1023
_SUFFIXES = {"float": "f32", "half": "f16", "bfloat": "bf16"}


@dataclass(frozen=True)
class _State:
    """Where a block finds the launch's state and its thread's index, and the reads of both."""

    checks: Operand
    index: Operand
    reads: list[Instruction]


class Instrument:
    """One run of the pass over one kernel."""

    def __init__(
        self,
        module: Module,
        author_file: str,
        read_only: Collection[int],
        state_bytes: int,
        padding: Collection[AddedBytes] = (),
    ) -> None:
        self._state_bytes = state_bytes
        self._module = module
        self._author_file = author_file
        self._function = module.function(THREAD_MAIN)
        divisions = {f.name: restore(f) for f in module.functions}[THREAD_MAIN]
        self._stops = has_suspends(module)
        self._info = DebugInfo(module)
        self._layout = module.layout()
        self._padding = Padding(self._layout, padding)
        self._globals = module.globals
        self._provenance = Provenance(self._function)
        self._callees = {function.name for function in module.functions}
        self._users = self._function.users()
        self._moves = Moves(self._function, self._users)
        self._quotients = Quotients(self._function, divisions, self._users)
        self._doubtful: dict[str, int] = {}
        self._arrays: dict[str, tuple[int, Operand]] = {}
        self._unset = UnsetValues(self._function, self._users, self._arrays, self._layout)
        self._padded: dict[str, Operand] = {}
        self._matrices: set[tuple[Spot, ...]] = set()  # loaded or stored in the block so far
        self._tables: tuple[Operand, int] | None = None
        self._declared: set[str] = set()
        self._state = self._find_state(0)
        self._is_state_used = False
        self._first_unset = 0  # the site of the first read that is followed
        # A pointer from anywhere may write to any buffer, whatever the kernel's parameters say.
        self._constant = frozenset() if self._writes_anywhere() else frozenset(read_only)
        self._starts: dict[int, Operand] = {}  # by id of a whole
        self.result = Instrumented()

    def run(self) -> Instrumented:
        self.result.static_slots = self._slots()
        self._find_arrays()
        self._first_unset = len(self.result.sites)
        for read in self._unset.followed:
            (access,) = accesses_of(read)
            self._site(read, access, self._provenance.root(access.pointer))
        for number, block in enumerate(self._function.blocks):
            self._check_block(block, number + 1)
        if not self._stops:
            self._insert(self._function.entry, self._state.reads)
        self._begin()
        for function in self._recursive():
            self.result.has_calls = True
            self._instrument_callee(function)
        return self.result

    def _check_block(self, block: Block, number: int) -> None:
        """Each block of a coroutine loads the state anew: LLVM knows nothing of a pointer that was
        spilled to the frame, and would not speculate loads through it."""
        if self._stops:
            self._state = self._find_state(number)
        self._is_state_used = False
        self._matrices = set()
        build = Builder(self._function.fresh)
        for instruction in block.instructions:
            self._check_instruction(build, instruction)
        block.instructions = build.made
        if self._stops and self._is_state_used:
            self._insert(block, self._state.reads)

    @staticmethod
    def _insert(block: Block, instructions: list[Instruction]) -> None:
        """Inserts behind the phis of a block, or behind the allocas of the entry."""
        heads = ("phi", "alloca")
        block.insert_before(
            next(own for own in block.instructions if own.opcode not in heads), instructions
        )

    # ---- calls of the checks -----------------------------------------------------------------

    def _check_call(
        self, build: Builder, kind: Type, callee: str, *arguments: Operand, name: str = ""
    ) -> Operand:
        """A call of a check: the state first, then its arguments, the thread's index last."""
        self._is_state_used = True
        operands = [self._state.checks, *arguments, self._state.index]
        return self._plain_call(build, kind, callee, *operands, name=name)

    def _plain_call(
        self, build: Builder, kind: Type, callee: str, *operands: Operand, name: str = ""
    ) -> Operand:
        if callee not in self._declared:
            self._declared.add(callee)
            kinds = [operand.type for operand in operands]
            self._module.declare(callee, kind, kinds, ("nounwind", "willreturn"))
        return build.call(kind, callee, operands, name=name)

    # ---- functions that could not be inlined -------------------------------------------------

    def _instrument_callee(self, function: Function) -> None:
        """A recursive function: its pointers have no known provenance, only addresses."""
        provenance = Provenance(function)

        def emit(build: Builder, instruction: Instruction) -> bool:
            for access in accesses_of(instruction):
                if provenance.root(access.pointer).origin not in ("array", "global"):
                    self._check_here(build, instruction, access)
            self._check_target(build, instruction)
            return instruction.callee in MARKS

        rewrite(function, emit)

    def _check_here(self, build: Builder, instruction: Instruction, access: Access) -> None:
        site = self._site(instruction, access, UNKNOWN)
        self._note(UNKNOWN, access)
        arguments = (access.pointer, access.size, i32(access.kind), i32(site))
        checked = self._plain_call(build, PTR, "am_check_here", *arguments)
        instruction.set_operand(access.place, checked)

    def _writes_anywhere(self) -> bool:
        """Whether a store goes through a pointer of unknown provenance."""
        origins = _written_origins(self._function)
        if "unknown" in origins:
            return True
        return any(_written_origins(callee) - {"array", "global"} for callee in self._recursive())

    def _recursive(self) -> list[Function]:
        """The author's functions that could not be inlined."""
        others = (f for f in self._module.functions if f.name not in (THREAD_MAIN, GROUP_MAIN))
        return [f for f in others if self._info.file(f) == self._author_file]

    # ---- memory ------------------------------------------------------------------------------

    def _slots(self) -> list[int]:
        calls = self._function.calls("am_threadgroup_storage")
        return sorted({self._provenance.root(call.operand()).number for call in calls})

    def _find_arrays(self) -> None:
        """The allocas that are accessed; each gets a shadow that says which bytes are written."""
        definitions = self._function.definitions()
        for instruction in self._function.instructions():
            for access in accesses_of(instruction):
                root = self._provenance.root(access.pointer)
                if root.origin == "array" and root.name not in self._arrays:
                    element = definitions[root.name].element
                    assert element is not None, definitions[root.name]
                    written = Operand(PTR, f"%am.written.{len(self._arrays)}")
                    self._arrays[root.name] = (self._layout.size(element), written)
                    if self._padding.is_in(element):
                        self._padded[root.name] = self._unset_but_padding(element)

    def _unset_but_padding(self, kind: Type) -> Operand:
        """A constant like the shadow of a new array: 1 where a byte belongs to nobody."""
        marks = [1] * self._layout.size(kind)
        for run in self._padding.runs(kind):
            if not run.is_open:
                marks[run.start : run.end] = [0] * (run.end - run.start)
        name, text = f"@am.padding.{len(self._padded)}", ", ".join(f"i8 {mark}" for mark in marks)
        self._module.parts.append(
            f"{name} = private unnamed_addr constant {array(len(marks), I8)} [{text}]"
        )
        return Operand(PTR, name)

    def _check_instruction(self, build: Builder, instruction: Instruction) -> None:
        """The instruction with the checks it needs; a mark becomes its check."""
        if instruction.callee in MARKS:
            self._check_mark(build, instruction)
            return
        for bits in self._quotients.used(instruction):
            self._check_call(build, VOID, "am_check_quotient", bits, i32(self._first_quotient))
        for bits in self._unset.used(instruction):
            self._check_call(build, VOID, "am_check_unset", bits, i32(self._first_unset))
        for access in accesses_of(instruction):
            root = self._provenance.root(access.pointer)
            if root != MACHINE:
                checked = self._checked_address(build, instruction, access, root)
                instruction.set_operand(access.place, checked)
        self._check_picked(build, instruction)
        self._check_target(build, instruction)
        if instruction.callee in self._callees:
            self._check_call(build, VOID, "am_check_enter")
        build.made.append(instruction)
        self._check_division(build, instruction)
        self._follow_unset(build, instruction)
        if (instruction.callee or "").startswith("llvm.lifetime.start"):
            started = instruction.operands[-1].text
            if started in self._arrays:
                self._forget(build, started)

    def _check_target(self, build: Builder, call: Instruction) -> None:
        """A call through a pointer goes to a function of the kernel, or to address 0, where it ends
        the launch: any other address may be code too."""
        if call.opcode != "call" or call.callee is not None or not call.target.startswith("%"):
            return
        target = Operand(PTR, call.target)
        known = boolean(False)
        for name in sorted(self._callees - {THREAD_MAIN, GROUP_MAIN}):
            known = build.or_(known, build.icmp("eq", target, Operand(PTR, f"@{name}")))
        call.target = build.select(known, target, Operand(PTR, "null")).text

    def _site(
        self, instruction: Instruction, access: Access | None, root: Root, what: str = ""
    ) -> int:
        number = len(self.result.sites)
        use = self._use(instruction)
        if use == Use.PICKED:
            self._doubtful[str(instruction.result)] = number
        kind, element, align = int(shadow.Access.READ), 1, 1
        if access is not None:
            kind, element, align = access.kind, access.element, access.align
        spots = tuple(self._info.spots(instruction.metadata.get("dbg")))
        self.result.sites.append(
            AccessSite(spots, kind, element, align, use, root, what, instruction)
        )
        return number

    def _use(self, instruction: Instruction) -> Use:
        """What becomes of a value that is read."""
        if self._info.is_open(instruction.metadata.get("dbg")):
            return Use.MOVED
        if instruction.opcode != "load":
            return Use.USED
        result = str(instruction.result)
        if result in self._unset.sources and not self._unset.is_used_at_once(instruction):
            return Use.FOLLOWED
        users = self._users.get(result, [])
        if not users:
            return Use.UNUSED
        picked = (user.opcode == "select" and user.operands[0].text != result for user in users)
        return Use.PICKED if all(picked) else Use.USED

    @functools.cached_property
    def _wholes(self) -> Wholes:
        return Wholes(
            self._function,
            self._provenance,
            {Root("buffer", number) for number in self._constant},
            lambda part: self._use(part) == Use.USED,
        )

    def _checked_address(
        self, build: Builder, instruction: Instruction, access: Access, root: Root
    ) -> Operand:
        """The address to use, behind the check of the access, or of the whole it is a part of."""
        whole = self._wholes.of(instruction)
        if whole is None:
            return self._check(build, instruction, access, root)
        if instruction is whole.first:
            self._starts[id(whole)] = self._check(build, instruction, whole.access, root)
            return self._starts[id(whole)]
        self._note_bits(root, instruction)
        return build.offset(self._starts[id(whole)], whole.distances[id(instruction)])

    def _check(
        self, build: Builder, instruction: Instruction, access: Access, root: Root
    ) -> Operand:
        """The check of one access; gives the address to use."""
        site = self._site(instruction, access, root)
        self._note(root, access)
        self._note_bits(root, instruction)
        callee, arguments = self._check_for(access, root)
        if root.origin not in ("array", "global"):
            self._check_matrix(build, self.result.sites[site].spots)
        name = f"%am.checked.{site}"
        return self._check_call(build, PTR, callee, *arguments, i32(site), name=name)

    def _check_matrix(self, build: Builder, spots: tuple[Spot, ...]) -> None:
        """Counts a load or store of a simdgroup matrix, at the first of its two elements."""
        if not spots or not spots[0].file.endswith(_MATRIX_HEADER):
            return
        call = tuple(spot for spot in spots if not spot.file.endswith(_MATRIX_HEADER))
        if call not in self._matrices:
            self._matrices.add(call)
            if call not in self.result.matrices:
                self.result.matrices.append(call)
            number = self.result.matrices.index(call)
            self._check_call(build, VOID, "am_check_matrix", i32(number))

    def _check_for(self, access: Access, root: Root) -> tuple[str, list[Operand]]:
        """Which check suits a memory, and its arguments up to the site."""
        where = [access.pointer, access.size]
        if root.origin == "array":
            size, written = self._arrays[root.name]
            verb = "store" if access.kind & shadow.Access.WRITE else "load"
            start = Operand(PTR, root.name)
            return f"am_check_array_{verb}", [start, i64(size), written, *where]
        if root.origin == "global":
            table = Operand(PTR, root.name)
            size = self._global_size(root.name)
            return "am_check_table", [table, i64(size), *where, i32(access.kind)]
        region = self._region(root)
        if region == UNKNOWN_REGION and self._author_tables:
            tables, count = self._table_of_tables()
            return "am_check_elsewhere", [tables, i32(count), *where, i32(access.kind)]
        if region == UNKNOWN_REGION or access.kind & shadow.Access.ATOMIC:
            return "am_check_slowly", [i32(region), *where, i32(access.kind)]
        verb = "store" if access.kind == shadow.Access.WRITE else "load"
        if root.origin in ("static", "dynamic"):
            verb = f"shared_{verb}"
        elif verb == "load" and root.number in self._constant:
            verb = "constant_load"
        return f"am_check_{verb}", [i32(region), *where, i64(access.align - 1)]

    @functools.cached_property
    def _author_tables(self) -> list[Global]:
        """The constants that a pointer of unknown provenance may point into."""
        return [g for g in self._globals.values() if not g.name.startswith(("@llvm.", "@am."))]

    def _table_of_tables(self) -> tuple[Operand, int]:
        """The constants' addresses and sizes (am_table), as a constant of its own."""
        name, rows = "@am.tables", self._author_tables
        if self._tables is None:
            kind = structure(PTR, I64)
            sizes = ((row.name, self._layout.size(row.type)) for row in rows)
            text = ", ".join(f"{kind} {{ ptr {table}, i64 {size} }}" for table, size in sizes)
            line = f"{name} = private unnamed_addr constant {array(len(rows), kind)} [{text}]"
            self._module.parts.append(line)
            self._tables = Operand(PTR, name), len(rows)
        return self._tables

    def _global_size(self, name: str) -> int:
        variable = self._globals.get(name)
        return self._layout.size(variable.type) if variable else 0

    def _region(self, root: Root) -> int:
        match root.origin:
            case "buffer":
                return root.number
            case "dynamic":
                return FIRST_DYNAMIC + root.number
            case "static":
                return FIRST_STATIC + self.result.static_slots.index(root.number)
        return UNKNOWN_REGION

    def _note(self, root: Root, access: Access) -> None:
        """Cells of the shadow are as small as the smallest element that is touched."""
        smallest = self.result.smallest
        smallest[root] = min(smallest.get(root, 8), access.element)
        units = self.result.units
        units[root] = min(units.get(root, LARGEST_CELL), unit(access))
        self.result.largest = max(self.result.largest, access.size.integer or 0)
        if access.kind & shadow.Access.WRITE:
            self.result.written_to.add(root)

    def _note_bits(self, root: Root, instruction: Instruction) -> None:
        if root.origin != "buffer" or root in self.result.computed:
            return
        if not self._moves.is_move(instruction):
            self.result.computed.add(root)

    # ---- arithmetic --------------------------------------------------------------------------

    def _check_mark(self, build: Builder, mark: Instruction) -> None:
        """The check that a mark stands for."""
        if mark.callee == NUMBER:
            self._check_number(build, mark)
            return
        if mark.callee == FENCE:
            self.result.has_fences = True
            self._check_call(build, VOID, "am_check_fence", *mark.operands)
            return
        if mark.callee == LOCAL:
            return
        if mark.callee == RETURN:
            self._check_call(build, VOID, "am_check_return")
            return
        if mark.callee == SHUFFLE:
            source, width, number = mark.operands
            wide = build.cast("zext", number, I32) if number.type is not I32 else number
            self._check_call(build, VOID, "am_check_shuffle", source, width, wide)
            return
        if mark.callee == OVERFLOW:
            self._check_overflow(build, mark)
            return
        value = mark.operands[0]
        assert isinstance(value.type, Integer)
        if mark.callee == INDEX:
            site = self._site(mark, None, MACHINE, "index")
            self._check_call(build, VOID, "am_check_index", *mark.operands, i32(site))
            return
        if mark.callee == DIVISOR and self._quotients.stands_for(mark):
            return
        if mark.callee == DIVISOR:
            site = self._site(mark, None, MACHINE, DIVIDED_FOR_NOTHING)
            wrong = build.icmp("eq", value, constant(value.type, 0))
        else:
            site = self._site(mark, None, MACHINE, "shift past the width")
            wrong = build.icmp("uge", value, constant(value.type, value.type.bits))
        self._check_call(build, VOID, "am_check_divisor", wrong, i32(site))

    def _check_division(self, build: Builder, instruction: Instruction) -> None:
        """A division by zero is reported here if its result is used at once; otherwise a bit goes
        with it, and with all that is computed of it."""
        if self._quotients.is_used_at_once(instruction):
            site = self._site(instruction, None, MACHINE, DIVIDED)
            divisor = instruction.operands[1]
            wrong = build.icmp("eq", divisor, constant(divisor.type, 0))
            self._check_call(build, VOID, "am_check_divisor", wrong, i32(site))
        if self._quotients.is_followed(instruction):
            self._quotients.follow(build, instruction)

    def _follow_unset(self, build: Builder, instruction: Instruction) -> None:
        """A bit goes with a variable's value; a copy to another variable leaves that one unset."""
        if self._unset.is_followed(instruction):
            self._unset.follow(build, instruction)
        if self._unset.is_handed_on(instruction):
            operands = (*self._unset.hand_on(build, instruction), boolean(False))
            self._plain_call(build, VOID, "llvm.memset.p0.i64", *operands)

    @functools.cached_property
    def _first_quotient(self) -> int:
        """The site of the first division that is followed; the others come behind it."""
        sites = [self._site(d, None, MACHINE, DIVIDED) for d in self._quotients.followed]
        return sites[0]

    def _check_overflow(self, build: Builder, mark: Instruction) -> None:
        """Reports arithmetic on two integers whose result has more than 32 bits."""
        site = self._site(mark, None, MACHINE, "signed overflow in an index")
        operation, *operands = mark.operands
        left, right = (build.cast("sext", operand, I64) for operand in operands)
        result = (build.add, build.sub, build.mul)[operation.integer or 0](left, right)
        moved = build.add(result, i64(1 << 31))
        wrong = build.icmp("ugt", moved, i64((1 << 32) - 1))
        self._check_call(build, VOID, "am_check_divisor", wrong, i32(site))

    def _check_number(self, build: Builder, mark: Instruction) -> None:
        """Reports a NaN that no operand was, or an infinity from finite operands."""
        site = self._site(mark, None, MACHINE, "NaN or infinity")

        def holds(value: Operand, classes: int) -> Operand:
            callee = f"llvm.is.fpclass.{_SUFFIXES[value.type.text]}"
            return self._plain_call(build, I1, callee, value, i32(classes))

        result, *operands = mark.operands
        nan, infinite = holds(result, _NAN), holds(result, _INFINITE)
        for operand in operands:
            nan = build.and_(nan, holds(operand, _ALL_CLASSES & ~_NAN))
            infinite = build.and_(infinite, holds(operand, _FINITE))
        self._check_call(build, VOID, "am_check_number", build.or_(nan, infinite), i32(site))

    def _check_picked(self, build: Builder, instruction: Instruction) -> None:
        """An uninitialised value is reported when a select takes it."""
        if instruction.opcode != "select" or instruction.operands[0].type is not I1:
            return
        condition, taken, other = instruction.operands
        for value, wanted in ((taken, True), (other, False)):
            site = self._doubtful.get(value.text)
            if site is not None:
                is_taken = build.icmp("eq", condition, boolean(wanted))
                self._check_call(build, VOID, "am_check_taken", is_taken, i32(site))

    # ---- the state of the launch -------------------------------------------------------------

    def _forget(self, build: Builder, name: str) -> None:
        """Clears the shadow of an array: nothing in it is written."""
        size, written = self._arrays[name]
        length, plain = i64(size), boolean(False)
        if name in self._padded:
            operands = (written, self._padded[name], length, plain)
            self._plain_call(build, VOID, "llvm.memcpy.p0.p0.i64", *operands)
        else:
            operands = (written, constant(I8, 0), length, plain)
            self._plain_call(build, VOID, "llvm.memset.p0.i64", *operands)

    def _begin(self) -> None:
        """Arrays of the thread start unwritten."""
        build = Builder(self._function.fresh)
        for size, written in self._arrays.values():
            build.alloca(array(size, I8), align=8, name=written.text)
        for name in self._arrays:
            self._forget(build, name)
        self._function.at_entry(build.made)

    def _find_state(self, number: int) -> _State:
        """Loads the address of the launch's state and this thread's index.

        In a coroutine the thread's structure is invariant, and marked so the loads are hoisted. In
        a loop over threads it is one local variable that serves all of them in turn.
        """
        build = Builder(self._function.fresh)
        fixed = invariant(self._module)
        mark = fixed if self._stops else {}
        there = {"dereferenceable": self._module.metadata(1, f"i64 {self._state_bytes}")}
        this = self_of(self._function)
        place = build.offset(this, INDEX_OFFSET)
        index = build.load(I32, place, align=4, metadata=mark, name=f"%am.index.{number}")
        group = build.load(PTR, build.offset(this, GROUP_OFFSET), align=8, metadata=mark)
        place = build.offset(group, LISTENER_DATA_OFFSET)
        name = f"%am.checks.{number}"
        checks = build.load(PTR, place, align=8, metadata=fixed | there, name=name)
        return _State(checks, index, build.made)


def _written_origins(function: Function) -> set[str]:
    """Where the pointers come from that a function writes through."""
    provenance = Provenance(function)
    accesses = (a for i in function.instructions() for a in accesses_of(i))
    return {provenance.root(a.pointer).origin for a in accesses if a.kind & shadow.Access.WRITE}
