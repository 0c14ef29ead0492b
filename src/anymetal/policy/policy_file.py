"""A TOML file of launch policies goes in, checked rows come out, or an error with its line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from anymetal.errors import PolicyError
from anymetal.launch.shape import group_size_fault
from anymetal.store.cache import digest_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERSION = 1
ANY = "*"
DTYPES = ("fp32", "fp16", "bf16", "int8", "uint8", "int16", "int32", "int64", "bool")
DEVICE_TYPES = ("cpu", "mps", "cuda")

_TABLES = ("version", "strategies", "shape_classes", "policy")
_KEYS = ("operator", "strategy", "group_size", "dtype", "shape_class", "device", "values")
_ALL_KEYS = (*_KEYS, "candidates")
_REQUIRED = ("operator", "strategy", "group_size")
# In a file of its own, or in a table of pyproject.toml.
_ROW = re.compile(r"^\s*\[\[\s*(?:[\w-]+\s*\.\s*)*policy\s*\]\]")
_HEADER = re.compile(r"^\s*\[")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FAMILY = re.compile(r"(cpu|mps|cuda)(-[a-z0-9_]+)?")


@dataclass(frozen=True)
class Row:
    """One way to launch, for every question that its fields match."""

    operators: frozenset[str]
    strategies: frozenset[str]
    group_size: int
    dtypes: frozenset[str]
    shape_class: str
    device: str
    values: Mapping[str, int]
    candidates: Mapping[str, tuple[int, ...]]
    place: str  # file and line, for messages and tables

    def exactness(
        self, operator: str, dtype: str, shape_class: str, families: tuple[str, ...], strategy: str
    ) -> int:
        """How much of a question the row names; -1 where it does not match."""
        named = operator in self.operators
        if not (named or ANY in self.operators) or strategy not in self.strategies:
            return -1
        if self.dtypes.isdisjoint((ANY, dtype)) or self.shape_class not in (ANY, shape_class):
            return -1
        if self.device not in (ANY, *families):
            return -1
        # The operator outweighs a device family, that a shape class, that a dtype.
        device = 0 if self.device == ANY else len(families) - families.index(self.device)
        return named * 16 + device * 4 + (self.shape_class != ANY) * 2 + (ANY not in self.dtypes)


@dataclass(frozen=True)
class Words:
    """The strategies (and whether they use collectives) and shape classes that rows may name."""

    strategies: Mapping[str, bool] = field(default_factory=dict)
    shape_classes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PolicyFile:
    """The rows of one file, in order."""

    path: Path
    digest: str
    words: Words
    rows: tuple[Row, ...]


def read_policies(path: Path, known: Words | None = None) -> PolicyFile:
    """Read and check one file; `known` are the words that it may use without declaring them."""
    try:
        text = path.read_text()
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_policies(text, path, known or Words())


def parse_policies(text: str, path: Path, known: Words) -> PolicyFile:
    """The same for a text; `path` is only named."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{path}: not valid TOML: {error}") from None
    return _checked(data, text, _Reader(path, text.splitlines()), known)


def parse_table(table: Mapping[str, Any], name: str, path: Path, known: Words) -> PolicyFile:
    """The same for a table of this name in a file that has others; the version may be left out."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    heading = re.compile(rf"^\s*\[+\s*{re.escape(name)}\b")
    first = next((number for number, line in enumerate(lines) if heading.match(line)), 0)
    return _checked({"version": VERSION, **table}, text, _Reader(path, lines, first), known)


def _checked(data: Mapping[str, Any], text: str, reader: _Reader, known: Words) -> PolicyFile:
    reader.check_tables(data)
    words = Words(
        {**known.strategies, **reader.strategies(data.get("strategies", {}))},
        known.shape_classes | reader.shape_classes(data.get("shape_classes", {})),
    )
    rows = tuple(reader.row(i, raw, words) for i, raw in enumerate(data.get("policy", [])))
    return PolicyFile(reader.path, digest_of(text), words, rows)


class _Reader:
    """Checks the parts of one file. TOML readers keep no lines, so they are found in the text."""

    def __init__(self, path: Path, lines: list[str], first: int = 0) -> None:
        self.path = path
        self._lines = lines
        self._first = first  # where the policies begin
        rows = ((i, line) for i, line in enumerate(lines) if i >= first)
        self._row_lines = [i for i, line in rows if _ROW.match(line)]

    def check_tables(self, data: Mapping[str, Any]) -> None:
        for name in data:
            if name not in _TABLES:
                self._fail(self._find(name), f"unknown key '{name}'; known: {', '.join(_TABLES)}")
        version = data.get("version")
        if version != VERSION:
            self._fail(
                self._find("version"), f"version is {version!r}; this release reads {VERSION}"
            )
        if not isinstance(data.get("policy", []), list):
            self._fail(self._find("policy"), "rows are written as [[policy]]")

    def strategies(self, table: Mapping[str, Any]) -> dict[str, bool]:
        result = {}
        for name, raw in table.items():
            line = self._find(name)
            fine = isinstance(raw, dict) and set(raw) == {"collectives", "meaning"}
            if not fine or not isinstance(raw["collectives"], bool):
                self._fail(
                    line, f"strategy '{name}' needs collectives = true or false, and meaning"
                )
            self._check_name(line, "strategy", name)
            result[name] = raw["collectives"]
        return result

    def shape_classes(self, table: Mapping[str, Any]) -> frozenset[str]:
        for name, meaning in table.items():
            self._check_name(self._find(name), "shape class", name)
            if not isinstance(meaning, str):
                self._fail(self._find(name), f"shape class '{name}' needs its meaning, a string")
        return frozenset(table)

    def row(self, number: int, raw: Mapping[str, Any], words: Words) -> Row:
        start = self._row_lines[number] if number < len(self._row_lines) else self._first
        for key in raw:
            if key not in _ALL_KEYS:
                self._fail(
                    self._find(key, start), f"unknown key '{key}'; known: {', '.join(_ALL_KEYS)}"
                )
        for key in _REQUIRED:
            if key not in raw:
                self._fail(start, f"the row has no '{key}'")
        strategies = self._names(start, "strategy", raw["strategy"])
        for name in sorted(strategies):
            if name not in words.strategies:
                self._unknown(start, "strategy", name, words.strategies)
        collectives = any(words.strategies[name] for name in strategies)
        shape_class = raw.get("shape_class", ANY)
        if shape_class != ANY and shape_class not in words.shape_classes:
            self._unknown(start, "shape_class", shape_class, words.shape_classes)
        dtypes = self._names(start, "dtype", raw.get("dtype", ANY))
        for name in sorted(dtypes):
            if name not in (ANY, *DTYPES):
                self._unknown(start, "dtype", name, DTYPES)
        device = raw.get("device", ANY)
        if device != ANY and not (isinstance(device, str) and _FAMILY.fullmatch(device)):
            self._unknown(start, "device", device, DEVICE_TYPES)
        values = self._values(start, raw.get("values", {}))
        return Row(
            self._names(start, "operator", raw["operator"]),
            strategies,
            self._group_size(self._find("group_size", start), raw["group_size"], collectives),
            dtypes,
            shape_class,
            device,
            values,
            self._candidates(start, raw.get("candidates", {}), values, collectives),
            f"{self.path.name}:{start + 1}",
        )

    def _names(self, start: int, key: str, raw: Any) -> frozenset[str]:
        names = [raw] if isinstance(raw, str) else raw
        line = self._find(key, start)
        if not isinstance(names, list) or not names:
            self._fail(line, f"'{key}' is {raw!r}; expected a name or a list of names")
        for name in names:
            if name != ANY:
                self._check_name(line, key, name)
        return frozenset(names)

    def _group_size(self, line: int, size: Any, collectives: bool) -> int:
        fault = group_size_fault(size, whole_simdgroups=collectives)
        if type(size) is not int or fault is not None:
            self._fail(line, fault or f"group_size is {size!r}; expected an int")
        return size

    def _values(self, start: int, raw: Any) -> Mapping[str, int]:
        line = self._find("values", start)
        if not isinstance(raw, dict):
            self._fail(line, f"values is {raw!r}; expected a table of whole numbers")
        for name, value in raw.items():
            self._check_name(line, "value", name)
            if type(value) is not int or value < 0:
                self._fail(line, f"value '{name}' is {value!r}; expected a whole number from 0 up")
        return dict(raw)

    def _candidates(
        self, start: int, raw: Any, values: Mapping[str, int], collectives: bool
    ) -> Mapping[str, tuple[int, ...]]:
        line = self._find("candidates", start)
        if not isinstance(raw, dict):
            self._fail(line, f"candidates is {raw!r}; expected a table of lists")
        for name, options in raw.items():
            if name != "group_size" and name not in values:
                self._fail(line, f"candidates for '{name}', which is not among the row's values")
            if not isinstance(options, list) or not options:
                self._fail(line, f"candidates for '{name}' are {options!r}; expected a list")
            for option in options:
                if name == "group_size":
                    self._group_size(line, option, collectives)
                else:
                    self._values(start, {name: option})
        return {name: tuple(options) for name, options in raw.items()}

    def _check_name(self, line: int, kind: str, name: Any) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            self._fail(line, f"{kind} {name!r} is no name: lower case letters, digits, _")

    def _unknown(self, start: int, key: str, got: Any, known: Any) -> NoReturn:
        self._fail(self._find(key, start), f"unknown {key} {got!r}; known: {', '.join(known)}")

    def _find(self, key: str, start: int | None = None) -> int:
        """The line of a key in the table that begins at `start`, or that line itself."""
        start = self._first if start is None else start
        pattern = re.compile(rf"""^\s*(?:\[+\s*)?["']?{re.escape(key)}["']?\s*[=\].]""")
        for i in range(start, len(self._lines)):
            if pattern.match(self._lines[i]):
                return i
            if start in self._row_lines and i > start and _HEADER.match(self._lines[i]):
                break
        return start

    def _fail(self, line: int, message: str) -> NoReturn:
        raise PolicyError(f"{self.path}:{line + 1}: {message}")
