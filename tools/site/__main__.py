"""`python -m tools.site`: write the site's sources to build/pages, and with --build the site."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tools.site import commands, names, operators
from tools.site.stage import ROOT, stage

BUILD = ROOT / "build"
PAGES = BUILD / "pages"


def write() -> int:
    """Write all sources and the configuration; returns how many pages are generated."""
    stage(PAGES)
    generated = {**names.pages(), **operators.pages(), **commands.pages()}
    generated["reference/api/index.md"] = names.index()
    for name, text in generated.items():
        path = PAGES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    found = {
        "INHERIT": "../mkdocs.yml",
        "docs_dir": "pages",
        "site_dir": "site",
        "nav": _completed(navigation, sorted(generated)),
    }
    (BUILD / "mkdocs.yml").write_text(yaml.safe_dump(found, sort_keys=False))
    return len(generated)


def _completed(navigation: Any, generated: list[str]) -> Any:
    """The navigation with the generated pages behind the index of each kind."""
    if isinstance(navigation, list):
        return [_completed(entry, generated) for entry in navigation]
    if isinstance(navigation, dict):
        return {title: _completed(entry, generated) for title, entry in navigation.items()}
    folder = navigation.removesuffix("index.md")
    if not navigation.startswith("reference/"):
        return navigation
    return [
        navigation,
        *(name for name in generated if name.startswith(folder) and name != navigation),
    ]


if __name__ == "__main__":
    count = write()
    pages = len(list(PAGES.rglob("*.md")))
    print(f"{pages} pages, {count} of them generated, {len(names.public_names())} public names")
    if "--build" in sys.argv[1:]:
        mkdocs = Path(sys.executable).parent / "mkdocs"
        configuration = str(BUILD / "mkdocs.yml")
        command = [mkdocs, "build", "--strict", "--quiet", "--config-file", configuration]
        sys.exit(subprocess.call(command))
