"""Copy the skill to a folder of an assistant: `python tools/skill.py DESTINATION`.

References link to examples and documents of this repository; the copy has those too, and its links
lead there.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SKILL = ROOT / "skill"


def files() -> list[str]:
    """Every file of the skill, as the manifest lists them: relative to the repository, sorted."""
    found = [SKILL / "SKILL.md", SKILL / "manifest.txt", *(SKILL / "references").glob("*.md")]
    found += [ROOT / "examples" / "README.md", *(ROOT / "examples").glob("*.py")]
    extension = (ROOT / "examples" / "extension").rglob("*")
    found += [path for path in extension if path.suffix in (".py", ".mm", ".h", ".metal", ".toml")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def copy(destination: Path) -> None:
    """Write the skill to a folder; what the skill had there before is replaced."""
    destination.mkdir(parents=True, exist_ok=True)
    for name in files():
        # What is in skill/ moves up to the root of the copy.
        place = destination / name.removeprefix("skill/")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text()
        place.write_text(_with_links(text, name))
    for path in sorted((ROOT / "docs").glob("*.md")):
        place = destination / "docs" / path.name
        place.parent.mkdir(exist_ok=True)
        place.write_text(_with_links(path.read_text(), f"docs/{path.name}"))


def _with_links(text: str, name: str) -> str:
    """Links out of skill/ are one folder shorter; what is not copied is named, not linked."""
    if name.startswith("skill/"):
        text = re.sub(r"\]\(\.\./((?:\.\./)?(?:examples|docs)/)", r"](\1", text)
    if name.startswith("docs/"):
        text = re.sub(r"\]\(\.\./skill/", "](../", text)
    copied = r"(?:\.\./)?(?:examples|docs|references)/|\.\./SKILL\.md|[\w-]+\.(?:md|py|txt)|#"
    return re.sub(rf"\[([^\]]+)\]\((?!https?:|{copied})[^)]*\)", r"\1", text)


if __name__ == "__main__":
    if sys.argv[1:] == ["--manifest"]:
        (SKILL / "manifest.txt").write_text("".join(f"{name}\n" for name in files()))
    elif len(sys.argv) == 2:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        copy(Path(sys.argv[1]))
    else:
        sys.exit(__doc__)
