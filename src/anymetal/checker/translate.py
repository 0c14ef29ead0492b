"""Records of the shadow runtime become findings in the author's words: lines, names and indices."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from anymetal.checker import records
from anymetal.checker.finding import Finding, Place, Severity, Triple
from anymetal.checker.program import CheckedProgram, Excerpt
from anymetal.checker.records import RawFinding
from anymetal.checker.unwritten import Unwritten
from anymetal.checker.views import BufferView

_SIMD_WIDTH = 32
_SUSPEND_KINDS = ("barrier_divergence", "collective_divergence")


class Translator:
    """Translates the findings of one launch."""

    def __init__(self, checked: CheckedProgram, threads: Triple, group_size: Triple) -> None:
        self._checked = checked
        self._threads = threads
        self._group_size = group_size
        self._kernel = checked.name

    def finding(self, raw: RawFinding, listed: Sequence[BufferView]) -> Finding:
        """One record of the runtime as a Finding."""
        kind = records.KINDS[raw.kind]
        place = self._place(kind, raw.site, raw.access, raw.thread, raw.group)
        other = None
        if raw.other_site != records.NO_SITE:
            other = self._place(
                kind, raw.other_site, raw.other_access, raw.other_thread, raw.other_group
            )
        name, space, index = self._memory(kind, raw, listed)
        return Finding(
            kind=kind,  # type: ignore[arg-type]
            severity="error" if raw.severity else "warning",
            kernel=self._kernel,
            message=_MESSAGES[kind](self, raw, name, space, index),
            place=place,
            other=other,
            buffer=name,
            index=index,
            count=raw.count,
            space=space,
        )

    def timeout(self, message: str) -> Finding:
        """The kernel did not end."""
        place = _at(self._checked.kernel, "kernel")
        return Finding("timeout", "error", self._kernel, message, place)

    def unwritten(self, view: BufferView, left: Unwritten, severity: Severity) -> Finding:
        """Part of an output was not written."""
        place = _at(self._checked.parameters.get(view.name, Excerpt()), "argument")
        return Finding(
            "unwritten_output",
            severity,
            self._kernel,
            f"{left.missing} of {left.elements} elements of '{view.name}' were not written; the"
            f" first is element {left.first}",
            place,
            buffer=view.name,
            index=left.first,
            count=left.missing,
            space="device",
        )

    def _place(self, kind: str, site: int, access: int, thread: int, group: int) -> Place:
        if kind in _SUSPEND_KINDS:
            suspend = self._checked.suspends[site]
            excerpt, words = suspend.place, _suspend_words(suspend.what)
        else:
            excerpt = self._checked.sites[site].place
            words = self._checked.sites[site].what or _access_words(access)
        known = thread != records.NO_THREAD
        return Place(
            excerpt.position,
            excerpt.text,
            words,
            self._thread(thread, group) if known else None,
            self._group(group),
            thread % _SIMD_WIDTH if known else None,
        )

    def _group(self, number: int) -> Triple:
        sizes = zip(self._threads, self._group_size, strict=True)
        x, y, _ = (-(-threads // size) for threads, size in sizes)
        return number % x, number // x % y, number // x // y

    def _thread(self, index: int, group: int) -> Triple:
        """Position in the threadgroup, which is smaller at the edges of the grid."""
        position = self._group(group)
        limits = zip(self._threads, self._group_size, position, strict=True)
        x, y, _ = (min(size, threads - place * size) for threads, size, place in limits)
        return index % x, index // x % y, index // x // y

    def _memory(
        self, kind: str, raw: RawFinding, listed: Sequence[BufferView]
    ) -> tuple[str | None, str | None, int | None]:
        """Name, address space and element index of the memory that a finding is about."""
        if kind in (*_SUSPEND_KINDS, "arithmetic", "nan"):
            return None, None, None
        site = self._checked.sites[raw.site]
        region = raw.region
        if region < records.FIRST_DYNAMIC:
            for argument in self._checked.arguments:
                if argument.role == "buffer" and argument.index == region:
                    size = argument.element_size or site.element
                    return argument.name, argument.space, raw.offset // size
        if region < records.FIRST_STATIC:
            for argument in self._checked.arguments:
                if (
                    argument.role == "threadgroup"
                    and argument.index == region - records.FIRST_DYNAMIC
                ):
                    return argument.name, "threadgroup", raw.offset // (argument.element_size or 1)
        variables = self._checked.variables
        number = region - records.FIRST_STATIC
        if 0 <= number < len(variables):
            return variables[number].name, "threadgroup", raw.offset // site.element
        if 0 <= number - len(variables) < len(listed):
            view = listed[number - len(variables)]
            return view.name, "device", raw.offset // max(view.element_size, 1)
        if site.root.origin == "array":
            return _variable(site.root.name), "thread", raw.offset // site.element
        if site.root.origin == "global":
            return _variable(site.root.name), "constant", raw.offset // site.element
        return None, None, None

    def what(self, site: int) -> str:
        """The arithmetic that went wrong at a site."""
        return self._checked.sites[site].what


def _at(excerpt: Excerpt, access: str) -> Place:
    return Place(excerpt.position, excerpt.text, access, None, None, None)


def _variable(name: str) -> str:
    """The author's name of a variable that LLVM calls `%tmp.i12`."""
    name = re.sub(r"\.(?:i|sroa|addr)?\d*(?:\.\w+)*$", "", name.strip('%@"'))
    mangled = re.match(r"_ZL?\d+(\w+)", name)
    return mangled.group(1) if mangled else name


def _access_words(access: int) -> str:
    words = "write" if access & records.WRITE else "read"
    return f"atomic {words}" if access & records.ATOMIC else words


def _suspend_words(what: int) -> str:
    return {1: "threadgroup_barrier", 2: "simdgroup_barrier", 3: "collective"}.get(
        what & 15, "loop end"
    )


def _of(name: str | None, space: str | None) -> str:
    if name is None:
        return "memory that belongs to no buffer of the kernel"
    return f"{space} '{name}'" if space else f"'{name}'"


Message = Callable[[Translator, RawFinding, str | None, str | None, int | None], str]


def _out_of_bounds(
    _: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    verb = "write" if raw.access & records.WRITE else "read"
    if name is None:
        return f"{verb} of {raw.size} bytes at an address that belongs to no buffer of the kernel"
    if raw.severity:
        return f"{verb} of {raw.size} bytes outside {_of(name, space)}, at element {index}"
    return (
        f"{verb} of {raw.size} bytes at element {index} of {_of(name, space)}: past the tensor's"
        " last element, though inside the storage it is a view of"
    )


def _race(
    _: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    if (raw.access | raw.other_access) & records.ATOMIC:
        return f"atomic and plain access to {_of(name, space)} element {index}"
    if not raw.severity:
        return f"several threads write the same value to {_of(name, space)} element {index}"
    if raw.group != raw.other_group:
        return f"race between threadgroups on {_of(name, space)} element {index}"
    return f"race on {_of(name, space)} element {index}"


def _barrier_flags(
    _: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    return (
        f"the barrier between the two accesses to {_of(name, space)} element {index} does not order"
        f" {space} memory"
    )


def _barrier_divergence(translator: Translator, raw: RawFinding, *_: object) -> str:
    if raw.severity:
        return "threads of one threadgroup stand at different barriers"
    return f"{raw.extra} threads of the threadgroup had ended before this barrier"


def _collective_divergence(translator: Translator, raw: RawFinding, *_: object) -> str:
    lanes = raw.extra.bit_count()
    return f"only {lanes} lanes of the simdgroup take part (active mask 0x{raw.extra:08x})"


def _uninitialised(
    _: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    return f"read of {_of(name, space)} element {index}, which nobody has written"


def _misaligned(
    translator: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    verb = "write" if raw.access & records.WRITE else "read"
    return f"{verb} of a vector at element {index} of {_of(name, space)} is not aligned to its size"


def _read_only(
    _: Translator, raw: RawFinding, name: str | None, space: str | None, index: int | None
) -> str:
    return f"write to read-only {_of(name, space)} element {index}"


def _what(translator: Translator, raw: RawFinding, *_: object) -> str:
    return translator.what(raw.site)


_MESSAGES: dict[str, Message] = {
    "out_of_bounds": _out_of_bounds,
    "race": _race,
    "barrier_divergence": _barrier_divergence,
    "barrier_flags": _barrier_flags,
    "uninitialised": _uninitialised,
    "misaligned": _misaligned,
    "read_only": _read_only,
    "collective_divergence": _collective_divergence,
    "arithmetic": _what,
    "nan": _what,
}
