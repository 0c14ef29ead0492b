"""Plain, checked and counted kernels are compiled by one route, each only where it is needed."""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

import anymetal
from anymetal import compile_shader
from anymetal.engines import compiler
from anymetal.engines.contract import Plain
from anymetal.engines.registry import FRONTENDS
from anymetal.errors import KernelWarning, LimitError, UnsetConstantError
from anymetal.msl import clang
from anymetal.nouns import Source

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
SAME_WRITE = f"""{HEADER}
kernel void flag(device int* found, uint i [[thread_position_in_grid]]) {{
  // every thread writes the same value
  // anymetal: allow(race) all of them write 1
  found[0] = 1;
}}
"""
UNUSED = f"""{HEADER}
constant bool masked [[function_constant(0)]];
constant int width [[function_constant(1)]];
kernel void f(device float* x, device float* nowhere, uint i [[thread_position_in_grid]]) {{
  x[i] += is_function_constant_defined(masked) ? 2 : 1;
}}
kernel void g(device float* x, uint i [[thread_position_in_grid]]) {{ x[i] += width; }}
kernel void large(device float* x, uint i [[thread_position_in_grid]]) {{
  threadgroup float memory[9000];
  memory[i] = x[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  x[i] = memory[i + 1];
}}
"""
DOUBTFUL = f"""{HEADER}
[[nodiscad]] float one() {{ return 1; }}
kernel void f(device float* x, uint i [[thread_position_in_grid]]) {{ x[i] = one(); }}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty store beside the headers and runtimes of the others, which take long to build."""
    forget()
    monkeypatch.setattr(compiler, "fingerprint", lambda *parts: str(tmp_path))


def forget() -> None:
    """What a new process would not know."""
    gc.collect()
    compiler._alive.clear()
    frontend: Any = FRONTENDS[Source]
    frontend._prepared.clear()


def no_compiler(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a compiler was started")


def test_checked_call_compiles_no_plain_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "compile", no_compiler)
    found = torch.zeros(1, dtype=torch.int32)
    with anymetal.check() as report:
        kernel = compile_shader(SAME_WRITE).flag
        kernel(found, threads=4)
    assert (found.item(), report.findings) == (1, ())
    assert (kernel.engine, kernel.engine_reason) == ("coroutine", "checked kernels run there")


def test_comment_at_a_finding_is_found_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = torch.zeros(1, dtype=torch.int32)
    with anymetal.check() as report:
        compile_shader(SAME_WRITE).flag(found, threads=4)
    assert [accepted.kind for accepted, _ in report.silenced] == ["race"]
    forget()
    monkeypatch.setattr(clang, "_run", no_compiler)
    with anymetal.check() as again:
        compile_shader(SAME_WRITE).flag(found, threads=4)
    assert again.findings == ()
    assert [reason for _, reason in again.silenced] == ["all of them write 1"]


def test_buffers_that_a_kernel_does_not_use_may_be_left_out_of_a_checked_call() -> None:
    x = torch.zeros(4)
    with anymetal.check() as report:
        compile_shader(UNUSED).f(x)
    assert (x.tolist(), report.findings) == ([1] * 4, ())


def test_unset_constant_is_refused_in_a_checked_call() -> None:
    with anymetal.check(), pytest.raises(UnsetConstantError, match=r"'width' \(index 1\)"):
        _ = compile_shader(UNUSED).g


def test_limit_is_reported_by_a_checked_call() -> None:
    with anymetal.check() as report, pytest.raises(LimitError, match="36000 bytes"):
        _ = compile_shader(UNUSED).large
    assert [finding.kind for finding in report.findings] == ["limits"]


def test_kernel_used_with_and_without_a_check_has_both() -> None:
    x = torch.zeros(4)
    with anymetal.check():
        kernel = compile_shader(UNUSED).f
        kernel(x)
    kernel(x)
    assert kernel.count(x).device_writes == 4
    assert x.tolist() == [3] * 4


def test_counted_kernel_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_shader(UNUSED).f.count(torch.zeros(40))
    assert first.device_writes == 40
    forget()
    monkeypatch.setattr(clang, "_run", no_compiler)
    assert compile_shader(UNUSED).f.count(torch.zeros(40)) == first


def test_source_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    start = clang.preprocess

    def counting(*args: Any, **keywords: Any) -> clang.Result:
        starts.append(1)
        return start(*args, **keywords)

    monkeypatch.setattr(clang, "preprocess", counting)
    x = torch.zeros(4)
    for _ in range(2):
        compile_shader(UNUSED).f(x)
        compile_shader(UNUSED).f.count(x)
        compile_shader(UNUSED).specialize("g", {"width": 2})(x)
    assert len(starts) == 1


@pytest.mark.parametrize("cached", [False, True])
def test_warnings_reach_the_caller(cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if cached:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KernelWarning)
            compile_shader(DOUBTFUL)
        forget()
        monkeypatch.setattr(clang, "_run", no_compiler)
    with pytest.warns(KernelWarning, match=r"<shader>:4:3: warning: unknown attribute") as caught:
        compile_shader(DOUBTFUL)
    assert "[[nodiscad]] float one() { return 1; }\n  ^" in str(caught[0].message)
    assert caught[0].filename == __file__
