"""The compiler: versions, the precompiled header, fast math."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest
from tests.msl.sources import HEADER, check_all, compile_program, kernel, prepared

from anymetal import settings
from anymetal.engines.cpu.target import HOST
from anymetal.errors import KernelSyntaxError, ToolchainError
from anymetal.msl import clang, prepare
from anymetal.nouns import Dialect, Source

MULTIPLY_ADD = kernel("x[i] = x[i] * 3 + x[i + 1] * 5; if (x[i] == -INFINITY) x[i] = 0;")


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(settings.CACHE_DIR.variable, str(tmp_path))
    kept = (clang._precompiled_header, clang._precompiled_beginning)
    for cache in kept:
        cache.cache_clear()
    yield tmp_path
    for cache in kept:
        cache.cache_clear()


def test_damaged_precompiled_header_is_built_again(own_cache: Path) -> None:
    header = clang.precompiled_header(HOST, Dialect())
    assert header.is_relative_to(own_cache)
    for damage in (lambda: header.write_bytes(b"no header"), header.unlink):
        damage()
        check_all(prepared(kernel("x[i] = exp(x[i]);")))
        assert header.stat().st_size > 100_000


def test_clang_and_llvm_must_be_of_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    clang.check_versions.cache_clear()
    clang.check_versions()
    clang.check_versions.cache_clear()
    monkeypatch.setattr(llvm, "llvm_version_info", (7, 0, 0))
    with pytest.raises(ToolchainError, match=r"clang \d+ \(ziglang\) does not fit LLVM 7"):
        clang.check_versions()


@pytest.mark.parametrize("found", [None, SimpleNamespace(origin="/nowhere/ziglang/__init__.py")])
def test_missing_clang_is_said(found: object, monkeypatch: pytest.MonkeyPatch) -> None:
    clang.executable.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with pytest.raises(ToolchainError, match="ziglang"):
        clang.executable()
    clang.executable.cache_clear()


def ir_of(fast_math: bool) -> str:
    unit = prepare(Source(HEADER + MULTIPLY_ADD, fast_math=fast_math))
    return compile_program(unit, "k").ir


def test_fast_math_may_regroup_but_knows_infinity() -> None:
    ir = ir_of(fast_math=True)
    assert "reassoc" in ir
    assert "ninf" not in ir
    assert "nnan" not in ir
    assert "reassoc" not in ir_of(fast_math=False)


def test_fast_math_is_seen_by_the_source() -> None:
    text = HEADER + "#ifndef __FAST_MATH__\n#error slow\n#endif\n" + kernel("")
    prepare(Source(text, fast_math=True))
    with pytest.raises(SyntaxError, match="slow"):
        prepare(Source(text))


def test_loops_may_be_unrolled_later() -> None:
    unit = prepared(kernel("for (uint n = 0; n < i; ++n) x[n] = n;"))
    ir = compile_program(unit, "k").ir
    assert "unroll.disable" not in ir
    assert ir.count("store float") == 1  # and clang did not do it already


def test_unoptimised_ir_keeps_every_access() -> None:
    unit = prepared(kernel("float unused = x[i]; x[i] = 1; x[i] = 2;"))
    optimised = compile_program(unit, "k").ir
    plain = compile_program(unit, "k", optimise=False).ir
    assert optimised.count("store float") < plain.count("store float")
    assert "!DILocation" in plain


MANY_KERNELS = """
template <typename T, int N>
kernel void scale(device T* x, uint i [[thread_position_in_grid]]) {
  static_assert(N < 9, "too many");
  x[i] = fma(x[i], T(N), T(1)) * exp(x[i]);
}
#define INSTANCE(N) \\
  template [[host_name("scale_" #N)]] kernel void scale<float, N>(device float*, uint);
INSTANCE(1) INSTANCE(2) INSTANCE(3) INSTANCE(4) INSTANCE(5) INSTANCE(6) INSTANCE(7) INSTANCE(9)
"""


def test_a_text_of_many_kernels_is_parsed_once(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = prepared(MANY_KERNELS)
    of_parts = [compile_program(text, f"scale_{n}").ir for n in (2, 7)]
    (kept,) = [path for path in own_cache.glob("v*/pch/*/*") if path.stat().st_size < 10_000_000]
    kept.unlink()
    assert compile_program(text, "scale_2").ir == of_parts[0]
    monkeypatch.setattr(clang, "compile_ending", lambda *arguments, **keywords: None)
    assert [compile_program(text, f"scale_{n}").ir for n in (2, 7)] == of_parts


def test_errors_in_one_of_many_kernels_name_its_line(own_cache: Path) -> None:
    with pytest.raises(KernelSyntaxError, match=r"<shader>:6:17: error: .*too many"):
        compile_program(prepared(MANY_KERNELS), "scale_9")
