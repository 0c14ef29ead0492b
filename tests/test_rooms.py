"""Imports go one way: a room may use the rooms below it and none above."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "anymetal"
# Highest first. A room may import itself and what stands to its right.
ORDER = (
    "__main__",
    "pytest_plugin",
    "cli",
    "testing",
    "profiler",
    "evidence",
    "patch",
    "overrides",
    "weights",
    "optim",
    "linalg",
    "ops",
    "policy",
    "mlx",
    "hub",
    "extension",
    "device",
    "launch",
    "checker",
    "engines",
    "passes",
    "air",
    "msl",
    "ir",
    "store",
    "machine",
)
FOUNDATION = ("nouns", "errors", "settings", "project")


def room_of(module: str) -> str | None:
    """`anymetal.msl.prepare` is in the room `msl`; modules of other packages are in none."""
    parts = module.split(".")
    if parts[0] != "anymetal":
        return None
    return parts[1] if len(parts) > 1 else "anymetal"


def imported(tree: ast.AST, module: str) -> Iterator[str]:
    """Every module that is imported, wherever and however, relative ones made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: -node.level]
                base = ".".join([*parent, *([base] if base else [])])
            # `from anymetal import msl` names the room in the list, not in the module.
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and names_module(node.value):
            yield node.value


def names_module(value: object) -> bool:
    """Whether a string is a module of ours, as `import_module` takes it; loggers have others."""
    if not isinstance(value, str) or not re.fullmatch(r"anymetal(\.\w+)+", value):
        return False
    place = PACKAGE.parent.joinpath(*value.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def upward(text: str, module: str) -> list[str]:
    """The imports of this module that go up."""
    room = room_of(module)
    if room == "__init__":  # the public names may come from anywhere
        return []
    allowed = {room, *FOUNDATION}
    if room in FOUNDATION:
        allowed |= set() if room != "nouns" else {"msl"}  # for a type in an annotation only
    elif room in ORDER:
        allowed |= set(ORDER[ORDER.index(room) :])
    return [name for name in imported(ast.parse(text), module) if not _fine(name, room, allowed)]


def _fine(name: str, room: str | None, allowed: set[str | None]) -> bool:
    target = room_of(name)
    if target == "anymetal" or target is None:
        return target is None
    # The command prints the version, which the package itself holds.
    return target in allowed or (room == "cli" and target == "__version__")


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts)


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: module_name(path))
def test_module_imports_only_rooms_below(path: Path) -> None:
    assert upward(path.read_text(), module_name(path)) == []


def test_every_room_has_its_place_in_the_order() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", *FOUNDATION}
    assert folders | files == set(ORDER)


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("from anymetal.launch.bind import Binder", "anymetal.msl.prepare"),
        ("from anymetal import launch", "anymetal.engines.cpu.jit"),
        ("import anymetal.cli", "anymetal.launch.shader"),
        ("def f():\n    from anymetal.engines import choose", "anymetal.passes.lower.loop"),
        ("from ..launch import bind", "anymetal.msl.prepare"),
        ("from anymetal.msl import cache", "anymetal.settings"),
        ("from anymetal.device.enabling import is_enabled", "anymetal.launch.bind"),
        ('import_module("anymetal.launch.virtual")', "anymetal.msl.prepare"),
        ('_PROVIDER = "anymetal.launch.virtual"', "anymetal.engines.cpu.jit"),
    ],
)
def test_upward_import_is_found(text: str, module: str) -> None:
    assert upward(text, module)


def test_downward_import_is_fine() -> None:
    text = "import torch\nfrom anymetal.store.cache import Store\nfrom anymetal import msl"
    assert upward(text, "anymetal.engines.compiler") == []
