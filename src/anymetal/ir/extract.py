"""Parts of a module as a module of their own: some functions and all that they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from anymetal.ir.module import Function, Module

_NAME = re.compile(r'@("[^"]*"|[-\w.$]+)')
_NODE = re.compile(r"![0-9]+")
_GROUP = re.compile(r"#\d+")


class Extract:
    """A module's text by names, so that little of a large module is looked at for each part."""

    def __init__(self, module: Module) -> None:
        self.functions = {function.name: function for function in module.functions}
        self.header: list[str] = []  # the machine, named types, comdats
        self._symbols: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._named: list[str] = []
        for line in module.lines:
            self._sort(line)

    def _sort(self, line: str) -> None:
        if line.startswith(("declare ", "@")):
            name = _NAME.search(line)
            assert name is not None, line
            self._symbols[name[1].strip('"')] = line
        elif line.startswith(("target ", "%", "$")):
            self.header.append(line)
        elif line.startswith("attributes "):
            self._groups[line.split()[1]] = line
        elif _NODE.match(line):
            self._nodes[line.split(" ", 1)[0]] = line
        elif line.startswith(("!llvm.dbg.cu", "!llvm.module.flags")):
            self._named.append(line)

    def taken(self, names: Iterable[str], written: Callable[[Function], str] = str) -> str:
        """A module of these functions and of all that they need."""
        lines = [*self.header]
        waiting, seen = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name in seen or not (name in self.functions or name in self._symbols):
                continue
            seen.add(name)
            function = self.functions.get(name)
            text = self._symbols[name] if function is None else written(function)
            lines.append(text)
            waiting += [found.strip('"') for found in _NAME.findall(text)]
        lines += self._named
        lines += _closure("\n".join(lines), self._groups, _GROUP)
        lines += _closure("\n".join(lines), self._nodes, _NODE)
        return "\n".join(lines) + "\n"


def _closure(text: str, table: dict[str, str], mark: re.Pattern[str]) -> list[str]:
    """The rows that a text names, and those that these name."""
    waiting, found = set(mark.findall(text)), dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name in table and name not in found:
            found[name] = table[name]
            waiting |= set(mark.findall(table[name])) - found.keys()
    return list(found.values())
