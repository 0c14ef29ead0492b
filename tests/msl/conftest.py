"""Every test of the headers runs twice: its kernels as they are, and checked without a finding.

Of a test for every scalar type and every size of vectors a third of the pairs run, among them each
type and each size, and fewer are checked; of a test for every scalar type a third is checked.
ANYMETAL_TEST_ALL=1 (`make thorough`) takes all.
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
        "test_address_spaces",
        "test_clang",
        "test_diagnostics",
        "test_language",
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
    # Some tests only compile.
    mark = pytest.mark.metal_check(strict=True, severity=dict.fromkeys(off, "off"), launches=False)
    checked = pytest.param("checked", marks=mark)
    metafunc.parametrize("run", ["plain", checked], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANYMETAL_TEST_ALL") == "1":
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if "run" in _values(item) and _scalar(item) is not None:
            tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    left_out = {item for test in tests.values() for item in test if not _is_chosen(item, test)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _values(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _scalar(item: pytest.Item) -> str | None:
    """The scalar type of a test, be it what values have or what they become."""
    return _values(item).get("scalar", _values(item).get("target"))


def _is_chosen(item: pytest.Item, test: list[pytest.Item]) -> bool:
    """Of types and sizes every third pair plain, and a diagonal checked; without sizes every second
    type plain, and every third checked."""
    values = _values(item)
    scalars = list(dict.fromkeys(_scalar(other) for other in test))
    number, every = scalars.index(_scalar(item)), 3
    if "size" in values:
        sizes = list(dict.fromkeys(_values(other)["size"] for other in test))
        number -= sizes.index(values["size"])
        every = 3 if values["run"] == "plain" else min(len(scalars), len(sizes))
    elif values["run"] == "plain":
        every = 2
    return number % every == 0


@pytest.fixture(autouse=True)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the kernels of a test run: the marker checks them, this makes it quick."""
    if getattr(request, "param", None) == "checked":
        monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")
