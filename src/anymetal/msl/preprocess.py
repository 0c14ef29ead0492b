"""Source -> tokens: clang expands macros and includes, line markers tell where each came from."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

from anymetal.msl import clang
from anymetal.msl.builtins import SCALARS, SPACES
from anymetal.msl.diagnostics import (
    Problem,
    parse_messages,
    raise_preprocessor_errors,
    raise_problems,
)
from anymetal.msl.source_map import Line, Origins
from anymetal.msl.tokens import Token, TokenRange, tokenize_line
from anymetal.nouns import Position, Source
from anymetal.store.cache import digest_of

_DIRECTIVE = " [-W#warnings]"
_MARKER = re.compile(r'# (\d+) "((?:\\.|[^"\\])*)"( \d)?')
_PRAGMA = re.compile(r"\s*#\s*pragma\b\s*(.*)")
_KEPT_PRAGMA = re.compile(r"(?:clang\s+loop\s+)?(?:no)?unroll\b|clang\s+fp\b")
_METAL_MATH = re.compile(r"METAL\s+fp\s+(contract|math_mode)\s*\(\s*(\w+)\s*\)")


@dataclass(frozen=True)
class Preprocessed:
    """The translation unit after preprocessing, and what was read on the way."""

    tokens: TokenRange
    origins: Origins
    headers: tuple[str, ...]
    dependencies: tuple[tuple[str, str], ...]
    remarks: tuple[Problem, ...] = ()  # what `#warning` says


def preprocess(source: Source) -> Preprocessed:
    """Expands the source; a missing include or a broken directive raises KernelSyntaxError."""
    result = clang.preprocess(
        source.text,
        name=source.name,
        include_dirs=[*source.include_dirs, *_torch_include_dirs()],
        defines=source.defines,
        dialect=source.dialect,
        folder=_folder_name(source).absolute(),
    )
    if not result.ok or "#embed" in result.messages:
        raise_preprocessor_errors(result.messages, source)
    reader = _Reader(source)
    return replace(reader.read(result.output), remarks=reader.remarks(result.messages))


def _folder_name(source: Source) -> Path:
    """Where `#include "..."` of the main file starts from."""
    path = Path(source.name)
    return path.parent if path.is_file() else clang.INCLUDE_DIR


@cache
def _torch_include_dirs() -> tuple[Path, ...]:
    """torch ships the c10/metal headers; found without importing torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return ()
    return (Path(found.origin).parent / "include",)


class _Reader:
    """Walks over the output of clang -E line by line."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.origins = Origins(files={source.name: _unix_lines(source.text)})
        self.tokens: list[Token] = []
        self.headers: dict[str, None] = {}
        self.digests: dict[str, str] = {}
        self.ours = clang.INCLUDE_DIR.as_posix() + "/"

    def read(self, text: str) -> Preprocessed:
        file, number, skip = self.source.name, 0, False
        for line in text.split("\n"):
            if line.startswith("# ") and (marker := _MARKER.match(line)):
                # Markers of an include end in a flag; `#line 3 "other.h"` leaves one without.
                is_renamed = marker[3] is None and self._named(_unescape(marker[2])) != file
                if is_renamed and number > 0 and file != "<stdin>":
                    self._refuse_renaming(file, number)
                file, number = self._named(_unescape(marker[2])), int(marker[1])
                skip = self._enter(file)
                continue
            if line and not skip:
                self._read_line(file, number, line)
            number += 1
        self._settle_unroll_arguments()
        return Preprocessed(
            TokenRange(self._settled()),
            self.origins,
            tuple(self.headers),
            tuple(self.digests.items()),
        )

    def remarks(self, messages: str) -> tuple[Problem, ...]:
        """The warnings of directives in the author's files."""
        found = [
            Problem(
                Position(self._named(message.file), message.line, message.column),
                message.severity,
                message.text.removesuffix(_DIRECTIVE),
            )
            for message in parse_messages(messages)
            if message.text.endswith(_DIRECTIVE)
        ]
        return tuple(dict.fromkeys(found))

    def _settled(self) -> list[Token]:
        """Metal 3.1 does not know `coherent`: it is a name like any other there."""
        return self.tokens if self.source.language == "3.1" else _without_coherence(self.tokens)

    def _refuse_renaming(self, file: str, number: int) -> NoReturn:
        text = "a '#line' directive that names a file is not supported"
        raise_problems([Problem(Position(file, number, 1), "error", text)], self.origins.excerpt)

    def _named(self, file: str) -> str:
        """clang runs in the source's folder, and names headers from there; we name them from where
        the source's own name starts."""
        if file == self.source.name or Path(file).is_absolute() or file.startswith("<"):
            return file
        return str(_folder_name(self.source) / file)

    def _enter(self, file: str) -> bool:
        """Notes a file on its first sight; True when its text is not the author's."""
        if file == self.source.name:
            return False
        if file.startswith("<"):
            return True
        path = Path(file).absolute()
        if path.as_posix().startswith(self.ours):
            self.headers[path.as_posix()[len(self.ours) :]] = None
            return True
        if file not in self.origins.files:
            content = path.read_bytes()
            self.origins.files[file] = _unix_lines(content.decode(errors="replace"))
            self.digests[str(path)] = digest_of(content)
        return False

    def _read_line(self, file: str, number: int, line: str) -> None:
        index = len(self.origins.lines)
        pragma = _PRAGMA.match(line)
        if pragma is None:
            self.tokens.extend(tokenize_line(line, index))
        elif (kept := _kept_pragma(pragma[1])) is not None:
            self.tokens.append(Token("pragma", f"#pragma {kept}", True, index, 0))
        else:
            return
        self.origins.lines.append(Line(file, number, line))

    def _settle_unroll_arguments(self) -> None:
        """clang -E expands no macro in a pragma: an argument that was a macro is dropped."""
        names = {token.text for token in self.tokens if token.kind == "name"} | _PRAGMA_WORDS
        for token in self.tokens:
            if token.kind != "pragma" or "unroll" not in token.text:
                continue
            head, word, argument = token.text.partition("unroll")
            if any(name not in names for name in re.findall(r"[A-Za-z_]\w*", argument)):
                token.text = head + word


def _without_coherence(tokens: list[Token]) -> list[Token]:
    """`coherent(device) device uint*`: every access goes to memory, as with `volatile`.

    Classes have no volatile members in C++, so on vectors and structures the word is dropped.
    """
    kept: list[Token] = []
    index = 0
    while index < len(tokens):
        end = _coherence_end(tokens, index)
        if end is None:
            kept.append(tokens[index])
        elif _names_scalar(tokens, end):
            word = tokens[index]
            kept.append(Token("name", "volatile", word.space, word.line, word.ordinal))
        index = end or index + 1
    return kept


def _coherence_end(tokens: list[Token], index: int) -> int | None:
    """The index behind `coherent` or `coherent(scope)`, if that is what starts here."""
    if tokens[index].text != "coherent":
        return None
    scope = [token.text for token in tokens[index + 1 : index + 4]]
    end = index + 4 if scope[::2] == ["(", ")"] else index + 1
    around = (_beyond(tokens, index - 1, _QUALIFIERS, -1), _beyond(tokens, end, _QUALIFIERS))
    return end if any(text in SPACES for text in around) else None


def _names_scalar(tokens: list[Token], index: int) -> bool:
    return _beyond(tokens, index, SPACES | _QUALIFIERS) in SCALARS


def _beyond(tokens: list[Token], index: int, words: frozenset[str], step: int = 1) -> str:
    """The first text from index on, in steps, that is none of `words`."""
    while 0 <= index < len(tokens) and tokens[index].text in words:
        index += step
    return tokens[index].text if 0 <= index < len(tokens) else ""


_QUALIFIERS = frozenset({"const", "volatile"})


_PRAGMA_WORDS = frozenset({"enable", "disable", "full", "u", "U"})


def _unix_lines(text: str) -> str:
    return text.replace("\r\n", "\n")


def _kept_pragma(text: str) -> str | None:
    """The pragma for clang, or None when it says nothing here."""
    if _KEPT_PRAGMA.match(text):
        return text
    metal = _METAL_MATH.match(text)
    if metal is None:
        return None
    if metal[1] == "contract":
        return f"clang fp contract({metal[2]})"
    relaxed = "off" if metal[2] == "safe" else "on"
    return f"clang fp reassociate({relaxed}) reciprocal({relaxed})"


def _unescape(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name)
