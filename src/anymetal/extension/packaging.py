"""Packages of an extension: a wheel on a Mac, elsewhere a source distribution that builds on one,
or the layout that Hugging Face's kernel-builder takes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from anymetal.extension.compiling import ExtensionError
from anymetal.extension.project import Project

# Not part of a package: what builds leave behind, and what a version control system keeps.
_LEFT_OUT = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*", "_C*.so")


def package(project: Project, out: Path) -> list[Path]:
    """A wheel with the compiled library and the kernels' sources, or a source distribution."""
    _check_is_project(project)
    out.mkdir(parents=True, exist_ok=True)
    before = set(out.iterdir())
    with tempfile.TemporaryDirectory(prefix="anymetal-package-") as place:
        copy = Path(place) / project.name
        shutil.copytree(project.folder, copy, ignore=_LEFT_OUT)
        if sys.platform == "darwin":
            command = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
            command += ["-w", str(out.resolve()), "."]
        else:
            command = ["setup.py", "--quiet", "sdist", "--dist-dir", str(out.resolve())]
        _run([sys.executable, *command], copy)
    return sorted(set(out.iterdir()) - before) or sorted(out.glob(f"{project.name}-*"))


def hugging_face(project: Project, out: Path) -> list[Path]:
    """`build.toml`, the sources and `torch-ext/` in a folder, as kernel-builder reads them.

    Its operators get a name of their own for each build, so that versions can live side by side:
    the registration is rewritten to take it, and Python asks `_ops` for it.
    """
    _check_is_project(project)
    sources = f"{project.name}_metal"
    (out / sources).mkdir(parents=True, exist_ok=True)
    python = out / "torch-ext" / project.name
    python.mkdir(parents=True, exist_ok=True)
    project.write_kernels(out / sources)
    for path in [*project.sources, *sorted(project.folder.glob("csrc/*.h"))]:
        (out / sources / path.name).write_text(_registered(path.read_text(), project.name))
    for path in project.kernels:
        shutil.copy(path, out / sources)
    for path in sorted((project.folder / project.name).glob("*.py")):
        if path.name != "_library.py":
            (python / path.name).write_text(_renamed(path.read_text(), project.name))
    (out / "torch-ext" / "torch_binding.cpp").write_text(_BINDING)
    (out / "torch-ext" / "torch_binding.h").write_text("#pragma once\n")
    names = sorted(path.name for path in (out / sources).iterdir())
    (out / "build.toml").write_text(_build_file(project.name, sources, names))
    return sorted(path for path in out.rglob("*") if path.is_file())


_BINDING = """// The operators are registered where they are defined; this makes the module.
#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""


def _build_file(name: str, folder: str, files: list[str]) -> str:
    listed = ",\n".join(f'  "{folder}/{file}"' for file in files)
    return (
        f'[general]\nname = "{name}"\nversion = 1\nbackends = ["metal"]\n\n'
        '[torch]\nsrc = [\n  "torch-ext/torch_binding.cpp",\n  "torch-ext/torch_binding.h",\n]\n\n'
        f'[kernel.{folder}]\nbackend = "metal"\ndepends = ["torch"]\n'
        f'include = ["{folder}"]\nsrc = [\n{listed},\n]\n'
    )


def _registered(text: str, name: str) -> str:
    """TORCH_LIBRARY under the name that the builder gives, where a file registers operators."""
    found = re.sub(
        rf"TORCH_LIBRARY(_IMPL)?\({name}\b", r"TORCH_LIBRARY\1_EXPAND(TORCH_EXTENSION_NAME", text
    )
    if found == text:
        return text
    return found.replace(
        "#include <torch/library.h>\n", '#include <torch/library.h>\n\n#include "registration.h"\n'
    )


def _renamed(text: str, name: str) -> str:
    """Python that asks for the operators' namespace instead of knowing it."""
    text = text.replace(
        f"from {name}._library import load\n\nload()\n\n_ops: Any = torch.ops.{name}\n",
        f"from {name}._ops import add_op_namespace_prefix\nfrom {name}._ops import ops as _ops\n",
    )
    text = re.sub(rf'"{name}::(\w+)"', r'add_op_namespace_prefix("\1")', text)
    return re.sub(rf"\bfrom {name}\._ops import", "from ._ops import", text)


def _check_is_project(project: Project) -> None:
    if not (project.folder / "pyproject.toml").is_file():
        raise ExtensionError(f"{project.folder} has no pyproject.toml: a package needs one")


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExtensionError(f"it cannot be packaged:\n{(done.stderr or done.stdout)[-3000:]}")
