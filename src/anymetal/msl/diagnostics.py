"""clang's messages -> messages about the author's text, as clang would word them there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from anymetal.errors import KernelSyntaxError, UnsupportedError
from anymetal.msl import clang
from anymetal.msl.entry import metal_spelling
from anymetal.msl.source_map import Origins, SourceMap
from anymetal.nouns import Position, Source

_MESSAGE = re.compile(r"(.+?):(\d+):(\d+): (fatal error|error|warning|note): (.*)")
_INTERNAL = re.compile(r"'am_type_\d+' \(aka '([^']*)'\)")


@dataclass(frozen=True)
class Message:
    """One message of the compiler, at a place of its input or of a header."""

    file: str
    line: int
    column: int
    severity: str
    text: str


@dataclass(frozen=True)
class Problem:
    """One message about the author's text."""

    position: Position | None
    severity: str
    text: str


def parse_messages(output: str) -> list[Message]:
    messages = []
    for line in output.splitlines():
        match = _MESSAGE.fullmatch(line)
        if match is not None:
            severity = "error" if match[4] == "fatal error" else match[4]
            messages.append(Message(match[1], int(match[2]), int(match[3]), severity, match[5]))
    return messages


def raise_problems(
    problems: list[Problem],
    excerpt: Callable[[Position], str | None],
    kind: type[KernelSyntaxError] = KernelSyntaxError,
) -> NoReturn:
    """Raises one error that lists all problems, each with its line and a caret."""
    errors = sum(problem.severity == "error" for problem in problems)
    text = "\n".join(render(problem, excerpt) for problem in problems)
    raise kind(f"{text}\n{errors} error{'s' if errors != 1 else ''} generated.")


def render(problem: Problem, excerpt: Callable[[Position], str | None]) -> str:
    """As clang prints it: the place, the message, the line and a caret."""
    if problem.position is None:
        return f"{problem.severity}: {problem.text}"
    place = problem.position
    head = f"{place.file}:{place.line}:{place.column}: {problem.severity}: {problem.text}"
    line = excerpt(place)
    if line is None:
        return head
    indent = re.sub(r"[^\t]", " ", line[: place.column - 1])
    return f"{head}\n{line}\n{indent}^"


def raise_preprocessor_errors(output: str, source: Source) -> NoReturn:
    """clang -E read the author's own files: its places are right as they are."""
    origins = Origins(files={source.name: source.text})
    problems = [
        Problem(Position(m.file, m.line, m.column), m.severity, m.text)
        for m in parse_messages(output)
    ]
    problems = problems or [Problem(None, "error", output.strip())]
    unsupported = all(p.severity != "error" or "anymetal" in p.text for p in problems)
    raise_problems(problems, origins.excerpt, UnsupportedError if unsupported else KernelSyntaxError)


def raise_compiler_errors(
    output: str, source_map: SourceMap, first_line: int, fallback: Position | None = None
) -> NoReturn:
    """Maps the messages of a compilation; line `first_line` of its input is the first rewritten one."""
    problems: list[Problem] = []
    for message in parse_messages(output):
        position = None
        if message.file == clang.INPUT_NAME:
            position = source_map.position(message.line - first_line + 1, message.column)
        if position is None:
            position = _anchor(problems, fallback)
        problems.append(Problem(position, message.severity, clean(message.text)))
    if not any(problem.severity == "error" for problem in problems):
        problems.append(Problem(fallback, "error", clean(output.strip())))
    raise_problems(_without_repeats(problems), source_map.excerpt)


def _anchor(problems: list[Problem], fallback: Position | None) -> Position | None:
    return problems[-1].position if problems else fallback


def _without_repeats(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))


def clean(text: str) -> str:
    """No internal names in what the author reads."""
    text = _INTERNAL.sub(r"'threadgroup \1'", text)
    text = re.sub(r"\bam_word_(\w+)", r"\1", text)
    return metal_spelling(text)
