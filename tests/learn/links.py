"""The links inside of our pages: files, and headings in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)


def links_of(path: Path) -> Iterator[tuple[Path, str]]:
    """The file and the heading (or nothing) that each link of a page names."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", path.read_text()))
    for target, anchor in LINK.findall(text):
        yield (path.parent / target if target else path), anchor


def anchors(path: Path) -> set[str]:
    """What headings of a page are called in links: as GitHub and mkdocs both make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", path.read_text()), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in plain}
