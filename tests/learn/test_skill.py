"""The skill is whole: its manifest, its front matter, its routes, and the copy for an assistant."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tests.learn.blocks import ROOT
from tests.learn.links import links_of
from tools.skill import copy, files

SKILL = ROOT / "skill"
REFERENCES = sorted((SKILL / "references").glob("*.md"))


def test_manifest_lists_every_file() -> None:
    assert (SKILL / "manifest.txt").read_text().splitlines() == files()  # tools/skill.py --manifest


def test_front_matter() -> None:
    _, front, _ = (SKILL / "SKILL.md").read_text().split("---\n", 2)
    found = yaml.safe_load(front)
    assert re.fullmatch(r"[a-z-]{1,64}", found["name"])
    assert 100 < len(found["description"]) <= 1024
    assert {"allowed-tools", "argument-hint"} <= set(found)


def test_every_reference_and_example_has_a_route() -> None:
    text = (SKILL / "SKILL.md").read_text()
    for path in REFERENCES:
        assert f"(references/{path.name})" in text, path.name
    for path in (ROOT / "examples").glob("*.py"):
        assert f"(../examples/{path.name})" in text, path.name


def test_every_reference_has_code() -> None:
    for path in REFERENCES:
        assert re.search(r"^```(python|metal|sh)", path.read_text(), re.MULTILINE), path.name


def test_copy_is_complete_in_itself(tmp_path: Path) -> None:
    copy(tmp_path / "metal-kernels")
    pages = sorted((tmp_path / "metal-kernels").rglob("*.md"))
    assert len(pages) > len(REFERENCES)
    for page in pages:
        for target, _ in links_of(page):
            assert target.resolve().is_relative_to(tmp_path) and target.exists(), (page, target)
