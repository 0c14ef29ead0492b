"""Pages of the repository, as the site has them: in the same folders, so that links still lead.

Programs of examples/ become pages. Languages that the site cannot colour are named by one that it
can, and a block that needs a Mac says so.
"""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
FOLDERS = ("docs", "skill", "examples")
LANGUAGES = {"output": "text", "metal": "cpp", "objc++": "objective-c++"}
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def stage(destination: Path) -> None:
    """Write every page and what it links to."""
    shutil.rmtree(destination, ignore_errors=True)
    pages = [ROOT / name for name in PAGES]
    pages += [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.md"))]
    for path in pages:
        _write(destination / path.relative_to(ROOT), _for_the_site(path.read_text()))
        _bring_along(path, destination)
    for path in sorted((ROOT / "examples").glob("*.py")):
        _write(destination / "examples" / f"{path.stem}.md", _program(path))
    for path in [*(ROOT / "docs").glob("*.svg"), *(ROOT / "docs").glob("*.css")]:
        shutil.copy(path, destination / "docs" / path.name)


def _bring_along(page: Path, destination: Path) -> None:
    """Files that a page links to and that are no pages."""
    for _, target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        if path.is_file() and path.suffix not in (".md", ".py"):
            place = destination / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


def _for_the_site(text: str) -> str:
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    text = re.sub(r"^<!-- mac -->$", "*This needs a Mac:*\n", text, flags=re.MULTILINE)
    text = re.sub(r"^<!-- shown: .*? -->\n", "\n", text, flags=re.MULTILINE)
    for language, known in LANGUAGES.items():
        text = re.sub(rf"^```{re.escape(language)}\b", f"```{known}", text, flags=re.MULTILINE)
    # A program of examples/ has a page of its own.
    return re.sub(r"(\]\((?:\.\./)*(?:examples/)?[\w]+)\.py\)", r"\1.md)", text)


def _program(path: Path) -> str:
    text = path.read_text()
    about = ast.get_docstring(ast.parse(text)) or ""
    return f"# {path.name}\n\n{about}\n\n```python\n{text}```\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
