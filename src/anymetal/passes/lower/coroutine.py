"""A kernel with barriers or collectives becomes an LLVM coroutine, one instance a thread.

Each `am_suspend` becomes `llvm.coro.suspend` after the thread has written down where it stands: a
site number in loop-aware order, and what it waits for. The scheduler
(engines/cpu/runtime.cpp) resumes the lanes at the lowest site first.

A lane that skips a collective inside a loop must not run ahead into the next iteration and meet the
others there. Loops with such a collective get one more suspend at the end of each iteration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anymetal.ir import Block, Function, Instruction, Module
from anymetal.ir.flow import Graph, Loop, dominates, graph_of, loop_aware_order
from anymetal.machine.layout import Wait
from anymetal.passes.lower.machine import (
    GROUP_MAIN,
    THREAD_MAIN,
    debug_reference,
    kept_attributes,
    parameters_of,
)
from anymetal.passes.operands import read_instruction, split_metadata

COROUTINE = "am_coroutine"
FRAME_ALIGNMENT = 64
_DECLARATIONS = (
    "declare token @llvm.coro.id(i32, ptr, ptr, ptr)",
    "declare i64 @llvm.coro.size.i64()",
    "declare ptr @llvm.coro.begin(token, ptr)",
    "declare i8 @llvm.coro.suspend(token, i1)",
    "declare void @llvm.coro.end(ptr, i1, token)",
)
_WHAT = re.compile(r"\(i32 [^)]*?(\d+)\)")


@dataclass(frozen=True)
class Site:
    """A place where a thread stops: its number, and the word the kernel passed to am_suspend."""

    number: int
    what: int
    location: str


def has_suspends(module: Module) -> bool:
    """Whether the kernel stops anywhere; if not it runs as a plain loop over its threads."""
    return any(True for _ in module.function(THREAD_MAIN).calls("am_suspend"))


def make_coroutine(module: Module, frame_alignment: int = FRAME_ALIGNMENT) -> list[Site]:
    """Turns the kernel into the coroutine `am_coroutine(buffers, self, frame, size)`."""
    function = module.function(THREAD_MAIN)
    if any(other.name == GROUP_MAIN for other in module.functions):
        module.remove(module.function(GROUP_MAIN))
    _suspend_at_loop_ends(function)
    sites = _replace_suspends(function)
    _replace_exits(function)
    _wrap(module, function, frame_alignment)
    for declaration in _DECLARATIONS:
        module.declare(declaration)
    return sites


def _what(call: Instruction) -> int:
    match = _WHAT.search(call.text)
    assert match is not None, call.text
    return int(match.group(1))


def _suspend_at_loop_ends(function: Function) -> None:
    graph = graph_of(function)
    entry = function.blocks[0].label
    _, loops = loop_aware_order(graph, entry)
    meeting = {
        block.label
        for block in function.blocks
        for call in block.instructions
        if call.callee == "am_suspend" and _what(call) & 15 != Wait.THREADGROUP_BARRIER
    }
    for number, loop in enumerate(loops):
        inside = meeting & loop.blocks
        nested = {b for other in loops if other.blocks < loop.blocks for b in other.blocks}
        latches = _latches(graph, loop)
        # What stands in an inner loop is met as often as each lane goes round that.
        apart = inside & nested or any(
            not _always_met(graph, loop, block, latch) for latch in latches for block in inside
        )
        if apart:
            latch = _one_latch(function, loop, latches)
            _suspend_before_next_round(function, latch, loop.header, f"am.meet{number}")


def _latches(graph: Graph, loop: Loop) -> list[str]:
    return [block for block in graph if block in loop.blocks and loop.header in graph[block]]


def _always_met(graph: Graph, loop: Loop, block: str, latch: str) -> bool:
    inside = {b: [s for s in graph[b] if s in loop.blocks] for b in loop.blocks}
    return dominates(inside, loop.header, block, latch)


def _one_latch(function: Function, loop: Loop, latches: list[str]) -> str:
    """The block all ways back to the header go through: lanes that `continue` meet the others."""
    if len(latches) == 1:
        return latches[0]
    name = f"am.round.{len(function.blocks)}"
    header, joined = function.block(loop.header), []
    for number, phi in enumerate(i for i in header.instructions if i.opcode == "phi"):
        plain, attached = split_metadata(phi.text)
        parsed = read_instruction(plain)
        back: list[str] = []
        others = [f"[ %{name}.{number}, %{name} ]"]
        for operand, label in zip(parsed.operands, parsed.labels, strict=True):
            (back if label in latches else others).append(f"[ {operand.text}, %{label} ]")
        kind = " ".join(filter(None, ("phi", parsed.flags, parsed.kind)))
        joined.append(f"%{name}.{number} = {kind} {', '.join(back)}{attached}")
        phi.text = f"{parsed.result} = {kind} {', '.join(others)}{attached}"
    for latch in latches:
        _redirect(function.block(latch).terminator, loop.header, name)
    place = max(function.blocks.index(function.block(latch)) for latch in latches)
    lines = _instructions(*joined, f"br label %{loop.header}")
    function.blocks.insert(place + 1, Block(name, lines))
    return name


def _redirect(terminator: Instruction, old: str, new: str) -> None:
    written = re.escape(f"label %{old}")
    terminator.text = re.sub(rf"{written}(?![-\w$.])", f"label %{new}", terminator.text)


def _suspend_before_next_round(function: Function, latch: str, header: str, name: str) -> None:
    """On the way back to the header: lanes that leave the loop there do not wait."""
    number = len(function.blocks)
    stop, rest, leave = f"{name}.{number}", f"{name}.go.{number}", f"{name}.leave.{number}"
    block = function.block(latch)
    _redirect(block.terminator, header, stop)
    place = function.blocks.index(block)
    function.blocks[place + 1 : place + 1] = [
        Block(
            stop,
            _instructions(
                f"%{stop}.s = call i8 @am_suspend(i32 {int(Wait.LOOP_END)})",
                f"%{stop}.c = icmp eq i8 %{stop}.s, 0",
                f"br i1 %{stop}.c, label %{rest}, label %{leave}",
            ),
        ),
        Block(rest, _instructions(f"br label %{header}")),
        Block(leave, _instructions("call void @am_leave()", "unreachable")),
    ]
    function.rename_predecessor([header], latch, rest)


def _replace_suspends(function: Function) -> list[Site]:
    self_parameter = parameters_of(function)[1]
    order, _ = loop_aware_order(graph_of(function), function.blocks[0].label)
    blocks = {block.label: block for block in function.blocks}
    sites: list[Site] = []
    for label in order:
        rewritten: list[Instruction] = []
        for instruction in blocks[label].instructions:
            if instruction.callee != "am_suspend":
                rewritten.append(instruction)
                continue
            location = re.search(r", !dbg !\d+", instruction.text)
            site = Site(len(sites) + 1, _what(instruction), location.group(0) if location else "")
            sites.append(site)
            word = site.number << 4 | site.what & 15
            rewritten += [
                Instruction(f"store i32 {word}, ptr {self_parameter}, align 4"),
                Instruction(
                    f"{instruction.result} = call i8 @llvm.coro.suspend(token none, i1 false)"
                ),
            ]
        blocks[label].instructions = rewritten
    return sites


def _replace_exits(function: Function) -> None:
    """A return goes to the final suspend; am_leave, taken when a frame is dropped, to the end."""
    for block in function.blocks:
        if block.terminator.opcode == "ret":
            block.instructions[-1] = Instruction("br label %coro.final")
        leaves = [i for i, call in enumerate(block.instructions) if call.callee == "am_leave"]
        if leaves:
            block.instructions[leaves[0] :] = [Instruction("br label %coro.leave")]


def _wrap(module: Module, function: Function, alignment: int) -> None:
    buffers, self_parameter = parameters_of(function)
    attributes = kept_attributes(module, function)
    body = function.blocks
    allocas = [i for i in body[0].instructions if i.opcode == "alloca"]
    body[0].instructions = [i for i in body[0].instructions if i.opcode != "alloca"]
    function.header = (
        f"define ptr @{COROUTINE}(ptr {buffers}, ptr {self_parameter}, ptr noalias %coro.memory, "
        f"ptr %coro.size.place) presplitcoroutine nounwind {attributes}"
        f"{debug_reference(function)} {{"
    )
    function.blocks = [*_beginning(allocas, body[0].label, alignment), *body, *_end(self_parameter)]


def _beginning(allocas: list[Instruction], first: str, alignment: int) -> list[Block]:
    """Asked with no memory, the coroutine only tells the size of its frame."""
    return [
        Block(
            "coro.entry",
            [
                *allocas,
                *_instructions(
                    f"%coro.id = call token @llvm.coro.id(i32 {alignment}, "
                    "ptr null, ptr null, ptr null)",
                    "%coro.asked = icmp eq ptr %coro.memory, null",
                    "br i1 %coro.asked, label %coro.ask, label %coro.start",
                ),
            ],
        ),
        Block(
            "coro.ask",
            _instructions(
                "%coro.size = call i64 @llvm.coro.size.i64()",
                "store i64 %coro.size, ptr %coro.size.place, align 8",
                "ret ptr null",
            ),
        ),
        Block(
            "coro.start",
            _instructions(
                "%coro.handle = call ptr @llvm.coro.begin(token %coro.id, ptr %coro.memory)",
                f"br label %{first}",
            ),
        ),
    ]


def _end(self_parameter: str) -> list[Block]:
    return [
        Block(
            "coro.final",
            _instructions(
                f"store i32 0, ptr {self_parameter}, align 4",
                "%coro.last = call i8 @llvm.coro.suspend(token none, i1 true)",
                "switch i8 %coro.last, label %coro.leave [ i8 0, label %coro.again ]",
            ),
        ),
        Block("coro.again", _instructions("unreachable")),
        Block(
            "coro.leave",
            _instructions(
                "call void @llvm.coro.end(ptr %coro.handle, i1 false, token none)",
                "ret ptr %coro.handle",
            ),
        ),
    ]


def _instructions(*lines: str) -> list[Instruction]:
    return [Instruction(line) for line in lines]
