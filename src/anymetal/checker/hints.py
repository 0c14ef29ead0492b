"""A finding goes in, a sentence on the usual fix comes out.

A kind with one remedy has it in its row of `kinds`; where it depends on the situation, it is here.
"""

from __future__ import annotations

from anymetal.checker.finding import Finding, Place
from anymetal.checker.scene import Between, Scene


def out_of_bounds(finding: Finding) -> str:
    if finding.message.startswith("a call"):
        return "Test a function pointer before it is called, and make it from a function's name."
    if finding.index is not None and finding.index < 0:
        return (
            "The index is below zero: test it before it is used as an address, for example where a"
            " label such as -100 means `ignore`."
        )
    space = _space(finding)
    if space in ("threadgroup", "thread"):
        return (
            "The array has a fixed size: make it large enough for the longest row, or work through"
            " the row in tiles of the array's size."
        )
    if _writes(finding.place):
        return f"A grid is often rounded up to whole threadgroups: {_early_return(finding.scene)}"
    return (
        "Load only where the index is below the number of elements; the last tile and the last"
        " vector of a row usually need the test."
    )


def _early_return(scene: Scene | None) -> str:
    """With the author's names: which of several integers is the number of elements is not known."""
    names = scene or Scene()
    count = names.counts[0] if len(names.counts) == 1 else "count"
    test = f"`if ({names.in_grid or 'in_grid'} >= {count}) return;`"
    passed = "" if len(names.counts) == 1 else "pass the number of elements and "
    return f"{passed}return early, as in {test}."


def race(finding: Finding) -> str:
    first, second = finding.other, finding.place
    if first is None:
        return "Give each thread elements of its own, or make the access atomic."
    if _atomic(first) != _atomic(second):
        return (
            f"Make both accesses atomic: use atomic_load_explicit or atomic_store_explicit"
            f" {_at(second if _atomic(first) else first)}."
        )
    if None not in (first.threadgroup, second.threadgroup) and (
        first.threadgroup != second.threadgroup
    ):
        return (
            "No barrier orders threadgroups: use atomics or a second launch, or give each"
            " threadgroup elements of its own."
        )
    between = (finding.scene or Scene()).between
    if between is None or between.order == "unknown":
        places = sorted((first, second), key=lambda place: place.line or 0)
        between = Between("ahead", *(place.position for place in places))
    if between.order == "update":
        return (
            f"Several threads update one element of {_name(finding)}: use an atomic or a reduction."
        )
    if first.line == second.line and _writes(first) and _writes(second):
        return _one_writer(finding, between)
    return _missing_barrier(f"threadgroup_barrier({_flags(finding)})", between)


def _one_writer(finding: Finding, between: Between) -> str:
    in_group = (finding.scene or Scene()).in_group or "in_group"
    hint = (
        f"Let one thread write the element (`if ({in_group} == 0)`), or give each thread an"
        " element of its own."
    )
    if between.order == "around" and between.loop:
        hint += (
            f" Where another round of the loop at line {between.loop.line} writes it, put"
            f" threadgroup_barrier({_flags(finding)}) at the loop's end."
        )
    return hint


def _missing_barrier(barrier: str, between: Between) -> str:
    """Where a barrier goes, by the way that threads come from one access to the other."""
    first, second, loop = between.first, between.second, between.loop
    if between.order == "around" and loop:
        return (
            f"Put {barrier} at the end of the loop at line {loop.line}: a faster simdgroup may be"
            " a round ahead."
        )
    if first is None or second is None:
        return f"Put {barrier} between the two accesses."
    if between.order == "apart":
        return (
            f"Lines {first.line} and {second.line} are in different branches, which run in any"
            f" order: make two conditions of them, with {barrier} between."
        )
    rounds = loop if between.order == "ahead and around" else None
    if first.line == second.line:
        apart = f"read into a variable first, then {barrier}, then write"
        if not rounds:
            return f"Line {first.line} reads and writes at once: {apart}."
        return (
            f"Put {barrier} at the end of the loop at line {rounds.line}: a faster simdgroup may be"
            f" a round ahead. Where a round reads what it writes too, {apart}."
        )
    hint = f"Put {barrier} between lines {first.line} and {second.line}"
    if rounds:
        hint += (
            f", and one at the end of the loop at line {rounds.line}: a faster simdgroup may be a"
            " round ahead"
        )
    return f"{hint}."


def barrier_divergence(finding: Finding) -> str:
    if finding.severity == "warning":
        return (
            "Let threads without work skip the work and not the barrier: replace the early return"
            " by a condition around the loads and stores."
        )
    return (
        "All threads of a threadgroup must reach the same barrier: move it out of the branch, or"
        " make the condition the same for all of them."
    )


def barrier_flags(finding: Finding) -> str:
    return (
        f"The barrier orders execution but not this memory: write"
        f" threadgroup_barrier({_flags(finding)})."
    )


def uninitialised(finding: Finding) -> str:
    space, name = _space(finding), _name(finding)
    if space == "threadgroup":
        return (
            f"Fill {name} before the barrier in front of the read, or read only the slots that"
            " are written: a small threadgroup has fewer simdgroups than the array has slots."
        )
    if space == "thread":
        return f"Give {name} an initialiser: `= {{}}` sets all of it to zero."
    return f"Write {name} first, in this kernel or before the launch; torch.zeros does it."


def aliasing(finding: Finding) -> str:
    if finding.severity == "warning":
        return (
            "Pass a tensor of its own for the output, or write a kernel with one parameter that it"
            " reads and writes; `// anymetal: allow(aliasing) reason` accepts it."
        )
    return "Pass a tensor of its own for the output: a clone of the input, or a new one."


def misaligned(finding: Finding) -> str:
    if finding.severity == "warning":
        return (
            "The address is aligned for an element and not for the whole vector: pass a tensor that"
            " starts at a multiple of the vector's size, or use the packed_ type."
        )
    return (
        "Align the address to the type: check the offset of the view that was passed and every"
        " pointer cast, or load the elements one by one."
    )


def limits(finding: Finding) -> str:
    message = finding.message.lower()
    if "stack" in message:
        return "Let the recursion end, or walk with a loop: a GPU has less stack than this machine."
    if "of one thread" in message:
        return "Keep large arrays in a buffer, with a part for each thread or threadgroup."
    if "buffer" in message:
        return "Pack small arguments into one struct or one tensor; a kernel takes 31 buffers."
    if "memory" in message or "bytes" in message or "kib" in message:
        return "Use smaller tiles, a narrower type such as half, or one array for two purposes."
    return "Launch smaller threadgroups and let each thread do more elements in a loop."


def arithmetic(finding: Finding) -> str:
    if "shift" in finding.message.lower():
        return "Keep the count below the width of the type, for example with `count & 31`."
    if "overflow" in finding.message:
        return "Compute the index in a wider type, for example `long(row) * columns + column`."
    return "Test the divisor first; a GPU does not trap and returns any value."


def _atomic(place: Place) -> bool:
    return "atomic" in place.access


def _writes(place: Place) -> bool:
    return "write" in place.access


def _at(place: Place) -> str:
    return "at both places" if place.line is None else f"at line {place.line}"


def _name(finding: Finding) -> str:
    return f"`{finding.buffer}`" if finding.buffer else "the memory"


def _space(finding: Finding) -> str:
    """The address space, from the message where the finding does not say."""
    if finding.space:
        return finding.space
    words = finding.message.split()
    return next((word for word in ("threadgroup", "device", "constant") if word in words), "")


def _flags(finding: Finding) -> str:
    return f"mem_flags::mem_{'device' if _space(finding) == 'device' else 'threadgroup'}"
