"""Every code block of every page runs as it stands there; links and lines of the pages are sound.

`tests/learn/blocks.py` says how a block is written, `tests/learn/running.py` how it is run.
`python -m tests.learn` counts blocks, links and public names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from parity import wheels
from tests.learn.blocks import ROOT, blocks_of, indented_code, pages
from tests.learn.figures import unnamed
from tests.learn.links import anchors, links_of
from tests.learn.running import Page

from anymetal.overrides.table import as_markdown

COLUMNS = 100


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


of_each_page = pytest.mark.parametrize("path", pages(), ids=place)


def readme(names: dict[str, Any]) -> None:
    assert torch.equal(names["out"], 3 * names["x"])
    report = str(names["report"])
    assert "error[out_of_bounds] in scale: read of 4 bytes outside device 'x'" in report
    assert names["y"].shape == (4, 64)


def training(names: dict[str, Any]) -> None:
    assert names["table"].grad.isfinite().all()
    assert names["error"] < 0.5 * names["y"].square().mean()


def weights(names: dict[str, Any]) -> None:
    assert (names["matrix"] == 0.5).all()


def overrides(names: dict[str, Any]) -> None:
    assert names["x"].grad.isfinite().all()
    # Made again: python -c "from anymetal import overrides as o; print(o.table.as_markdown())"
    assert as_markdown() in (ROOT / "docs" / "overrides.md").read_text()


def patching(names: dict[str, Any]) -> None:
    torch.testing.assert_close(names["after"], names["before"], rtol=1e-4, atol=1e-6)


# What must hold after the blocks of a page have run, beside what they assert themselves.
AFTERWARDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "README.md": readme,
    "docs/training.md": training,
    "docs/weights.md": weights,
    "docs/overrides.md": overrides,
    "docs/patching.md": patching,
}


def mlx_wheel(folder: Path) -> None:
    """The page's own wheel, which `make parity` and its sample fetch once."""
    try:
        wheel = wheels.fetch(wheels.MLX)
    except wheels.NoWheel as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no network: {error}")
    (folder / wheel.name).symlink_to(wheel)


# What the reader of a page has put into the folder before.
BEFOREHAND: dict[str, Callable[[Path], None]] = {"docs/metallibs.md": mlx_wheel}


@of_each_page
def test_code_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A reader's machine runs neither a workflow nor pytest.
    for variable in ("GITHUB_ACTIONS", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(variable, raising=False)
    torch.manual_seed(0)
    BEFOREHAND.get(place(path), lambda _: None)(tmp_path)
    page = Page(tmp_path)
    page.run(blocks_of(path.read_text(), path))
    AFTERWARDS.get(place(path), lambda _: None)(page.names)


@of_each_page
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in links_of(path):
        assert target.exists(), target
        if anchor:
            assert anchor in anchors(target), f"{target.name}#{anchor}"


@of_each_page
def test_files_are_used(path: Path) -> None:
    """A block with a title that no other block names was shown and never tried."""
    found = list(blocks_of(path.read_text(), path))
    for block in found:
        stem = Path(block.title).stem
        users = (other.text for other in found if other is not block)
        tried = block.language in ("metal", "yaml", "toml") or any(stem in text for text in users)
        assert not block.title or tried, f"{block}: {block.title}"


@of_each_page
def test_code_is_in_fences(path: Path) -> None:
    assert list(indented_code(path.read_text())) == []


@of_each_page
def test_figures_name_their_command(path: Path) -> None:
    assert unnamed(path) == []


@of_each_page
def test_lines_fit(path: Path) -> None:
    """Rows of tables are exempt: Markdown cannot break them."""
    lines = path.read_text().splitlines()
    long = [line for line in lines if len(line) > COLUMNS and not line.startswith("|")]
    assert long == []
