"""Records of the shadow runtime become findings in the author's words: lines, names and indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anymetal.checker import records
from anymetal.checker.finding import Finding, Place, Severity, Triple
from anymetal.checker.kinds import RECORDED, Kind
from anymetal.checker.messages import Sighting
from anymetal.checker.program import CheckedProgram, Excerpt
from anymetal.checker.records import RawFinding
from anymetal.checker.scene import Scene
from anymetal.checker.unwritten import Unwritten
from anymetal.checker.views import BufferView
from anymetal.errors import FailedAssertion
from anymetal.machine import shadow
from anymetal.machine.layout import Wait, waits_for
from anymetal.machine.shadow import Access
from anymetal.msl.spelling import author_name
from anymetal.nouns import SIMDGROUP, Argument
from anymetal.passes.check.instrument import DIVIDED_FOR_NOTHING

_INTEGERS = ("int", "uint", "short", "ushort", "long", "ulong", "size_t")

_SHARED = "'{one}' and '{other}' are the same memory: pass a tensor of its own for the output."


class Translator:
    """Translates the findings of one launch."""

    def __init__(self, checked: CheckedProgram, threads: Triple, group_size: Triple) -> None:
        self._checked = checked
        self._threads = threads
        self._group_size = group_size
        self._kernel = checked.name

    def finding(self, raw: RawFinding, views: Sequence[BufferView]) -> Finding:
        """One record of the runtime as a Finding."""
        kind = RECORDED[raw.kind]
        listed = [view for view in views if view.index is None]
        place = self._place(kind, raw.site, raw.access, raw.thread, raw.group)
        other = None
        if raw.other_site != records.NO_SITE:
            other = self._place(
                kind, raw.other_site, raw.other_access, raw.other_thread, raw.other_group
            )
        name, space, index = self._memory(kind, raw, listed)
        another = self._other_argument(kind, raw)
        return Finding(
            kind=kind.name,
            severity="error" if raw.severity and not self._is_harmless(kind, raw) else "warning",
            kernel=self._kernel,
            message=kind.message_for(
                replace(
                    self._sighting(kind, raw, name, space, index),
                    other_name=another,
                    layout=_layout(raw, views) if kind.name == "layout" else "",
                )
            ),
            hint=_SHARED.format(one=name, other=another) if another and kind.name == "race" else "",
            place=place,
            other=other,
            buffer=name,
            index=index,
            count=raw.count,
            space=space,
            scene=self._scene(kind, raw),
        )

    def _is_harmless(self, kind: Kind, raw: RawFinding) -> bool:
        if kind.about != "arithmetic":
            return False
        return self._checked.sites[raw.site].what == DIVIDED_FOR_NOTHING

    def _scene(self, kind: Kind, raw: RawFinding) -> Scene:
        """The author's names, and how the accesses of a race lie to each other."""
        names = {a.builtin: _scalar(a) for a in self._checked.arguments if a.builtin}
        values = (a for a in self._checked.arguments if a.space == "constant" and not a.is_pointer)
        between = None
        if kind.name == "race" and raw.other_site != records.NO_SITE:
            known = raw.other_thread != records.NO_THREAD
            between = self._checked.order.between(raw.other_site, raw.site, exactly=known)
        return Scene(
            in_grid=names.get("thread_position_in_grid", ""),
            in_group=names.get("thread_index_in_threadgroup", "")
            or names.get("thread_position_in_threadgroup", ""),
            counts=tuple(a.name for a in values if a.type in _INTEGERS),
            between=between,
        )

    def _sighting(
        self,
        kind: Kind,
        raw: RawFinding,
        name: str | None,
        space: str | None,
        index: int | None,
    ) -> Sighting:
        arithmetic = kind.about == "arithmetic"
        return Sighting(
            severe=bool(raw.severity),
            verb="write" if raw.access & Access.WRITE else "read",
            size=raw.size,
            atomic=bool((raw.access | raw.other_access) & Access.ATOMIC),
            across_groups=raw.group != raw.other_group,
            detail=raw.extra,
            operation=self._checked.sites[raw.site].what if arithmetic else "",
            name=name,
            space=space,
            index=index,
        )

    def _other_argument(self, kind: Kind, raw: RawFinding) -> str | None:
        """The argument that the other access went through, if that is another than the first's."""
        if kind.about != "memory" or raw.other_site == records.NO_SITE:
            return None
        one, other = (self._checked.sites[site].root for site in (raw.site, raw.other_site))
        if one == other or one.origin != "buffer" or other.origin != "buffer":
            return None
        names = {a.index: a.name for a in self._checked.arguments if a.role == "buffer"}
        return names.get(other.number)

    def stopped(self, kind: str, message: str) -> Finding:
        """The kernel did not come to its end."""
        place = _at(self._checked.kernel, "kernel")
        return Finding(kind, "error", self._kernel, message, place)

    def failed(self, failure: FailedAssertion) -> Finding:
        """An assertion did not hold."""
        pairs = list(zip(failure.thread, self._group_size, strict=True))
        x, y, z = (position % size for position, size in pairs)
        group_x, group_y, group_z = (position // size for position, size in pairs)
        index = x + self._group_size[0] * (y + self._group_size[1] * z)
        place = Place(
            failure.position,
            f"assert({failure.text});",
            "assert",
            (x, y, z),
            (group_x, group_y, group_z),
            index % SIMDGROUP,
        )
        message = f"the assertion `{failure.text}` does not hold"
        return Finding("assertion", "error", self._kernel, message, place)

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

    def _place(self, kind: Kind, site: int, access: int, thread: int, group: int) -> Place:
        if kind.about == "suspend":
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
            thread % SIMDGROUP if known else None,
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
        self, kind: Kind, raw: RawFinding, listed: Sequence[BufferView]
    ) -> tuple[str | None, str | None, int | None]:
        """Name, address space and element index of the memory that a finding is about."""
        if kind.about != "memory":
            return None, None, None
        site = self._checked.sites[raw.site]
        region = raw.region
        if site.what:
            return None, None, raw.offset
        if region < shadow.FIRST_DYNAMIC:
            for argument in self._checked.arguments:
                if argument.role == "buffer" and argument.index == region:
                    size = argument.element_size or site.element
                    return argument.name, argument.space, raw.offset // size
        if region < shadow.FIRST_STATIC:
            for argument in self._checked.arguments:
                if (
                    argument.role == "threadgroup"
                    and argument.index == region - shadow.FIRST_DYNAMIC
                ):
                    return argument.name, "threadgroup", raw.offset // (argument.element_size or 1)
        variables = self._checked.variables
        number = region - shadow.FIRST_STATIC
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


def _layout(raw: RawFinding, views: Sequence[BufferView]) -> str:
    """The shape and strides of the tensor that a finding is about."""
    tensor = next(view.tensor for view in views if view.index == raw.region)
    return f"shape {tuple(tensor.shape)}, strides {tensor.stride()}"


def _scalar(builtin: Argument) -> str:
    """A position as one number: of a vector, its x."""
    return f"{builtin.name}.x" if builtin.type[-1] in "23" else builtin.name


def _at(excerpt: Excerpt, access: str) -> Place:
    return Place(excerpt.position, excerpt.text, access, None, None, None)


def _variable(name: str) -> str:
    """The author's name of a variable that LLVM calls `%tmp.i12`."""
    return author_name(name.strip('%@"').partition(".")[0])


def _access_words(access: int) -> str:
    words = "write" if access & Access.WRITE else "read"
    return f"atomic {words}" if access & Access.ATOMIC else words


_SUSPEND_WORDS = {
    Wait.THREADGROUP_BARRIER: "threadgroup_barrier",
    Wait.SIMDGROUP_BARRIER: "simdgroup_barrier",
    Wait.COLLECTIVE: "collective",
    Wait.LOOP_END: "loop end",
}


def _suspend_words(what: int) -> str:
    return _SUSPEND_WORDS[waits_for(what)]
