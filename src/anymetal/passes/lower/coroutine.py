"""A kernel with barriers or collectives becomes an LLVM coroutine, one instance a thread.

Each `am_suspend` becomes `llvm.coro.suspend` after the thread has written down where it stands: a
site number in loop-aware order, and what it waits for. The scheduler (engines/cpu/scheduler.h)
resumes the lanes at the lowest site first.

A thread also stands still before its first instruction. LLVM makes one function of what comes
before the first suspend and another of all that follows one; a barrier in a loop would have the
kernel compiled twice.

Lanes that diverge around a collective inside a loop must reconverge before the next iteration: else
a lane that skipped it would take part in the next iteration's collective with the others. Loops in
which a collective does not dominate the latch get one more suspend there.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.ir import (
    I1,
    I8,
    I32,
    I64,
    NULL,
    PTR,
    TOKEN,
    VOID,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Operand,
    Parameter,
    Signature,
    boolean,
    constant,
    i32,
)
from anymetal.ir.flow import Graph, Loop, dominates, graph_of, loop_aware_order
from anymetal.machine.layout import WAIT_BITS, Wait, waits_for
from anymetal.passes.lower.machine import (
    GROUP_MAIN,
    THREAD_MAIN,
    kept_attributes,
    plain_parameters,
    self_of,
)
from anymetal.passes.rewrite import rewrite

COROUTINE = "am_coroutine"
FRAME_ALIGNMENT = 64
_NO_TOKEN = Operand(TOKEN, "none")
_HANDLE = Operand(PTR, "%coro.handle")
_FRAME, _SIZE = Operand(PTR, "%coro.memory"), Operand(PTR, "%coro.size.place")


@dataclass(frozen=True)
class Site:
    """A place where a thread stops: its number, the word the kernel passed to am_suspend, and the
    metadata node of its source location."""

    number: int
    what: int
    location: str | None


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
    module.declare("llvm.coro.id", TOKEN, [I32, PTR, PTR, PTR])
    module.declare("llvm.coro.size.i64", I64)
    module.declare("llvm.coro.begin", PTR, [TOKEN, PTR])
    module.declare("llvm.coro.suspend", I8, [TOKEN, I1])
    module.declare("llvm.coro.end", VOID, [PTR, I1, TOKEN])
    return sites


def _what(call: Instruction) -> int:
    what = call.operands[0].integer
    assert what is not None, call
    return what


def _suspend_at_loop_ends(function: Function) -> None:
    graph = graph_of(function)
    _, loops = loop_aware_order(graph, function.entry.label)
    with_collectives = {
        block.label
        for block in function.blocks
        for call in block.instructions
        if call.callee == "am_suspend" and waits_for(_what(call)) != Wait.THREADGROUP_BARRIER
    }
    for number, loop in enumerate(loops):
        inside = with_collectives & loop.blocks
        nested = {b for other in loops if other.blocks < loop.blocks for b in other.blocks}
        latches = _latches(graph, loop)
        # Lanes may execute a collective of a nested loop a different number of times.
        may_diverge = inside & nested or any(
            not _dominates(graph, loop, block, latch) for latch in latches for block in inside
        )
        if may_diverge:
            latch = _one_latch(function, loop, latches)
            _suspend_on_back_edge(function, latch, loop.header, f"am.meet{number}")


def _latches(graph: Graph, loop: Loop) -> list[str]:
    return [block for block in graph if block in loop.blocks and loop.header in graph[block]]


def _dominates(graph: Graph, loop: Loop, block: str, latch: str) -> bool:
    """Whether each iteration that reaches the latch passes the block."""
    inside = {b: [s for s in graph[b] if s in loop.blocks] for b in loop.blocks}
    return dominates(inside, loop.header, block, latch)


def _one_latch(function: Function, loop: Loop, latches: list[str]) -> str:
    """The only latch of the loop, made where there are several: a lane that `continue`s reconverges
    with the others there."""
    if len(latches) == 1:
        return latches[0]
    name = f"am.round.{len(function.blocks)}"
    build = Builder(function.fresh)
    for number, phi in enumerate(function.block(loop.header).phis):
        back = [pair for pair in phi.incoming() if pair[1] in latches]
        others = [pair for pair in phi.incoming() if pair[1] not in latches]
        joined = build.phi(phi.type, back, phi.flags, name=f"%{name}.{number}")
        phi.operands = (joined, *(value for value, _ in others))
        phi.labels = (name, *(label for _, label in others))
    for latch in latches:
        function.block(latch).terminator.redirect(loop.header, name)
    build.jump(loop.header)
    place = max(function.blocks.index(function.block(latch)) for latch in latches)
    function.blocks.insert(place + 1, Block(name, build.made))
    return name


def _suspend_on_back_edge(function: Function, latch: str, header: str, name: str) -> None:
    """Suspends on the back edge: lanes that leave the loop at the latch do not wait."""
    number = len(function.blocks)
    stop, rest, leave = f"{name}.{number}", f"{name}.go.{number}", f"{name}.leave.{number}"
    block = function.block(latch)
    block.terminator.redirect(header, stop)
    waiting, going, leaving = (Builder(function.fresh) for _ in range(3))
    suspended = waiting.call(I8, "am_suspend", [i32(Wait.LOOP_END)])
    waiting.branch(waiting.icmp("eq", suspended, constant(I8, 0)), rest, leave)
    going.jump(header)
    leaving.call(VOID, "am_leave")
    leaving.unreachable()
    place = function.blocks.index(block)
    function.blocks[place + 1 : place + 1] = [
        Block(stop, waiting.made),
        Block(rest, going.made),
        Block(leave, leaving.made),
    ]
    function.rename_predecessor([header], latch, rest)


def _replace_suspends(function: Function) -> list[Site]:
    """Sites are numbered in the order in which the scheduler resumes the threads at them."""
    order, _ = loop_aware_order(graph_of(function), function.entry.label)
    blocks = {block.label: block for block in function.blocks}
    calls = [
        call
        for label in order
        for call in blocks[label].instructions
        if call.callee == "am_suspend"
    ]
    sites = [
        Site(number, _what(call), call.metadata.get("dbg")) for number, call in enumerate(calls, 1)
    ]
    by_result = {call.result: site for call, site in zip(calls, sites, strict=True)}

    def emit(build: Builder, call: Instruction) -> bool:
        if call.callee != "am_suspend" or call.result not in by_result:
            return False
        site = by_result[call.result]
        word = i32(site.number << WAIT_BITS | waits_for(site.what))
        build.store(word, self_of(function), align=4)
        _suspend(build, final=False, name=str(call.result))
        return True

    rewrite(function, emit)
    return sites


def _suspend(build: Builder, *, final: bool, name: str) -> Operand:
    return build.call(I8, "llvm.coro.suspend", [_NO_TOKEN, boolean(final)], name=name)


def _replace_exits(function: Function) -> None:
    """A return goes to the final suspend; am_leave, taken when a frame is dropped, to the end."""
    for block in function.blocks:
        if block.terminator.opcode == "ret":
            block.instructions[-1:] = _jump("coro.final")
        leaves = [i for i, call in enumerate(block.instructions) if call.callee == "am_leave"]
        if leaves:
            block.instructions[leaves[0] :] = _jump("coro.leave")


def _jump(label: str) -> list[Instruction]:
    build = Builder(str)
    build.jump(label)
    return build.made


def _wrap(module: Module, function: Function, alignment: int) -> None:
    body = function.blocks
    variables = [i for i in body[0].instructions if i.opcode == "alloca"]
    body[0].instructions = [i for i in body[0].instructions if i.opcode != "alloca"]
    this = self_of(function)
    frame = Parameter(PTR, _FRAME.text, ("noalias",))
    function.signature = Signature(
        COROUTINE,
        PTR,
        [*plain_parameters(function), frame, Parameter(PTR, _SIZE.text)],
        attributes=("presplitcoroutine", "nounwind", *kept_attributes(module, function)),
        metadata=function.signature.metadata,
    )
    first = body[0].label
    function.blocks = [*_beginning(variables, first, alignment), *body, *_end(this)]


def _beginning(variables: list[Instruction], first: str, alignment: int) -> list[Block]:
    """Asked with no memory, the coroutine only tells the size of its frame."""
    entry, ask, start = Builder(str, into=variables), Builder(str), Builder(str)
    token = entry.call(TOKEN, "llvm.coro.id", [i32(alignment), NULL, NULL, NULL], name="%coro.id")
    asked = entry.icmp("eq", _FRAME, NULL, name="%coro.asked")
    entry.branch(asked, "coro.ask", "coro.start")
    ask.store(ask.call(I64, "llvm.coro.size.i64", name="%coro.size"), _SIZE, align=8)
    ask.ret(NULL)
    start.call(PTR, "llvm.coro.begin", [token, _FRAME], name=_HANDLE.text)
    placed = _suspend(start, final=False, name="%coro.placed")
    start.switch(placed, "coro.leave", {0: first})
    return [
        Block("coro.entry", entry.made),
        Block("coro.ask", ask.made),
        Block("coro.start", start.made),
    ]


def _end(this: Operand) -> list[Block]:
    final, again, leave = Builder(str), Builder(str), Builder(str)
    final.store(i32(Wait.FINISHED), this, align=4)
    last = _suspend(final, final=True, name="%coro.last")
    final.switch(last, "coro.leave", {0: "coro.again"})
    again.unreachable()
    leave.call(VOID, "llvm.coro.end", [_HANDLE, boolean(False), _NO_TOKEN])
    leave.ret(_HANDLE)
    return [
        Block("coro.final", final.made),
        Block("coro.again", again.made),
        Block("coro.leave", leave.made),
    ]
