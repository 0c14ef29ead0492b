"""Every test of the headers runs twice: its kernels as they are, and checked without a finding.

Checked kernels are compiled without optimisation here, which takes a tenth of the time; no finding
depends on it (tests/checker/test_bad_kernels.py has both).
"""

from __future__ import annotations

import pytest

# Files about text, the compiler and its cache: they launch few kernels or none.
UNCHECKED = frozenset(
    {
        "test_cache",
        "test_clang",
        "test_diagnostics",
        "test_rewrite",
        "test_robust",
        "test_source_map",
        "test_strict",
        "test_structure",
        "test_tokens",
    }
)


DIVERGENCE = ("collective_divergence", "barrier_divergence")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "diverges: threads of this test part on purpose")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__ in UNCHECKED:
        return
    # What a test writes of its outputs is its own affair: it knows what it looks at.
    off = ["unwritten_output"]
    if metafunc.definition.get_closest_marker("diverges"):
        off += DIVERGENCE
    mark = pytest.mark.metal_check(strict=True, severity=dict.fromkeys(off, "off"))
    checked = pytest.param("checked", marks=mark)
    metafunc.parametrize("run", ["plain", checked], indirect=True)


@pytest.fixture(autouse=True)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the kernels of a test run: the marker checks them, this makes it quick."""
    if getattr(request, "param", None) == "checked":
        monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")
