"""File names as machines want them: relative to the repository, with forward slashes."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from anymetal.checker.finding import Launched
from anymetal.checker.inline_source import UNNAMED
from anymetal.nouns import Position


def repository_path(file: str) -> str:
    """A file inside the workspace or the working directory without that prefix."""
    path = Path(file)
    if not path.is_absolute():
        return path.as_posix()
    for root in (os.environ.get("GITHUB_WORKSPACE"), Path.cwd()):
        if root and path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.as_posix()


def shown_path(file: str) -> str:
    """A file as people read it: relative where it lies below the working directory."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def machine_position(position: Position | None, launch: Launched | None) -> Position | None:
    """A place in a file. For a text that has none, and whose lines stand in none, it is the call
    that compiled it."""
    unnamed = position is None or position.file == UNNAMED
    return launch.source if unnamed and launch and launch.source else position


def uri_reference(file: str) -> str:
    """A file as a URI: relative where it can be; names such as <shader> are escaped."""
    path = repository_path(file)
    return Path(path).as_uri() if Path(path).is_absolute() else quote(path)
