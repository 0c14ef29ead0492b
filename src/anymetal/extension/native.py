"""The build on a Mac, by the project's own description of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from anymetal.extension.compiling import ExtensionError
from anymetal.extension.project import Project


def native_library(project: Project) -> Path:
    """The library that `setup.py build_ext --inplace` makes, in the package's folder."""
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=project.folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExtensionError(f"{project.name} does not build:\n{done.stderr[-4000:]}")
    return built_library(project)


def built_library(project: Project) -> Path:
    found = sorted((project.folder / project.name).glob("_C*.so"))
    if not found:
        raise ExtensionError(f"{project.folder / project.name} has no library _C*.so")
    return found[-1]
