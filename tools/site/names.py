"""The API reference: every public name with its signature and its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = (
    "anymetal",
    "anymetal.ops",
    "anymetal.ops.modules",
    "anymetal.linalg",
    "anymetal.optim",
    "anymetal.overrides",
    "anymetal.patch",
    "anymetal.weights",
    "anymetal.testing",
    "anymetal.profiler",
    "anymetal.device",
    "anymetal.extension",
    "anymetal.mlx",
    "anymetal.hub",
    "anymetal.errors",
)


@dataclass(frozen=True)
class Name:
    """A public name; `text` is its docstring, "" where it has none of its own."""

    module: str
    name: str
    kind: str
    signature: str
    text: str

    @property
    def qualified(self) -> str:
        return f"{self.module}.{self.name}"


def public_names() -> list[Name]:
    """What the modules list as public, and the public members of the classes among it."""
    return [name for module in MODULES for name in _of_module(import_module(module))]


def _of_module(module: ModuleType) -> Iterator[Name]:
    for name in sorted(_listed(module), key=str.lower):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            continue  # it has a page of its own
        yield _described(module.__name__, name, value)
        if inspect.isclass(value):
            for member, of_class in sorted(vars(value).items()):
                if not member.startswith("_") and _is_member(of_class):
                    yield _described(module.__name__, f"{name}.{member}", of_class)


def _listed(module: ModuleType) -> list[str]:
    """`__all__`, or what a module without one defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = (n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__)
    return [name for name in own if not name.startswith("_")]


def _is_member(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _described(module: str, name: str, value: Any) -> Name:
    return Name(module, name, _kind(value), _signature(value), _text(value))


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "class"
    if isinstance(value, property):
        return "property"
    return (
        "function" if callable(value) or isinstance(value, classmethod | staticmethod) else "data"
    )


def _signature(value: Any) -> str:
    if _kind(value) == "data":
        return f" = {value!r}"
    if isinstance(value, property):
        return ""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    try:
        found = str(inspect.signature(getattr(value, "room", value)))
    except (TypeError, ValueError):  # an exception class of C has none
        return ""
    return found.replace("'", "") if len(found) < 2000 else "(...)"


def _text(value: Any) -> str:
    """The docstring that was written for this name, not one that its type brings along."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if _kind(value) == "data":
        return "A value."
    if isinstance(value, property):
        return inspect.getdoc(value.fget) or "" if value.fget else ""
    return inspect.getdoc(value) or ""


def pages() -> dict[str, str]:
    """A page of Markdown for each module, by its path in the site."""
    found = public_names()
    return {
        f"reference/api/{module}.md": _page(module, [n for n in found if n.module == module])
        for module in MODULES
    }


def index() -> str:
    """The list of modules with their first lines."""
    lines = ["# API\n", "| module | |", "|---|---|"]
    for module in MODULES:
        first = (inspect.getdoc(import_module(module)) or "").partition("\n")[0]
        lines.append(f"| [{module}]({module}.md) | {first} |")
    return "\n".join(lines) + "\n"


def _page(module: str, names: list[Name]) -> str:
    about = (inspect.getdoc(import_module(module)) or "").strip()
    parts = [f"# {module}", about]
    for name in names:
        level = "###" if "." in name.name else "##"
        parts.append(f"{level} `{name.name}`")
        if name.kind == "property":
            parts.append("*property*")
        else:
            parts.append(f"```python\n{_wrapped(name)}\n```")
        parts.append(name.text)
    return "\n\n".join(part for part in parts if part) + "\n"


def _wrapped(name: Name) -> str:
    """A signature, a parameter a line where it is long."""
    line = f"{name.name}{name.signature}"
    if len(line) <= 90 or name.kind == "data":
        return line[:400]
    depth, out = 0, ""
    for place, character in enumerate(line):
        depth += character in "([{"
        depth -= character in ")]}"
        if not depth and character == ")":
            return f"{out}\n{line[place:]}"
        out += character
        if depth == 1 and character in "(,":
            out += "\n   " if character == "," else "\n    "
    return out
