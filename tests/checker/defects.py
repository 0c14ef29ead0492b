"""A correct kernel in, the same kernel with one defect out, for every place that can have one.

Places are found in the text: barriers, subscripts, guards, array sizes, stores, atomic additions.
The launch has defects too: a tensor one element too short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BARRIER = re.compile(r"(threadgroup|simdgroup)_barrier\(mem_flags::(\w+)\);")
_CONDITION = re.compile(r"\bif \(")
_CHOICE = re.compile(r"[\w.]+(?: \+ 1)? [<>] [\w.]+(?= \?)")
_BOUND = re.compile(r"(?<=[\w)]) < (?=\w+)")
_STORE = re.compile(r"\b\w+(?:\[[^=;]*?\])+ \+?= [^;]*;")
_ATOMIC_ADD = re.compile(r"atomic_fetch_add_explicit\((&\w+\[.*?\]), (\w+), memory_order_relaxed\)")
_ARRAY = re.compile(r"^\s*threadgroup \w+ \w+((?:\[\w+\])+);")
_TENSOR = re.compile(r"(\w+)\[([\d,]+)\]=(\S+)")
_OTHER_INDEX = {
    "lane": "in_group",
    "simd": "lane",
    "in_group": "lane",
    "in_group.x": "in_group.y",
    "in_group.y": "in_group.x",
    "row": "in_group",
}


@dataclass(frozen=True)
class Defect:
    """One defect in one kernel. `launches` are the kernel's own, except in `shrink buffer`."""

    kernel: str
    operator: str
    line: int
    change: str
    text: str
    launches: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.kernel}:{self.line} {self.operator}: {self.change}"


@dataclass(frozen=True)
class Edit:
    """Characters `start` to `end` of the text become `new`."""

    operator: str
    start: int
    end: int
    new: str


def plant(kernel: str, text: str, launches: tuple[str, ...]) -> list[Defect]:
    """Every defect there is a place for, in the order of the text."""
    body = text.index("{", text.index("kernel void"))
    edits = [edit for find in _FINDERS for edit in find(text) if edit.start > body]
    # A replacement by what is there already is no defect, and two finders may agree on one.
    seen: dict[str, Defect] = {}
    for edit in sorted(edits, key=lambda e: (e.start, e.operator)):
        defect = _planted(kernel, text, launches, edit)
        if defect.text != text:
            seen.setdefault(defect.text, defect)
    return [*seen.values(), *_shorter_buffers(kernel, text, launches)]


def _planted(kernel: str, text: str, launches: tuple[str, ...], edit: Edit) -> Defect:
    line = text.count("\n", 0, edit.start) + 1
    before = " ".join(text[edit.start : edit.end].split())
    changed = text[: edit.start] + edit.new + text[edit.end :]
    return Defect(kernel, edit.operator, line, f"{before} -> {edit.new}", changed, launches)


def _barriers(text: str) -> Iterator[Edit]:
    for match in _BARRIER.finditer(text):
        scope, flag = match.groups()
        yield Edit("drop barrier", *match.span(), ";")
        other = "mem_device" if flag == "mem_threadgroup" else "mem_threadgroup"
        for new in ("mem_none", other):
            yield Edit("swap flag", *match.span(2), new)
        if scope == "threadgroup":
            yield Edit("narrow barrier", *match.span(1), "simdgroup")


def _subscripts(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of the text inside each subscript, declarations and attributes left out."""
    for start, character in enumerate(text):
        if character != "[" or not re.match(r"[\w\]]", text[start - 1]) or text[start + 1] == "[":
            continue
        line = text[text.rfind("\n", 0, start) + 1 : start]
        if not _ARRAY.match(text[text.rfind("\n", 0, start) + 1 : text.find("\n", start)]):
            assert "[[" not in line
            yield start + 1, _closing(text, start)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for position in range(opening, len(text)):
        depth += {"[": 1, "]": -1}.get(text[position], 0)
        if depth == 0:
            return position
    raise ValueError("a bracket is not closed")


def _shifted(text: str) -> Iterator[Edit]:
    body = text.index("{", text.index("kernel void"))
    for start, end in _subscripts(text[:body].replace("[", " ") + text[body:]):
        index = text[start:end]
        yield Edit("shift index", start, end, f"({index}) + 1")
        yield Edit("shift index", start, end, f"({index}) - 1")
        for name, other in _OTHER_INDEX.items():
            pattern = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.])")
            kind = "uint2" if "." in other else "uint"
            declared = re.search(rf"\b{kind} {other.split('.')[0]}\b", text[:body])
            for match in pattern.finditer(index) if declared else ():
                place = (start + match.start(), start + match.end())
                yield Edit("swap index", *place, other)


def _guards(text: str) -> Iterator[Edit]:
    for match in _CONDITION.finditer(text):
        end = _closing(text.replace("(", "[").replace(")", "]"), match.end() - 1)
        yield Edit("drop guard", match.end(), end, "true")
        for bound in _BOUND.finditer(text, match.end(), end):
            yield Edit("loosen guard", *bound.span(), " <= ")
    for match in _CHOICE.finditer(text):
        yield Edit("drop guard", *match.span(), "true")
        for bound in _BOUND.finditer(text, *match.span()):
            yield Edit("loosen guard", *bound.span(), " <= ")


def _arrays(text: str) -> Iterator[Edit]:
    start = 0
    for line in text.splitlines(keepends=True):
        match = _ARRAY.match(line)
        if match:
            for size in re.finditer(r"\w+", match[1]):
                place = (start + match.start(1) + size.start(), start + match.start(1) + size.end())
                yield Edit("shrink array", *place, f"{size[0]} - 1")
        start += len(line)


def _stores(text: str) -> Iterator[Edit]:
    for match in _STORE.finditer(text):
        yield Edit("drop store", *match.span(), ";")


def _atomics(text: str) -> Iterator[Edit]:
    for match in _ATOMIC_ADD.finditer(text):
        space = "threadgroup" if match[1].startswith("&bins") else "device"
        yield Edit("no atomic", *match.span(), f"*({space} uint*)({match[1]}) += {match[2]}")


def _shorter_buffers(kernel: str, text: str, launches: tuple[str, ...]) -> Iterator[Defect]:
    """The last element of one tensor is missing, in every launch."""
    count = len(_TENSOR.findall(launches[0]))
    for number in range(count):
        shorter = tuple(_shorter(launch, number) for launch in launches)
        yield Defect(kernel, "shrink buffer", 0, f"tensor {number}", text, shorter)


def _shorter(launch: str, number: int) -> str:
    match = list(_TENSOR.finditer(launch))[number]
    elements = 1
    for size in match[2].split(","):
        elements *= int(size)
    return f"{launch[: match.start(2)]}{elements - 1}{launch[match.end(2) :]}"


_FINDERS = (_barriers, _shifted, _guards, _arrays, _stores, _atomics)
