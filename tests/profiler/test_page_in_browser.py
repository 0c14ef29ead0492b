"""The pages of profile and health in headless Chromium: whole, readable, in light and in dark.

With ANYMETAL_TEST_ALL=1 (`make thorough`), where there is a Chromium; ANYMETAL_TEST_BROWSER names
another one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

import anymetal
from anymetal.evidence import health_page, svg
from anymetal.evidence.health import Health
from anymetal.evidence.judge import Judgement
from anymetal.evidence.machine import describe
from anymetal.profiler.page import page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "evidence"))
from browser import browser, measured  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not os.environ.get("ANYMETAL_TEST_ALL"), reason="make thorough has it"),
    pytest.mark.skipif(browser() is None, reason="no Chromium: apt install chromium"),
]


def profile_page() -> str:
    library = anymetal.compile_shader((HERE / "profiled.metal").read_text())
    x, y = torch.randn(16 * 1024), torch.empty(1024)
    with anymetal.profile() as found:
        library.tiled(x, y, threads=1024, group_size=64)
        library.strided(x, y, threads=1024, group_size=64)
    return page(found.kernels)


def sample_health_page() -> str:
    names = ["softmax", "scaled_dot_product_attention_backward", "rms_norm"]
    found = []
    for number, name in enumerate(names):
        health = Health(name)
        for dtype in ("fp32", "fp16", "bf16"):
            error = 1e-7 * (number + 1) * 3**number
            health.results[dtype] = [Judgement(error, 1e-7, 5e-7, 6e-8)]
            health.cases = 3
        found.append(health)
    return health_page.page(found, describe(torch.device("cpu")), 12.0)


def plot_page() -> str:
    series = {
        f"softmax fp{bits} forward": [(10.0**k, 0.3 * k) for k in range(1, 8)] for bits in (16, 32)
    }
    plot = svg.lines("time over torch's", series, across="elements", up="our time / torch's")
    style = "<style>svg { max-width: 100%; height: auto; }</style>"
    return f"<!doctype html><html>{style}<p>plot</p>{plot}</html>"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("make", [profile_page, sample_health_page, plot_page])
def test_page_is_whole_and_readable(make: object, dark: bool, tmp_path: Path) -> None:
    assert callable(make)
    text = make()
    for width in (1200, 700):
        seen = measured(text, tmp_path, dark=dark, width=width)
        assert seen["dark"] is dark
        assert seen["scroll"] <= seen["width"], "nothing is cut off to the right"
        assert seen["contrast"] > 0.3, seen["faintest"]
        assert seen["label_contrast"] > 0.2
        assert not seen["outside"], seen["outside"]
        assert not seen["overlapping"], seen["overlapping"]
        assert seen["labels"] > 5
