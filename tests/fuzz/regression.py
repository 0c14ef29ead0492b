"""Kernels that failed once, kept beside this file: the tree as JSON, and the MSL to read.

The MSL is printed from the tree. It is no .metal file, so that formatters leave it as it is.
"""

from __future__ import annotations

from pathlib import Path

from . import tree
from .printer import source
from .tree import Kernel

FOLDER = Path(__file__).parent / "regressions"


def text_of(kernel: Kernel, name: str) -> str:
    """The MSL with its launch: what a person needs to run it."""
    grid, group = (", ".join(map(str, shape)) for shape in (kernel.grid, kernel.group))
    return f"// threads=({grid}), group_size=({group}), seed {kernel.seed}\n" + source(
        [(name, kernel)]
    )


def keep(kernel: Kernel, name: str, folder: Path = FOLDER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(tree.to_json(kernel))
    path = folder / f"{name}.msl"
    path.write_text(text_of(kernel, name))
    return path


def kept(folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob("*.json"))


def load(path: Path) -> Kernel:
    return tree.from_json(path.read_text())
