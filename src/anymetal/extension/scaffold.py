"""A name and a template go in; a project that works as it stands comes out."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
_COMMON = TEMPLATES / "common"
_SEQUENCE = "from collections.abc import Sequence\n"


def names() -> list[str]:
    """The templates, as the command calls them."""
    folders = (path.name for path in TEMPLATES.iterdir() if path.is_dir() and path != _COMMON)
    return sorted(name.replace("_", "-") for name in folders)


def shared_files(name: str) -> dict[str, str]:
    """The files that are the same in every project, by their place in it."""
    places = {
        "csrc/metal.h": "csrc/metal.h",
        "embed_kernels.py": "embed_kernels.py.in",
        "setup.py": "setup.py.in",
        f"{name}/_library.py": "_library.py.in",
    }
    return {place: _rendered(_COMMON / source, name) for place, source in places.items()}


def project_files(name: str, template: str) -> dict[str, str]:
    """All files of a project, by their place in it."""
    own = TEMPLATES / template.replace("-", "_")
    return {
        **shared_files(name),
        "pyproject.toml": _rendered(_COMMON / "pyproject.toml.in", name),
        "MANIFEST.in": _rendered(_COMMON / "MANIFEST.in.in", name),
        "README.md": _rendered(_COMMON / "README.md.in", name),
        ".gitignore": _rendered(_COMMON / "gitignore.in", name),
        ".github/workflows/test.yml": _rendered(_COMMON / "github/ci.yml.in", name),
        f"{name}/__init__.py": _joined(_COMMON / "head.py.in", own / "functions.py.in", name),
        f"{name}/kernels/{name}.metal": _rendered(own / "kernels.metal.in", name),
        f"csrc/{name}.mm": _joined(_COMMON / "head.mm.in", own / "operators.mm.in", name),
        f"tests/test_{name}.py": _joined(_COMMON / "head_test.py.in", own / "tests.py.in", name),
    }


def write(name: str, template: str, folder: Path) -> list[str]:
    """Write a project into a folder that is new or empty; returns its files."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name of a package: expected small letters, digits and _")
    if template not in names():
        raise ValueError(f"no template {template!r}: there are {', '.join(names())}")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is there already, and not empty")
    files = project_files(name, template)
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(files)


def _joined(head: Path, body: Path, name: str) -> str:
    """The head has all that bodies import; what this one does not use is left out."""
    text = _rendered(head, name) + _rendered(body, name)
    return text if "Sequence[" in text else text.replace(_SEQUENCE, "")


def _rendered(path: Path, name: str) -> str:
    return path.read_text(encoding="utf-8").replace("{{name}}", name)
