"""The two cache levels: what starts a compiler, what does not, and how long a warm start takes."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from anymetal import check, compile_shader
from anymetal.engines import compiler
from anymetal.engines.registry import FRONTENDS
from anymetal.msl import frontend
from anymetal.nouns import Source
from anymetal.store import cache

SOURCE = """
#include <metal_stdlib>
kernel void add(device float* x, constant float& y, uint i [[thread_position_in_grid]]) {
  x[i] += y;
}
"""


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory."""
    gc.collect()
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps of the front end that were taken."""
    taken: list[str] = []

    def watch(name: str) -> None:
        original = getattr(frontend, name)

        def step(*args: Any, **keywords: Any) -> Any:
            taken.append(name)
            return original(*args, **keywords)

        monkeypatch.setattr(frontend, name, step)

    for name in ("prepare", "check_all", "compile_program"):
        watch(name)
    return taken


def run() -> None:
    x = torch.ones(4)
    compile_shader(SOURCE).add(x, 2.0)
    assert x.tolist() == [3] * 4


def forget() -> None:
    """What a new process would not know."""
    gc.collect()
    compiler._alive.clear()
    FRONTENDS[Source]._prepared.clear()


def test_second_compile_takes_no_step(fresh: Path, calls: list[str]) -> None:
    run()
    assert calls == ["prepare", "check_all", "compile_program"]
    calls.clear()
    forget()
    run()
    assert calls == []


def test_damaged_entries_are_made_again(fresh: Path, calls: list[str]) -> None:
    run()
    for kind in ("outline", "executable"):
        for path in (fresh / cache.LAYOUT / kind).rglob("*"):
            if path.is_file():
                path.write_bytes(b"damaged")
    calls.clear()
    forget()
    run()
    assert calls == ["prepare", "check_all", "compile_program"]


def test_cleared_executables_are_made_again(fresh: Path, calls: list[str]) -> None:
    run()
    for path in (fresh / cache.LAYOUT / "executable").rglob("*"):
        if path.is_file():
            path.unlink()
    calls.clear()
    forget()
    run()
    assert calls == ["prepare", "compile_program"]


def test_executable_of_the_same_source_is_shared(fresh: Path) -> None:
    first, second = compile_shader(SOURCE), compile_shader(SOURCE)
    assert first.add._plain.executable is second.add._plain.executable


def test_toolchain_is_part_of_the_key(
    fresh: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    calls.clear()
    forget()
    monkeypatch.setattr(compiler, "fingerprint", lambda *parts: "a newer compiler")
    run()
    assert calls == ["prepare", "check_all", "compile_program"]


def test_large_library_is_checked_without_its_instances(
    fresh: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "CHECKED_AT_ONCE", 0)
    source = """
    #include <metal_stdlib>
    template <typename T> kernel void f(device T* x) { x[0] = x[0].nothing; }
    template [[host_name("f_float")]] kernel void f<float>(device float*);
    kernel void good(device float* x) { x[0] = 1; }
    """
    lib = compile_shader(source)
    x = torch.zeros(1)
    lib.good(x)
    assert x.item() == 1
    with pytest.raises(SyntaxError, match="nothing"):
        _ = lib.f_float


def test_source_under_another_name_has_the_same_code(fresh: Path, calls: list[str]) -> None:
    run()
    forget()
    calls.clear()
    x = torch.ones(4)
    compile_shader(SOURCE, name="other.metal").add(x, 2.0)
    assert "compile_program" not in calls
    with check() as report:
        compile_shader(SOURCE, name="other.metal").add(x, 2.0, threads=5)
    places = [finding.place.position for finding in report.findings]
    assert {place.file for place in places if place} == {"other.metal"}
