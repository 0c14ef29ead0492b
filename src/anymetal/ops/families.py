"""The folders of operators: a family is a package here whose `__all__` names what is public."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parent


def families() -> list[ModuleType]:
    """Every family, imported, which declares its operators."""
    found = [module.name for module in pkgutil.iter_modules([str(FOLDER)]) if module.ispkg]
    return [import_module(f"anymetal.ops.{name}") for name in found if name != "declare"]


def modules_of(family: ModuleType) -> ModuleType | None:
    """A family's `modules.py`, where it has one."""
    file = FOLDER / family.__name__.rpartition(".")[2] / "modules.py"
    return import_module(f"{family.__name__}.modules") if file.exists() else None


def public_names(module: ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in module.__all__}
