"""Puts a check before every access of a kernel, and in front of arithmetic that can go wrong.

Each check returns the address to use: the one given, or that of a sink where the access is wrong,
so that no kernel can write outside its buffers. The checks themselves are C++
(checker/shadow/fast.cpp), linked to the kernel as IR.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from anymetal.ir import Block, Function, Instruction, Module
from anymetal.machine import shadow
from anymetal.machine.layout import Group, Thread
from anymetal.machine.shadow import FIRST_DYNAMIC, FIRST_STATIC, UNKNOWN_REGION, Use
from anymetal.machine.table import offset_of
from anymetal.passes.accesses import Access, accesses_of
from anymetal.passes.check.debug_info import DebugInfo, Spot
from anymetal.passes.check.mark import DIVISOR, MARKS, NUMBER
from anymetal.passes.layout import Layout
from anymetal.passes.lower.coroutine import has_suspends
from anymetal.passes.lower.invariant import invariant
from anymetal.passes.lower.machine import GROUP_MAIN, GROUP_OFFSET, THREAD_MAIN, parameters_of
from anymetal.passes.provenance import MACHINE, UNKNOWN, Provenance, Root

INDEX_OFFSET = offset_of(Thread, "index")
LISTENER_DATA_OFFSET = offset_of(Group, "listener_data")
# Classes of llvm.is.fpclass.
_NAN, _INFINITE, _FINITE = 3, 516, 504
_SUFFIXES = {"float": "f32", "half": "f16", "bfloat": "bf16"}
_NO_ACCESS = Access("", "0", shadow.Access.READ, 1, 1)

_DECLARATIONS = (
    "declare preserve_mostcc ptr @am_check_read(ptr, i32, ptr, i64, i32, i32) nounwind willreturn",
    "declare preserve_mostcc ptr @am_check_write(ptr, i32, ptr, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_constant_load(ptr, i32, ptr, i64, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_load(ptr, i32, ptr, i64, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_store(ptr, i32, ptr, i64, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_shared_load(ptr, i32, ptr, i64, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_shared_store(ptr, i32, ptr, i64, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_slowly(ptr, i32, ptr, i64, i32, i32, i32) nounwind willreturn",
    "declare ptr @am_check_array_load(ptr, ptr, i64, ptr, ptr, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_array_store(ptr, ptr, i64, ptr, ptr, i64, i32, i32) nounwind willreturn",
    "declare ptr @am_check_table(ptr, ptr, i64, ptr, i64, i32, i32, i32) nounwind willreturn",
    "declare void @am_check_divisor(ptr, i1, i32, i32) nounwind willreturn",
    "declare void @am_check_number(ptr, i1, i32, i32) nounwind willreturn",
    "declare void @am_check_taken(ptr, i1, i32, i32) nounwind willreturn",
    "declare ptr @am_check_here(ptr, i64, i32, i32) nounwind willreturn",
    "declare void @am_check_enter(ptr, i32) nounwind willreturn",
    "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1) nounwind willreturn",
)
_ALLOCATED = re.compile(r"= alloca (.+?), align")
_GLOBAL = re.compile(
    r"^(@[-\w.$]+) = (?:[\w()]+ )*?(?:constant|global) "
    r'(\[.*?\](?= [\[z{uc])|%"[^"]+"|[\w.%<]+)'
)
_LIFETIME = re.compile(r"@llvm\.lifetime\.start\.p0\(.*?ptr [^%]*(%[^)]+)\)")
_MARKED = re.compile(r"@am_mark_\w+\((.*)\)")
_PICKED = re.compile(r"select (?:[a-z]+ )*i1 ([^,]+), (\S+) ([^,]+), \S+ ([^,]+)")


@dataclass(frozen=True)
class AccessSite:
    """What a site number in a finding stands for."""

    spots: tuple[Spot, ...]
    kind: int
    element: int
    align: int
    use: int
    root: Root
    what: str


@dataclass
class Instrumented:
    """What the pass did: every site by its number, and the bytes of the arrays of a thread."""

    sites: list[AccessSite] = field(default_factory=list)
    static_slots: list[int] = field(default_factory=list)
    smallest: dict[Root, int] = field(default_factory=dict)
    written_to: set[Root] = field(default_factory=set)


class Instrument:
    """One run of the pass over one kernel."""

    def __init__(
        self, module: Module, author_file: str, read_only: Collection[int], state_bytes: int
    ) -> None:
        self._state_bytes = state_bytes
        self._module = module
        self._author_file = author_file
        self._function = module.function(THREAD_MAIN)
        self._stops = has_suspends(module)
        self._info = DebugInfo(module)
        self._layout = Layout(module)
        self._provenance = Provenance(self._function)
        self._globals = self._global_sizes()
        self._callees = {function.name for function in module.functions}
        self._uses = _uses(self._function)
        self._doubtful: dict[str, int] = {}
        self._arrays: dict[str, tuple[int, str]] = {}
        # A pointer from anywhere may write to any buffer, whatever the kernel's parameters say.
        self._constant = frozenset() if self._writes_anywhere() else frozenset(read_only)
        self.result = Instrumented()

    def run(self) -> Instrumented:
        self.result.static_slots = self._slots()
        self._find_arrays()
        beginning = self._find_state(0)
        for number, block in enumerate(self._function.blocks):
            self._check_block(block, number + 1)
        if not self._stops:
            self._insert(self._function.blocks[0], beginning)
        self._begin()
        for function in self._recursive():
            self._instrument_callee(function)
        for declaration in _DECLARATIONS:
            self._module.declare(declaration)
        return self.result

    def _check_block(self, block: Block, number: int) -> None:
        """A block of a coroutine finds the state for itself: of an address that comes out of the
        frame LLVM knows nothing, and would not read through it ahead of a branch."""
        found = self._find_state(number) if self._stops else []
        rewritten: list[Instruction] = []
        for instruction in block.instructions:
            rewritten += self._checked(instruction)
        block.instructions = rewritten
        if any(self._checks in i.text for i in rewritten):
            self._insert(block, found)

    @staticmethod
    def _insert(block: Block, instructions: list[Instruction]) -> None:
        """Puts instructions where a block's own begin, or where its entry's variables end."""
        heads = ("phi", "alloca")
        first = next(i for i, own in enumerate(block.instructions) if own.opcode not in heads)
        block.instructions[first:first] = instructions

    def _instrument_callee(self, function: Function) -> None:
        """A function that could not be inlined, being recursive: only addresses tell its memory."""
        provenance = Provenance(function)
        for block in function.blocks:
            rewritten: list[Instruction] = []
            for instruction in block.instructions:
                for access in accesses_of(instruction):
                    if provenance.root(access.pointer).origin in ("array", "global"):
                        continue
                    site = self._site(instruction, access, UNKNOWN)
                    self._note(UNKNOWN, access)
                    check = Instruction(
                        f"%am.checked.{site} = call ptr @am_check_here(ptr {access.pointer}, "
                        f"i64 {access.size}, i32 {access.kind}, i32 {site})"
                    )
                    rewritten.append(check)
                    instruction.text = _with_pointer(
                        instruction.text, access.pointer, str(check.result)
                    )
                if instruction.callee not in MARKS:
                    rewritten.append(instruction)
            block.instructions = rewritten

    def _writes_anywhere(self) -> bool:
        """Whether a write goes through a pointer of which nothing is known."""
        origins = _written_origins(self._function)
        if "unknown" in origins:
            return True
        return any(_written_origins(callee) - {"array", "global"} for callee in self._recursive())

    def _recursive(self) -> list[Function]:
        """The author's functions that could not be inlined."""
        others = (f for f in self._module.functions if f.name not in (THREAD_MAIN, GROUP_MAIN))
        return [f for f in others if self._author_file in self._info.files(f)]

    def _slots(self) -> list[int]:
        calls = self._function.calls("am_threadgroup_storage")
        numbers = (self._provenance.root(str(call.result)).number for call in calls)
        return sorted(set(numbers))

    def _global_sizes(self) -> dict[str, int]:
        matches = (_GLOBAL.match(p) for p in self._module.parts if isinstance(p, str))
        return {match.group(1): self._layout.size(match.group(2)) for match in matches if match}

    def _find_arrays(self) -> None:
        """Arrays of a thread that are indexed; each gets a shadow that says which bytes are
        written."""
        for instruction in self._function.instructions():
            for access in accesses_of(instruction):
                root = self._provenance.root(access.pointer)
                if root.origin == "array" and root.name not in self._arrays:
                    size = self._allocated(root.name)
                    self._arrays[root.name] = (size, f"%am.written.{len(self._arrays)}")

    def _allocated(self, name: str) -> int:
        definition = next(i for i in self._function.instructions() if i.result == name)
        match = _ALLOCATED.search(definition.text)
        assert match is not None, definition.text
        return self._layout.size(match.group(1))

    def _checked(self, instruction: Instruction) -> list[Instruction]:
        checks: list[Instruction] = []
        for access in accesses_of(instruction):
            root = self._provenance.root(access.pointer)
            if root == MACHINE:
                continue
            check = self._check(instruction, access, root)
            checks.append(check)
            instruction.text = _with_pointer(instruction.text, access.pointer, str(check.result))
        if instruction.callee in MARKS:
            return self._mark(instruction)
        checks += self._picked(instruction)
        if instruction.callee in self._callees:
            checks += _instructions(
                f"call void @am_check_enter(ptr {self._checks}, i32 {self._index})"
            )
        started = _LIFETIME.search(instruction.text)
        if started and started.group(1) in self._arrays:
            return [instruction, self._forget(started.group(1))]
        return [*checks, instruction]

    def _site(self, instruction: Instruction, access: Access, root: Root, what: str = "") -> int:
        number = len(self.result.sites)
        use = self._use(instruction)
        if use == Use.PICKED:
            self._doubtful[str(instruction.result)] = number
        spots = tuple(self._info.spots(instruction.text))
        self.result.sites.append(
            AccessSite(spots, access.kind, access.element, access.align, use, root, what)
        )
        return number

    def _use(self, instruction: Instruction) -> int:
        """What becomes of a value that is read."""
        if instruction.opcode != "load":
            return Use.USED
        users = self._uses.get(str(instruction.result), [])
        if not users:
            return Use.UNUSED
        result = re.escape(str(instruction.result))
        operand = re.compile(rf"select .*i1 (?!{result},)\S+, .*{result}(?=[, ]|$)")
        return Use.PICKED if all(operand.search(user.text) for user in users) else Use.USED

    def _check(self, instruction: Instruction, access: Access, root: Root) -> Instruction:
        site = self._site(instruction, access, root)
        result = f"%am.checked.{site}"
        tail = f"i32 {site}, i32 {self._index})"
        self._note(root, access)
        where = f"ptr {access.pointer}, i64 {access.size}"
        if root.origin == "array":
            size, written = self._arrays[root.name]
            verb = "store" if access.kind & shadow.Access.WRITE else "load"
            return Instruction(
                f"{result} = call ptr @am_check_array_{verb}(ptr {self._checks}, ptr {root.name}, "
                f"i64 {size}, ptr {written}, {where}, {tail}"
            )
        if root.origin == "global":
            return Instruction(
                f"{result} = call ptr @am_check_table(ptr {self._checks}, ptr {root.name}, "
                f"i64 {self._globals.get(root.name, 0)}, {where}, i32 {access.kind}, {tail}"
            )
        region = self._region(root)
        if region == UNKNOWN_REGION or access.kind & shadow.Access.ATOMIC:
            return Instruction(
                f"{result} = call ptr @am_check_slowly(ptr {self._checks}, i32 {region}, {where}, "
                f"i32 {access.kind}, {tail}"
            )
        verb = "store" if access.kind == shadow.Access.WRITE else "load"
        if root.origin in ("static", "dynamic"):
            verb = f"shared_{verb}"
        elif verb == "load" and root.number in self._constant:
            verb = "constant_load"
        return Instruction(
            f"{result} = call ptr @am_check_{verb}(ptr {self._checks}, i32 {region}, {where}, "
            f"i64 {access.align - 1}, {tail}"
        )

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
        if access.kind & shadow.Access.WRITE:
            self.result.written_to.add(root)

    def _mark(self, instruction: Instruction) -> list[Instruction]:
        """The check that a mark stands for; nothing where the mark's operand became a constant."""
        match = _MARKED.search(instruction.text)
        assert match is not None, instruction.text
        operands = [tuple(part.rsplit(" ", 1)) for part in match.group(1).split(", ")]
        kinds = [kind.removesuffix(" noundef") for kind, _ in operands]
        values = [value for _, value in operands]
        if instruction.callee == NUMBER:
            return self._number(instruction, kinds[0], values)
        division = instruction.callee == DIVISOR
        what = "division by zero" if division else "shift past the width"
        site = self._site(instruction, _NO_ACCESS, MACHINE, what)
        condition, limit = ("eq", 0) if division else ("uge", int(kinds[0][1:]))
        return _instructions(
            f"%am.wrong.{site} = icmp {condition} {kinds[0]} {values[0]}, {limit}",
            f"call void @am_check_divisor(ptr {self._checks}, i1 %am.wrong.{site}, "
            f"i32 {site}, i32 {self._index})",
        )

    def _number(self, instruction: Instruction, kind: str, values: list[str]) -> list[Instruction]:
        """A NaN of operands that are none, or an infinity of finite ones, is born here."""
        site = self._site(instruction, _NO_ACCESS, MACHINE, "NaN or infinity")
        lines: list[str] = []

        def holds(name: str, value: str, classes: int) -> str:
            test = f"@llvm.is.fpclass.{_SUFFIXES[kind]}({kind} {value}, i32 {classes})"
            lines.append(f"%am.{name}.{site} = call i1 {test}")
            return f"%am.{name}.{site}"

        nan = holds("nan", values[0], _NAN)
        infinite = holds("infinite", values[0], _INFINITE)
        for number, operand in enumerate(values[1:]):
            was_number = holds(f"number{number}", operand, ~_NAN & 1023)
            was_finite = holds(f"finite{number}", operand, _FINITE)
            lines.append(f"%am.born{number}.{site} = and i1 {nan}, {was_number}")
            lines.append(f"%am.grown{number}.{site} = and i1 {infinite}, {was_finite}")
            nan, infinite = f"%am.born{number}.{site}", f"%am.grown{number}.{site}"
        lines.append(f"%am.either.{site} = or i1 {nan}, {infinite}")
        lines.append(
            f"call void @am_check_number(ptr {self._checks}, i1 %am.either.{site}, "
            f"i32 {site}, i32 {self._index})"
        )
        self._module.declare(f"declare i1 @llvm.is.fpclass.{_SUFFIXES[kind]}({kind}, i32)")
        return _instructions(*lines)

    def _picked(self, instruction: Instruction) -> list[Instruction]:
        """A value that may be uninitialised counts when a selection takes it."""
        match = _PICKED.search(instruction.text)
        if match is None:
            return []
        condition, _, taken, other = match.groups()
        checks: list[Instruction] = []
        for value, wanted in ((taken, "true"), (other, "false")):
            site = self._doubtful.get(value.strip())
            if site is not None:
                name = f"%am.taken.{site}.{len(self.result.sites)}.{wanted}"
                name += f".{str(instruction.result).strip('%')}"
                checks += _instructions(
                    f"{name} = icmp eq i1 {condition}, {wanted}",
                    f"call void @am_check_taken(ptr {self._checks}, i1 {name}, i32 {site}, "
                    f"i32 {self._index})",
                )
        return checks

    def _forget(self, array: str) -> Instruction:
        size, written = self._arrays[array]
        return Instruction(
            f"call void @llvm.memset.p0.i64(ptr {written}, i8 0, i64 {size}, i1 false)"
        )

    def _begin(self) -> None:
        """Arrays of the thread start unwritten."""
        entry = self._function.blocks[0].instructions
        first = next(i for i, instruction in enumerate(entry) if instruction.opcode != "alloca")
        lines = [f"{w} = alloca [{n} x i8], align 8" for n, w in self._arrays.values()]
        entry[first:first] = [
            *(Instruction(line) for line in lines),
            *(self._forget(array) for array in self._arrays),
        ]

    def _find_state(self, number: int) -> list[Instruction]:
        """Reads where the launch's state is, and this thread's index.

        The thread's structure never changes while a coroutine runs; so marked, the reads leave its
        loops. Elsewhere it is a local variable that serves one thread after the other.
        """
        self._checks, self._index = f"%am.checks.{number}", f"%am.index.{number}"
        fixed = invariant(self._module)
        mark = fixed if self._stops else ""
        there = f", !dereferenceable {self._module.metadata(1, f'i64 {self._state_bytes}')}"
        this = parameters_of(self._function)[1]
        return _instructions(
            f"%am.index.place.{number} = getelementptr i8, ptr {this}, i64 {INDEX_OFFSET}",
            f"{self._index} = load i32, ptr %am.index.place.{number}, align 4{mark}",
            f"%am.owner.place.{number} = getelementptr i8, ptr {this}, i64 {GROUP_OFFSET}",
            f"%am.owner.{number} = load ptr, ptr %am.owner.place.{number}, align 8{mark}",
            f"%am.checks.place.{number} = getelementptr i8, ptr %am.owner.{number}, "
            f"i64 {LISTENER_DATA_OFFSET}",
            f"{self._checks} = load ptr, ptr %am.checks.place.{number}, align 8{fixed}{there}",
        )


def _with_pointer(text: str, old: str, new: str) -> str:
    """The instruction with its pointer operand replaced, once."""
    pattern = re.compile(rf"(ptr [^%@]*?){re.escape(old)}(?=[,) ]|$)")
    return pattern.sub(lambda match: match.group(1) + new, text, count=1)


def _uses(function: Function) -> dict[str, list[Instruction]]:
    """Which instructions use each value."""
    users: dict[str, list[Instruction]] = {}
    for instruction in function.instructions():
        text = instruction.text
        body = text.split(" = ", 1)[1] if instruction.result else text
        for value in set(re.findall(r'%(?:[-\w.$]+|"[^"]*")', body)):
            users.setdefault(value, []).append(instruction)
    return users


def _written_origins(function: Function) -> set[str]:
    """Where the pointers come from that a function writes through."""
    provenance = Provenance(function)
    accesses = (a for i in function.instructions() for a in accesses_of(i))
    return {provenance.root(a.pointer).origin for a in accesses if a.kind & shadow.Access.WRITE}


def _instructions(*lines: str) -> list[Instruction]:
    return [Instruction(line) for line in lines]
