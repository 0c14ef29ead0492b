"""Collectives that all lanes of a simdgroup reach together name all of them.

The hardware wants to know who takes part in a shuffle or a vote. Asking it who is here costs ten
instructions each time, and the answer may be less than all where lanes that went apart have not met
again. Where every branch on the way is decided alike in all lanes, the answer is known: all that
have not ended, and to name those that have is no error. Such a collective waits for the rest.
"""

from __future__ import annotations

from anymetal.ir import I32, Block, Builder, Function, Instruction, Operand, i32
from anymetal.ir.flow import Graph, graph_of, immediate_dominators, predecessors

HERE = "llvm.nvvm.activemask"
EVERYONE = i32(-1)
_SPECIAL = "llvm.nvvm.read.ptx.sreg."
_THREAD = f"{_SPECIAL}tid.x"
_OF_GROUP = tuple(f"{_SPECIAL}{what}." for what in ("ctaid", "nctaid", "ntid"))
_SHUFFLE = "llvm.nvvm.shfl.sync."
_SAME_FOR_ALL = (HERE, "llvm.nvvm.vote.", "llvm.nvvm.match.any.", "llvm.nvvm.redux.sync.")
# The operand of each that has the lanes.
_LANES = {_SHUFFLE: 0, "llvm.nvvm.vote.": 0, "llvm.nvvm.bar.warp.sync": 0, "llvm.nvvm.redux.": 1}
_LANE_BITS = 5
_LANES_OF_ALL = 1 << _LANE_BITS
_MANY = 8  # collectives for which a copy of the code is worth its length
_NEVER = "poison"  # a value that nobody uses
_END = ""  # stands behind every block that ends the function


def name_all_lanes(function: Function, *, whole: bool = False) -> None:
    """Rewrites the collectives of blocks that all lanes run together. `whole`: no simdgroup begins
    with fewer than 32 lanes."""
    asked = {i.result for i in function.calls(HERE)}
    if not asked:
        return
    lanes = Lanes(function)
    for block in function.blocks:
        if block.label in lanes.apart:
            continue
        for instruction in block.instructions:
            place = _place_of_lanes(instruction)
            if place is not None and instruction.operands[place].text in asked:
                instruction.set_operand(place, EVERYONE)
    used = function.users()
    for block in function.blocks:
        block.instructions = [
            i for i in block.instructions if i.result not in asked or i.result in used
        ]
    if whole:
        _answer_where_none_is_missing(function, lanes.apart | lanes.missing)
    if lanes.start is not None:
        _copy_for_whole_simdgroups(function, lanes.start, lanes.apart | lanes.fewer)


def _answer_where_none_is_missing(function: Function, elsewhere: set[str]) -> None:
    known: set[str | None] = set()
    for block in function.blocks:
        if block.label not in elsewhere:
            known |= {i.result for i in block.instructions if i.callee == HERE}
            block.instructions = [i for i in block.instructions if i.callee != HERE]
    for instruction in function.instructions():
        for place, operand in enumerate(instruction.operands):
            if operand.text in known:
                instruction.set_operand(place, EVERYONE)


def _copy_for_whole_simdgroups(function: Function, start: str, apart: set[str]) -> None:
    """From `start` on, where lanes begin that end together, a copy for simdgroups of which none is
    missing: its collectives need not ask which lanes can be read."""
    together = [block for block in function.blocks if block.label not in apart]
    if sum(i.callee == HERE for block in together for i in block.instructions) < _MANY:
        return
    first = function.block(start)
    graph = graph_of(function)
    labels = reached(graph, graph[start])
    blocks = [block for block in function.blocks if block.label in labels]
    origins = {label for block in blocks for phi in block.phis for label in phi.labels}
    if start in labels or not origins <= labels | {start}:
        return
    at = next(n for n, i in enumerate(first.instructions) if i.opcode not in ("phi", "alloca"))
    rest = function.split(first, at, function.fresh("am.some")[1:])
    copied = _Copy(function, apart | ({rest.label} if start in apart else set()))
    function.blocks += copied.of([rest, *blocks])
    build = Builder(function.fresh, into=first.instructions)
    here = build.call(I32, HERE, [])
    build.branch(build.icmp("eq", here, EVERYONE), copied.labels[rest.label], rest.label)


class _Copy:
    """Copies of blocks, in which those that are not `apart` are run by all lanes."""

    def __init__(self, function: Function, apart: set[str]) -> None:
        self._fresh = function.fresh
        self._apart = apart
        self.labels: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def of(self, blocks: list[Block]) -> list[Block]:
        for block in blocks:
            self.labels[block.label] = self._fresh("am.all")[1:]
            for i in block.instructions:
                if i.result is not None:
                    known = i.callee == HERE and block.label not in self._apart
                    self._names[i.result] = "-1" if known else self._fresh("am")
        return [Block(self.labels[block.label], self._instructions(block)) for block in blocks]

    def _instructions(self, block: Block) -> list[Instruction]:
        return [
            self._instruction(i)
            for i in block.instructions
            if i.result is None or self._names[i.result] != "-1"
        ]

    def _instruction(self, instruction: Instruction) -> Instruction:
        operands = tuple(
            Operand(operand.type, self._names.get(operand.text, operand.text))
            for operand in instruction.operands
        )
        labels = tuple(self.labels.get(label, label) for label in instruction.labels)
        result = instruction.result
        return instruction.changed(
            {"operands": operands, "labels": labels},
            None if result is None else self._names[result],
        )


def reached(graph: Graph, starts: list[str]) -> set[str]:
    waiting, found = list(starts), set()
    while waiting:
        label = waiting.pop()
        if label not in found:
            found.add(label)
            waiting += graph[label]
    return found


def waits_for_lanes(instruction: Instruction) -> bool:
    """Whether it is done by several lanes together."""
    return _place_of_lanes(instruction) is not None or (instruction.callee or "").startswith(
        _SAME_FOR_ALL
    )


def _place_of_lanes(instruction: Instruction) -> int | None:
    callee = instruction.callee or ""
    return next((place for name, place in _LANES.items() if callee.startswith(name)), None)


class Lanes:
    """Which values may differ between the lanes of a simdgroup (`differing`), and which blocks may
    be run by a part of them (`apart`); where all lanes `start` that are there, the blocks that
    `fewer` may reach, and those where any may be `missing`, since single lanes end before; the
    `graph` without ways that end at once, and where all ways from a block are `meeting` again."""

    def __init__(self, function: Function) -> None:
        self._parameters = {parameter.name for parameter in function.parameters}
        self._definitions = function.definitions()
        self._blocks = {block.label: block for block in function.blocks}
        whole = graph_of(function)
        self.graph = _without_ends(whole, self._blocks)
        self.meeting = _meeting_points(self.graph)
        self._users = function.users()
        self.differing: set[str] = set()
        self.apart: set[str] = set()
        sources = (i for i in function.instructions() if i.result and self._differs_itself(i))
        self._spread([i.result for i in sources if i.result])
        self.start: str | None = None
        self._find_start(whole, function.entry.label)

    def _find_start(self, graph: Graph, entry: str) -> None:
        """The block behind the first branch at which single lanes end, or the first one of all; and
        what comes after other such branches, where lanes may be missing again."""
        ending = [
            label
            for label, targets in graph.items()
            if targets != self.graph[label]
            and not self.differing.isdisjoint(self._blocks[label].terminator.names)
        ]
        after = {label: reached(graph, graph[label]) for label in ending}
        first = [label for label in ending if not any(label in after[other] for other in ending)]
        behind = self.graph[first[0]] if len(first) == 1 else []
        if not ending:
            self.start = entry
        elif len(behind) == 1 and predecessors(graph)[behind[0]] == first:
            self.start = None if behind[0] in self.apart else behind[0]
        self.fewer = set().union(*(after[label] for label in ending if label not in first))
        self.missing = set().union(*after.values())

    def _spread(self, waiting: list[str]) -> None:
        """From values that differ to those that are made of them, or depend on a branch on them."""
        branches: dict[str, list[str]] = {}
        for label, targets in self.graph.items():
            for name in self._blocks[label].terminator.names if len(set(targets)) > 1 else ():
                branches.setdefault(name, []).append(label)
        while waiting:
            name = waiting.pop()
            if name in self.differing:
                continue
            self.differing.add(name)
            for label in branches.get(name, ()):
                waiting += self._part(label)
            users = self._users.get(name, ())
            waiting += [i.result for i in users if i.result and not self._is_same_anyway(i)]

    def _part(self, label: str) -> list[str]:
        """Lanes go different ways behind a block, until all ways meet: returns what then depends on
        the way that a lane took."""
        end = self.meeting.get(label)
        seen: set[str] = set()
        waiting = list(self.graph[label])
        while waiting:
            block = waiting.pop()
            if block != end and block not in seen:
                seen.add(block)
                waiting += self.graph[block]
        self.apart |= seen
        joined = seen | ({end} if end else set())
        found = [phi.result for at in joined for phi in self._blocks[at].phis]
        # What a loop leaves behind is that of another round in each lane.
        if label in seen:
            found += [i.result for at in seen for i in self._blocks[at].instructions if i.result]
        return [name for name in found if name]

    def _differs_itself(self, instruction: Instruction) -> bool:
        if instruction.opcode == "load":
            return not self._is_same_load(instruction)
        if instruction.opcode in ("atomicrmw", "cmpxchg", "alloca"):
            return True
        callee = instruction.callee
        if instruction.opcode != "call" or callee is None:
            return instruction.opcode == "call"
        if callee.startswith((*_OF_GROUP, *_SAME_FOR_ALL)):
            return False
        if callee.startswith(_SHUFFLE):
            return instruction.operands[2].is_name
        return callee.startswith("llvm.nvvm.") or not callee.startswith("llvm.")

    def _is_same_load(self, instruction: Instruction) -> bool:
        """Whether it reads the launch's arguments, or what nobody writes: then lanes that read at
        one place read the same."""
        if instruction.is_atomic or instruction.is_volatile:
            return False
        if "invariant.load" in instruction.metadata:
            return True
        name = instruction.pointer.text
        while name not in self._parameters:
            place = self._definitions.get(name)
            if place is None or place.opcode != "getelementptr":
                return False
            name = place.operands[0].text
        return True

    def _is_same_anyway(self, user: Instruction) -> bool:
        """Whether a result is the same in all lanes even if what it is made of is not: that of some
        collectives, or the number of the simdgroup, which is the upper part of the thread's."""
        if user.opcode in ("lshr", "and"):
            number = user.operands[1].integer
            if number is None:
                return False
            upper = number >= _LANE_BITS if user.opcode == "lshr" else number % _LANES_OF_ALL == 0
            return upper and self._has_thread_above_lanes(user.operands[0].text)
        return (user.callee or "").startswith(_SAME_FOR_ALL)

    def _has_thread_above_lanes(self, name: str) -> bool:
        """Whether a value is the thread's number, or that with another lane in its lower bits."""
        made = self._definitions.get(name)
        if made is None or made.callee == _THREAD:
            return made is not None
        if made.opcode == "and":
            value, mask = made.operands
            is_masked = mask.integer is not None and self._has_thread_above_lanes(value.text)
            return is_masked or self._is_lane(name)
        if made.opcode == "or":
            return all(self._has_thread_above_lanes(each.text) for each in made.operands)
        return self._is_lane(name)

    def _is_lane(self, name: str, asked: frozenset[str] = frozenset()) -> bool:
        """Whether nothing of a value stands above the bits of a lane; `asked` go round a loop. What
        comes from a way that is never taken may be anything."""
        made = self._definitions.get(name)
        if made is None or name in asked:
            return made is not None or name == _NEVER
        if made.opcode == "and":
            number = made.operands[1].integer
            return number is not None and 0 <= number < _LANES_OF_ALL
        return made.opcode in ("or", "phi") and all(
            self._is_lane(operand.text, asked | {name}) for operand in made.operands
        )


def _without_ends(graph: Graph, blocks: dict[str, Block]) -> Graph:
    """Without the ways of a branch that end at once: lanes that take them are no longer there."""
    ends = {
        label for label, targets in graph.items() if not targets and _does_nothing(blocks[label])
    }
    return {
        label: [target for target in targets if target not in ends] or targets
        for label, targets in graph.items()
    }


def _does_nothing(block: Block) -> bool:
    return not any(i.opcode == "call" for i in block.instructions)


def _meeting_points(graph: Graph) -> dict[str, str]:
    """The block behind each where all ways from it meet again; none where that is the end."""
    turned = predecessors({**graph, _END: []})
    turned[_END] = [label for label, targets in graph.items() if not targets]
    found = immediate_dominators(turned, _END)
    return {label: block for label, block in found.items() if block and label}
