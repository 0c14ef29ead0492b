"""Prepared -> nothing, or every pointer in it that changes its address space.

The text that is compiled has no spaces, so another one is written that has clang's own, and clang
is asked about it. Our headers know no spaces: most of what it then says is about that, and is not
believed. Believed is what names two pointers to different spaces, at a place of the author's, where
no function of our headers had a say.
"""

from __future__ import annotations

import re

from anymetal.msl import clang
from anymetal.msl.check import unit_of
from anymetal.msl.diagnostics import Message, Problem, groups_of, parse_messages, raise_problems
from anymetal.msl.spelling import metal_spelling
from anymetal.msl.unit import Unit
from anymetal.nouns import Position, Prepared, Target

_SPACES = {"__global": "device", "__local": "threadgroup", "__constant": "constant"}
_TYPE = r"'([^']*)'(?: \(aka '([^']*)'\))?"
_PAIRS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:reinterpret|static)_cast from {_TYPE} to {_TYPE} is not allowed",
        rf"cannot initialize .+? of type {_TYPE} with an? [lrx]value of type {_TYPE}",
        rf"assigning {_TYPE} to {_TYPE} changes address space of pointer",
        rf"assigning to {_TYPE} from incompatible type {_TYPE}",
        rf"incompatible operand types \({_TYPE} and {_TYPE}\)",
        rf"deduced type {_TYPE} of \w+ parameter does not match adjusted type {_TYPE} of argument",
        rf"no known conversion from {_TYPE} to {_TYPE} for \w+ argument",
    )
)
_NO_MATCH = re.compile(r"no matching (?:member )?(?:function|constructor) for ")
_NAMED = re.compile(r"cannot pass pointer to .*address space.* as a pointer to .*address space")
_OTHER_COUNT = re.compile(r"(?:requires|expects) .*\barguments?\b|too (?:few|many)")
_POINTER = re.compile(r"([^*&]+?) ?(?:\*(?: ?const)?|\[[^\]]*\](?:\[[^\]]*\])*)")
_EXPECTED = "am_thread_pointer"


def check_spaces(prepared: Prepared, target: Target, *, instantiate: bool = True) -> None:
    """Raises KernelSyntaxError where a pointer goes where one to another space is expected.

    Without `instantiate`, templates are only parsed.
    """
    kept = prepared.with_spaces
    if kept is None:
        return
    unit = unit_of(kept, kept.entry_points.values() if instantiate else ())
    result = clang.check_spaces(unit.text, target, dialect=prepared.source.dialect)
    problems: dict[Problem, None] = {}
    for group in groups_of(parse_messages(result.messages)):
        problems |= dict.fromkeys(_believed(group, unit))
    if problems:
        raise_problems(list(problems), kept.source_map.excerpt)


def _believed(group: list[Message], unit: Unit) -> list[Problem]:
    first, *notes = group
    if first.severity != "error" or first.file != clang.INPUT_NAME:
        return []
    if _EXPECTED in first.text:
        return _deduced(notes, unit)
    candidates = [note for note in notes if note.text.startswith("candidate ")]
    if _NO_MATCH.match(first.text):
        theirs = all(note.file == clang.INPUT_NAME for note in candidates)
        if not theirs or not _refused_for_spaces(candidates):
            return []
    elif not _differ(first.text):
        return []
    return [
        Problem(position, message.severity, _spelled(message.text, _starts_bracket(position, unit)))
        for message in (first, *candidates)
        if (position := unit.place(message.line, message.column)) is not None
    ]


def _starts_bracket(position: Position, unit: Unit) -> bool:
    """Does the author have a bracket there, of a C-style cast that was written as another one?"""
    line = unit.prepared.source_map.excerpt(position) or ""
    return line[position.column - 1 : position.column] == "("


def _deduced(notes: list[Message], unit: Unit) -> list[Problem]:
    """A template took a pointer for `thread T*` by deducing a T that has a space."""
    for note in notes:
        position = unit.place(note.line, note.column) if note.file == clang.INPUT_NAME else None
        if "in instantiation of" in note.text and position is not None:
            function = re.sub(r".*'(\w+)[<'].*", r"\1", note.text)
            text = f"no matching function for call to '{function}'"
            why = "a pointer to another address space is passed as a pointer to 'thread'"
            return [Problem(position, "error", text), Problem(position, "note", why, brief=True)]
    return []


def _refused_for_spaces(candidates: list[Message]) -> bool:
    """Does each candidate differ in a space, or take another number of arguments?"""
    spaces = [bool(_NAMED.search(note.text)) or _differ(note.text) for note in candidates]
    others = [bool(_OTHER_COUNT.search(note.text)) for note in candidates]
    return any(spaces) and all(a or b for a, b in zip(spaces, others, strict=True))


def _differ(text: str) -> bool:
    """Does a message name two pointers to different spaces?"""
    for pattern in _PAIRS:
        if found := pattern.search(text):
            one, two = (_space(found[at + 1] or found[at]) for at in (1, 3))
            return one is not None and two is not None and one != two
    return False


def _space(type_: str) -> str | None:
    """The space that a pointer or an array leads to; None for all other types, and for strings,
    which lie in `constant` and do not say so."""
    found = _POINTER.fullmatch(type_)
    if found is None or found[1] == "const char":
        return None
    words = [_SPACES[word] for word in found[1].split() if word in _SPACES]
    return (words or ["thread"])[0] if len(words) < 2 else None


def _spelled(text: str, is_bracket: bool) -> str:
    """clang's words with Metal's names of spaces; a C-style cast as what it is."""
    if is_bracket and text.startswith("reinterpret_cast "):
        text = text.replace("reinterpret_cast", "C-style cast")
        text = text.replace("is not allowed", "converts between mismatching address spaces")
    text = re.sub(r"\bgeneric address space\b", "address space 'thread'", text)
    text = re.sub(r"\b(?:const )?(__global|__local|__constant)\b", _renamed, text)
    return metal_spelling(re.sub(r"'(\w[^'*]*) \*'", _with_thread, text))


def _renamed(found: re.Match[str]) -> str:
    const = "const " if found[0].startswith("const ") and found[1] != "__constant" else ""
    return const + _SPACES[found[1]]


def _with_thread(found: re.Match[str]) -> str:
    named = any(space in found[1].split() for space in _SPACES.values())
    return found[0] if named else f"'thread {found[1]} *'"
