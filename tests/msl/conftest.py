"""Every test of the headers runs twice: its kernels as they are, and checked without a finding.

Of a test for every scalar type and every size of vectors, each type runs in half of the sizes and
each size with half of the types, and fewer of the pairs are checked; ANYMETAL_TEST_ALL=1
(`make thorough`) takes all pairs.
Checked kernels are compiled without optimisation here, which takes a tenth of the time; no finding
depends on it (tests/checker/test_bad_kernels.py has both).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

# Files about text and the compiler: they launch few kernels or none.
UNCHECKED = frozenset(
    {
        "test_clang",
        "test_diagnostics",
        "test_rewrite",
        "test_robust",
        "test_source_map",
        "test_strict",
        "test_structure",
        "test_tokens",
        "test_undefined",
    }
)


DIVERGENCE = ("collective_divergence", "barrier_divergence", "shuffle")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "diverges: threads of this test part on purpose")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ in UNCHECKED:
        return
    # What a test writes of its outputs is its own affair: it knows what it looks at. Bits of
    # floating-point numbers go in and out as integers, so that no NaN changes on the way.
    off = ["unwritten_output", "argument_type"]
    if metafunc.definition.get_closest_marker("diverges"):
        off += DIVERGENCE
    mark = pytest.mark.metal_check(strict=True, severity=dict.fromkeys(off, "off"))
    checked = pytest.param("checked", marks=mark)
    metafunc.parametrize("run", ["plain", checked], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANYMETAL_TEST_ALL") == "1":
        return
    pairs: dict[str, list[pytest.Item]] = {}
    for item in items:
        values = _values(item)
        if {"run", "scalar", "size"} <= set(values):
            pairs.setdefault(item.nodeid.split("[")[0], []).append(item)
    left_out = {item for test in pairs.values() for item in test} - _sample(pairs)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _values(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _sample(pairs: dict[str, list[pytest.Item]]) -> set[pytest.Item]:
    """Of each test's types and sizes every other pair plain, and a diagonal checked."""
    chosen = set()
    for test in pairs.values():
        scalars, sizes = (
            list(dict.fromkeys(_values(item)[name] for item in test)) for name in ("scalar", "size")
        )
        for item in test:
            values = _values(item)
            step = scalars.index(values["scalar"]) - sizes.index(values["size"])
            every = 2 if values["run"] == "plain" else min(len(scalars), len(sizes))
            if step % every == 0:
                chosen.add(item)
    return chosen


@pytest.fixture(autouse=True)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the kernels of a test run: the marker checks them, this makes it quick."""
    if getattr(request, "param", None) == "checked":
        monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")
