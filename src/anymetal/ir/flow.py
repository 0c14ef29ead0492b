"""Control flow of one function: successors, dominators, loops, and a block order that keeps loops
contiguous.

When lanes of a simdgroup are at different blocks, those at the lowest one run first, so that they
catch up with the others. The order must put every block of a loop before every block behind it:
with plain reverse postorder, a lane that left a loop can come before a lane still in it, and the
two never reconverge.

By hand, not by networkx: importing that takes 0.2 s of a compilation of about 1 s, and the order of
the blocks of a vectorised kernel 1.0 ms instead of 0.15 ms (61 blocks on average, AMD EPYC).
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.ir.module import Function

Graph = dict[str, list[str]]


@dataclass(frozen=True)
class Loop:
    """A strongly connected part of the graph: where it is entered and all its blocks."""

    header: str
    blocks: frozenset[str]


def graph_of(function: Function) -> Graph:
    """Successors by label, for the blocks that can be reached."""
    successors = {block.label: block.successors for block in function.blocks}
    reached: Graph = {}
    pending = [function.blocks[0].label]
    while pending:
        label = pending.pop()
        if label not in reached:
            reached[label] = successors[label]
            pending.extend(successors[label])
    return reached


def loop_aware_order(graph: Graph, entry: str) -> tuple[list[str], list[Loop]]:
    """Blocks in an order where a loop's blocks stand together, and all loops, outer ones first."""
    order: list[str] = []
    loops: list[Loop] = []
    _order_part(graph, entry, order, loops)
    return order, loops


def _order_part(graph: Graph, entry: str, order: list[str], loops: list[Loop]) -> None:
    for component in reversed(_components(graph, entry)):
        first = component[0]
        if len(component) == 1 and first not in graph[first]:
            order.append(first)
            continue
        members = frozenset(component)
        header = _entered_at(graph, members, entry)
        loops.append(Loop(header, members))
        inside = {b: [s for s in graph[b] if s in members and s != header] for b in component}
        _order_part(inside, header, order, loops)


def _entered_at(graph: Graph, members: frozenset[str], entry: str) -> str:
    """The block through which control comes in; the first found, where a loop has several."""
    if entry in members:
        return entry
    for block, successors in graph.items():
        if block not in members:
            for successor in successors:
                if successor in members:
                    return successor
    return min(members)


def _components(graph: Graph, entry: str) -> list[list[str]]:
    """Tarjan's strongly connected components, last in topological order first, without
    recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    components: list[list[str]] = []
    work: list[tuple[str, int]] = [(entry, 0)]
    while work:
        block, position = work.pop()
        if position == 0:
            index[block] = low[block] = len(index)
            stack.append(block)
            on_stack.add(block)
        descended = False
        for offset, successor in enumerate(graph[block][position:], position):
            if successor not in index:
                work.append((block, offset + 1))
                work.append((successor, 0))
                descended = True
                break
            if successor in on_stack:
                low[block] = min(low[block], index[successor])
        if descended:
            continue
        if low[block] == index[block]:
            cut = stack.index(block)
            components.append(stack[cut:])
            on_stack.difference_update(stack[cut:])
            del stack[cut:]
        if work:
            parent = work[-1][0]
            low[parent] = min(low[parent], low[block])
    return components


def dominates(graph: Graph, entry: str, block: str, target: str) -> bool:
    """Whether every path from `entry` to `target` passes `block`."""
    if block == target:
        return True
    seen = {block}
    pending = [entry] if entry != block else []
    while pending:
        label = pending.pop()
        if label == target:
            return False
        if label not in seen:
            seen.add(label)
            pending.extend(graph[label])
    return True


def predecessors(graph: Graph) -> Graph:
    """The predecessors of each block: the reversed graph."""
    before: Graph = {label: [] for label in graph}
    for label, targets in graph.items():
        for target in targets:
            before[target].append(label)
    return before


def immediate_dominators(graph: Graph, entry: str) -> dict[str, str]:
    """The immediate dominator of each block that `entry` reaches; of `entry` itself, `entry`."""
    order = _reverse_postorder(graph, entry)
    position = {label: number for number, label in enumerate(order)}
    before = predecessors(graph)
    parent = {entry: entry}

    def common(first: str, second: str) -> str:
        while first != second:
            if position[first] > position[second]:
                first = parent[first]
            else:
                second = parent[second]
        return first

    changed = True
    while changed:
        changed = False
        for label in order[1:]:
            known = [block for block in before[label] if block in parent]
            best = known[0]
            for block in known[1:]:
                best = common(best, block)
            if parent.get(label) != best:
                parent[label] = best
                changed = True
    return parent


def _reverse_postorder(graph: Graph, entry: str) -> list[str]:
    seen, finished = {entry}, []
    stack: list[tuple[str, int]] = [(entry, 0)]
    while stack:
        label, position = stack.pop()
        for offset, target in enumerate(graph[label][position:], position + 1):
            if target not in seen:
                seen.add(target)
                stack += [(label, offset), (target, 0)]
                break
        else:
            finished.append(label)
    return finished[::-1]
