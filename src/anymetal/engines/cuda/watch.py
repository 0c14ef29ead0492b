"""Loops that may never end look at the clock: no process waits for ever for a GPU.

Nothing stops a kernel from outside. A loop that counts to a bound ends by itself and costs
nothing here. Any other one counts its rounds, and looks at the clock at every 256th: beyond the
limit the kernel fails like an assertion of CUDA's, with its name on stderr, and torch raises at the
next synchronisation. Threads that wait at a barrier for those in the loop are ended with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from anymetal.engines.cuda.block import SHAPE_BYTES
from anymetal.ir import Function, Instruction, Module
from anymetal.ir.flow import Graph, Loop, graph_of, loop_aware_order

TIME_LIMIT = "am_time_limit"
DEFAULT_SECONDS = 60
_SETTLED = {True: "false", False: "true"}  # what a select gives where the loop is left
_HALVING = ("lshr", "ashr", "udiv", "sdiv", "shl")
_RESIZED = ("select", "zext", "sext", "trunc", "freeze")
_OF_SHAPES = ("add", "sub", "mul", "shl", "lshr", "udiv", *_RESIZED)

WATCH = "am_watch"
WATCH_APART = "am_watch_apart"
_DEFINITION = """define internal void @NAME(ptr %count, i64 %since) alwaysinline {
  %before = load i32, ptr %count, align 4
  %round = add i32 %before, 1
  store i32 %round, ptr %count, align 4
  %low = and i32 %round, 255
  %due = icmp eq i32 %low, 0
  br i1 %due, label %look, label %on
look:
  %now = call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()
  %spent = sub i64 %now, %since
  %limit = load i64, ptr addrspace(1) @am_time_limit, align 8
  %late = icmp ugt i64 %spent, %limit
  br i1 %late, label %stop, label %on
stop:
  call void @__assertfail(ptr addrspacecast (ptr addrspace(1) @am_watch_text to ptr), """ + (
    "ptr addrspacecast (ptr addrspace(1) @am_watch_file to ptr), i32 0, "
    "ptr addrspacecast (ptr addrspace(1) @am_watch_kernel to ptr), i64 1)ATTRIBUTES\n"
    "  AFTER\non:\n  ret void\n}"
)
# An assertion does not come back. Said so, it is a second end of the loop for the assembler: lanes
# that leave in different rounds then have no place where all their ways meet, and go on one by one.
# To come back takes registers, so that this is for lanes that nothing else brings together; it must
# not keep LLVM from holding memory in registers.
_ENDS = {"ATTRIBUTES": "", "AFTER": "unreachable"}
_COMES_BACK = {
    "ATTRIBUTES": " cold nounwind willreturn memory(argmem: read, inaccessiblemem: readwrite)",
    "AFTER": "br label %on",
}


def watch_loops(module: Module, function: Function, kernel: str) -> None:
    """Puts the clock into the loops of a kernel that may not end."""
    graph = graph_of(function)
    _, loops = loop_aware_order(graph, function.blocks[0].label)
    counts = _Counts(function)
    watched = [loop for loop in loops if not counts.ends(loop, graph)]
    if not watched:
        return
    count, since = function.fresh("am.rounds"), function.fresh("am.since")
    for label in {label for loop in watched for label in _latches(loop, graph)}:
        block = function.block(label)
        call = Instruction(f"call void @{WATCH}(ptr {count}, i64 {since})")
        block.insert_before(block.terminator, [call])
    clock = "call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()"
    function.at_entry(
        (Instruction(f"store i32 0, ptr {count}, align 4"), Instruction(f"{since} = {clock}"))
    )
    function.entry.instructions.insert(0, Instruction(f"{count} = alloca i32, align 4"))
    declare_clock(module, kernel)
    module.parts += [
        text_constant("am_watch_text", f"kernel '{kernel}' takes longer than ANYMETAL_TIME_LIMIT"),
        _definition(WATCH, _ENDS),
        _definition(WATCH_APART, _COMES_BACK),
    ]


def _definition(name: str, parts: dict[str, str]) -> str:
    text = _DEFINITION.replace("NAME", name)
    for part, meant in parts.items():
        text = text.replace(part, meant)
    return text


def declare_clock(module: Module, kernel: str) -> None:
    """What code needs that looks at the clock and may stop the kernel, unless it is there."""
    if any(line.startswith(f"@{TIME_LIMIT} ") for line in module.lines):
        return
    nanoseconds = DEFAULT_SECONDS * 10**9
    module.parts += [
        f"@{TIME_LIMIT} = addrspace(1) externally_initialized global i64 {nanoseconds}, align 8",
        text_constant("am_watch_file", "anymetal"),
        text_constant("am_watch_kernel", kernel),
        "declare i64 @llvm.nvvm.read.ptx.sreg.globaltimer()",
        "declare void @__assertfail(ptr, ptr, i32, ptr, i64)",
    ]


def text_constant(name: str, text: str) -> str:
    size = len(text) + 1
    return f'@{name} = private addrspace(1) constant [{size} x i8] c"{text}\\00", align 1'


def _latches(loop: Loop, graph: Graph) -> list[str]:
    return [label for label in loop.blocks if loop.header in graph[label]]


def _is_multiple_of(mask: int | None) -> bool:
    """Whether it leaves a multiple of a power of two: the threads of whole simdgroups, say."""
    return mask is not None and mask < 0 and -mask & (-mask - 1) == 0


class _Counts:
    """Which loops of a function count to a bound."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._definitions = function.definitions()
        self._places = {
            i.result: block.label for block in function.blocks for i in block.instructions
        }
        self._parameter = function.parameters[0].name

    def ends(self, loop: Loop, graph: Graph) -> bool:
        """Whether a counter is compared with something fixed in every round; or the way through
        the loop depends on numbers of lanes and constants alone, as in our own headers."""
        latches = _latches(loop, graph)
        always = {loop.header, *(latches if len(latches) == 1 else ())}
        if any(self._leaves_by_count(label, loop) for label in always):
            return True
        has_exit = any(not set(graph[label]) <= loop.blocks for label in loop.blocks)
        ends = (self._function.block(label).terminator for label in loop.blocks)
        decided = [end.operands[0].text for end in ends if len(set(end.labels)) > 1]
        return has_exit and self._are_without_memory(decided)

    def _are_without_memory(self, values: list[str]) -> bool:
        """Whether values are computed from constants, lanes and the launch's shape."""
        seen, waiting = set(values), list(values)
        while waiting:
            definition = self._definitions.get(waiting.pop())
            if definition is None:
                continue
            if definition.opcode == "load":
                if not self._in_shape(definition.pointer.text):
                    return False
                continue
            if definition.opcode in ("atomicrmw", "cmpxchg"):
                return False
            if definition.opcode == "call" and not (definition.callee or "").startswith("llvm."):
                return False
            waiting += [name for name in definition.names if name not in seen]
            seen.update(definition.names)
        return True

    def _leaves_by_count(self, label: str, loop: Loop) -> bool:
        end = self._function.block(label).terminator
        if end.opcode != "br" or len(end.labels) != 2 or set(end.labels) <= loop.blocks:
            return False
        stays = end.labels[0] in loop.blocks  # where the condition holds
        return any(
            self._is_count(one, loop) for one in self._comparisons(end.operands[0].text, stays)
        )

    def _comparisons(self, condition: str, stays: bool) -> Iterator[Instruction]:
        """Each of which ends a loop alone: all must hold to stay, or one to leave."""
        definition = self._definitions.get(condition)
        if definition is None:
            return
        texts = [operand.text for operand in definition.operands]
        if definition.opcode == "icmp":
            yield definition
        elif definition.opcode == ("and" if stays else "or"):
            yield from self._comparisons(texts[0], stays)
            yield from self._comparisons(texts[1], stays)
        elif definition.opcode == "select" and texts[2 if stays else 1] == _SETTLED[stays]:
            yield from self._comparisons(texts[0], stays)
            yield from self._comparisons(texts[1 if stays else 2], stays)

    def _is_count(self, condition: Instruction, loop: Loop) -> bool:
        equality = condition.text.split(" icmp ")[1].split()[0] in ("eq", "ne")
        left, right = (operand.text for operand in condition.operands)
        return any(
            self._is_fixed(bound, loop) and self._advances(counter, loop, by_one=equality)
            for counter, bound in ((left, right), (right, left))
        )

    def _is_fixed(self, value: str, loop: Loop) -> bool:
        return self._places.get(value) not in loop.blocks

    def _advances(self, value: str, loop: Loop, *, by_one: bool) -> bool:
        """Whether a value is a counter of the loop, before or after its step."""
        definition = self._definitions.get(value)
        if definition is None or self._places.get(value) not in loop.blocks:
            return False
        if definition.opcode in ("zext", "sext", "trunc", "freeze"):
            return self._advances(definition.operands[0].text, loop, by_one=by_one)
        if definition.opcode != "phi":
            phi = self._definitions.get(definition.operands[0].text)
            return (
                phi is not None
                and phi.opcode == "phi"
                and self._is_step(definition, phi, loop, by_one=by_one)
            )
        steps = [one for one, label in definition.incoming() if label in loop.blocks]
        found = (self._definitions.get(step.text) for step in steps)
        return bool(steps) and all(
            step is not None and self._is_step(step, definition, loop, by_one=by_one)
            for step in found
        )

    def _is_step(self, step: Instruction, phi: Instruction, loop: Loop, *, by_one: bool) -> bool:
        if self._places.get(str(phi.result)) != loop.header or len(step.operands) != 2:
            return False
        first, by = step.operands
        if first.text != phi.result:
            return False
        if step.opcode in _HALVING:
            return bool(by.integer)
        if step.opcode not in ("add", "sub"):
            return False
        if by.integer is not None:
            return abs(by.integer) == 1 if by_one else by.integer != 0
        fixed = self._is_fixed(by.text, loop)
        return not by_one and fixed and self._is_shape(by.text, set())

    def _is_shape(self, value: str, seen: set[str]) -> bool:
        """Whether a value is made of the launch's sizes alone, of which none is zero."""
        definition = self._definitions.get(value)
        if definition is None or value in seen:
            return definition is not None
        seen.add(value)
        if definition.opcode == "call":
            callee = definition.callee or ""
            if callee.startswith("llvm.nvvm.read.ptx.sreg."):
                return True
            return callee.startswith(("llvm.umin.", "llvm.umax.")) and self._all(definition, seen)
        if definition.opcode == "load":
            return self._in_shape(definition.pointer.text)
        rounded = definition.opcode == "and" and _is_multiple_of(definition.operands[1].integer)
        return (rounded or definition.opcode in _OF_SHAPES) and self._all(definition, seen)

    def _all(self, definition: Instruction, seen: set[str]) -> bool:
        values = definition.operands[1:] if definition.opcode == "select" else definition.operands
        return all(
            operand.integer is not None or self._is_shape(operand.text, seen) for operand in values
        )

    def _in_shape(self, pointer: str) -> bool:
        if pointer == self._parameter:
            return True
        place = self._definitions.get(pointer)
        if place is None or place.opcode != "getelementptr":
            return False
        offset = place.operands[-1].integer
        return place.pointer.text == self._parameter and 0 <= (offset or 0) < SHAPE_BYTES
