"""What the shadow runtime recorded goes in, the sentence that opens a finding comes out.

A kind whose sentence needs no choice has a template in its row of `kinds`; the others are here.
"""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.machine.shadow import Beyond


@dataclass(frozen=True)
class Sighting:
    """One record of the shadow runtime in the author's terms; templates name its attributes.

    `detail` is the number a kind adds: the lanes that took part, or the threads that had ended.
    `operation` is the arithmetic that went wrong, where it is about arithmetic. `other_name` is the
    argument that the other access went through, where it is another one. `layout` is the shape and
    the strides of the tensor.
    """

    severe: bool
    verb: str
    size: int
    atomic: bool
    across_groups: bool
    detail: int
    operation: str
    name: str | None
    space: str | None
    index: int | None
    other_name: str | None = None
    layout: str = ""

    @property
    def memory(self) -> str:
        if self.name is None:
            return "memory that belongs to no buffer of the kernel"
        return f"{self.space} '{self.name}'" if self.space else f"'{self.name}'"


def out_of_bounds(seen: Sighting) -> str:
    if seen.detail == Beyond.IN_OBJECT:
        return f"index {seen.index} of a row or member array that has {seen.size} elements"
    access = f"{seen.verb} of {seen.size} bytes"
    if seen.detail == Beyond.AT_NULL:
        return f"{access} through a null pointer"
    if seen.name is None:
        return f"{access} at an address that belongs to no buffer of the kernel"
    if seen.detail == Beyond.IN_STORAGE:
        return (
            f"{access} at element {seen.index} of {seen.memory}: past the tensor's last element,"
            " though inside the storage it is a view of"
        )
    return f"{access} outside {seen.memory}, at element {seen.index}"


def race(seen: Sighting) -> str:
    place = f"{seen.memory} element {seen.index}"
    if seen.other_name:
        place += f", which '{seen.other_name}' is bound to as well"
    if seen.atomic:
        return f"atomic and plain access to {place}"
    if not seen.severe:
        return f"several threads write the same value to {place}"
    return f"race {'between threadgroups ' if seen.across_groups else ''}on {place}"


def barrier_divergence(seen: Sighting) -> str:
    if seen.severe and not seen.detail:
        return "threads of one threadgroup stand at different barriers"
    if seen.severe:
        verb = "comes" if seen.detail == 1 else "come"
        return f"{_threads(seen)} of the threadgroup never {verb} to this barrier"
    return f"{_threads(seen)} of the threadgroup had returned before this barrier"


def _threads(seen: Sighting) -> str:
    return "1 thread" if seen.detail == 1 else f"{seen.detail} threads"


def collective_divergence(seen: Sighting) -> str:
    lanes = seen.detail.bit_count()
    return f"only {lanes} lanes of the simdgroup take part (active mask 0x{seen.detail:08x})"


def layout(seen: Sighting) -> str:
    return (
        f"{seen.verb} of {seen.memory} element {seen.index}, which lies between the elements of the"
        f" tensor ({seen.layout})"
    )


def aliasing(seen: Sighting) -> str:
    one, other = f"'{seen.name}'", f"'{seen.other_name}'" if seen.other_name else "another argument"
    both = f"{one} and {other} are the same memory, and Metal's compiler assumes that no two are"
    if seen.severe:
        return (
            f"{both}: this {seen.verb} of element {seen.index} may come before or after the other"
        )
    return f"{both}: element {seen.index} is read through {other} and then written"


def shuffle(seen: Sighting) -> str:
    if seen.severe:
        return f"the value of lane {seen.detail} is read, and there is no such lane"
    return f"the value of lane {seen.detail} is read, and that lane is not active here"
