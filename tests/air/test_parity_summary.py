"""Figures of the judge that outlast its results (parity/summary.py)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import summary

ROWS = [
    {"kernel": "a", "family": "unary", "results": [["simdgroup", "equal"]]},
    {"kernel": "b", "family": "unary", "results": [["simdgroup", "NaN signs"]]},
    {"kernel": "c", "family": "gemm", "results": [["simdgroup", "engine: cannot run on the"]]},
    {"kernel": "d", "family": "gemm", "results": [["simdgroup", "3 elements differ, first x[0]"]]},
    {"kernel": "e", "family": "quad", "results": [["simdgroup", "undefined: it reads: outside"]]},
]


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("equal", "equal"),
        ("NaN signs", "NaN signs"),
        ("equal, nothing written", "nothing written"),
        ("engine: kernel 'x' cannot run on the simdgroup engine", "other engine"),
        ("undefined: it reads outside", "undefined"),
        ("not run: out of memory", "not run"),
        ("stray writes differ", "differ"),
    ],
)
def test_words_have_a_column(word: str, kind: str) -> None:
    assert summary.kind_of(word) == kind
    assert kind in summary.KINDS


def test_kernels_are_counted() -> None:
    (found,) = summary.summed_up(ROWS, "2026-11-16").values()
    assert found.words == Counter(dict.fromkeys(("equal", "NaN signs", "undefined"), 1)) + Counter(
        {"other engine": 1, "differ": 1}
    )
    assert found.templates == {"unary": 2, "gemm": 2, "quad": 1}
    assert found.signs == {"unary": 1}
    assert found.undefined == {"quad: it reads: outside": 1}
    assert found.other_engine == ["c"]
    assert found.bad == [["d", "3 elements differ, first x[0]"]]
    assert found.compared == 3


def test_figures_of_the_other_engine_stay(tmp_path: Path) -> None:
    place = tmp_path / "summary.json"
    assert summary.kept(place) == {}
    old = {"coroutine": summary.Summary("2026-01-01", Counter(equal=9), Counter(unary=9))}
    summary.keep(summary.renewed(old, summary.summed_up(ROWS, "2026-02-02")), place)
    found = summary.kept(place)
    assert {engine: one.date for engine, one in found.items()} == {
        "coroutine": "2026-01-01",
        "simdgroup": "2026-02-02",
    }
    assert found["coroutine"] == old["coroutine"]


def test_a_sample_does_not_replace_more() -> None:
    whole = summary.summed_up(ROWS, "2026-01-01")
    assert summary.renewed(whole, summary.summed_up(ROWS[:2], "2026-02-02")) == whole
    again = summary.summed_up(ROWS, "2026-02-02")
    assert summary.renewed(whole, again) == again
