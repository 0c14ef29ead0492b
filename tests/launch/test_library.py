"""The library object: names, attributes, errors in the source, options of compile_shader."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import anymetal
from anymetal import Kernel, compile_shader

SCALE = """
#include <metal_stdlib>
using namespace metal;
kernel void scale(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                  constant float& factor [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = factor * x[i];
}
"""
TWO = (
    SCALE
    + """
template <typename T>
kernel void mirror(device T* x, uint i [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
  threadgroup T tile[64];
  tile[lane] = x[i];
  x[i] = -tile[lane];
}
template [[host_name("mirror_float")]] kernel void mirror<float>(device float*, uint, uint);
template [[host_name("mirror_half")]] kernel void mirror<half>(device half*, uint, uint);
"""
)


def test_example_of_the_readme() -> None:
    x, out = torch.arange(1000.0), torch.zeros(1000)
    lib = compile_shader(SCALE)
    lib.scale(x, out, 3.0, threads=(x.numel(),), group_size=(256,))
    assert torch.equal(out, 3 * x)


def test_dir_is_the_kernels_names() -> None:
    assert sorted(dir(compile_shader(TWO))) == ["mirror_float", "mirror_half", "scale"]


def test_unknown_kernel_raises_at_attribute_access() -> None:
    lib = compile_shader(SCALE)
    with pytest.raises(RuntimeError, match="Failed to create function state object for: scales"):
        _ = lib.scales
    with pytest.raises(RuntimeError, match="Failed to create function state object"):
        hasattr(lib, "scales")


def test_python_protocols_are_not_kernels() -> None:
    lib = compile_shader(SCALE)
    assert not hasattr(lib, "__len__")
    assert copy.copy(lib).scale is lib.scale
    assert "scale" in repr(lib)


def test_kernel_is_made_once() -> None:
    lib = compile_shader(SCALE)
    assert lib.scale is lib.scale
    assert isinstance(lib.scale, Kernel)


def test_attributes_of_a_kernel() -> None:
    lib = compile_shader(TWO)
    assert lib.scale.max_threads_per_threadgroup == 1024
    assert lib.scale.thread_execution_width == 32
    assert lib.scale.static_thread_group_memory_length == 0
    assert lib.mirror_float.static_thread_group_memory_length == 256
    assert lib.mirror_half.static_thread_group_memory_length == 128


def test_typed_arguments() -> None:
    x, y, factor, i = compile_shader(SCALE).scale.arguments
    assert (x.name, x.role, x.index, x.space) == ("x", "buffer", 0, "device")
    assert (x.is_pointer, x.is_const, x.element_size) == (True, True, 4)
    assert not y.is_const
    assert (factor.name, factor.space, factor.is_pointer) == ("factor", "constant", False)
    assert (i.role, i.builtin, i.index) == ("builtin", "thread_position_in_grid", None)
    assert "float" in x.type and "uint" in i.type


def test_template_instances_have_their_own_types() -> None:
    lib = compile_shader(TWO)
    x = torch.arange(64.0).half()
    lib.mirror_half(x, group_size=32)
    assert torch.equal(x, -torch.arange(64.0).half())
    assert lib.mirror_half.arguments[0].element_size == 2


def test_source_that_does_not_compile() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile_shader(SCALE.replace("factor * x[i]", "factr * x[i]"))
    assert "factr" in str(caught.value)
    assert "<shader>:6:" in str(caught.value)


def test_error_in_a_template_instance_is_found_at_once() -> None:
    source = TWO.replace("x[i] = -tile[lane];", "x[i] = tile[lane].nothing;")
    with pytest.raises(SyntaxError, match="nothing"):
        compile_shader(source)


def test_error_names_the_source() -> None:
    with pytest.raises(SyntaxError, match=r"norms\.metal:1:"):
        compile_shader("kernel void f() { return 1 }", name="norms.metal")


def test_broken_source_is_refused_every_time() -> None:
    for _ in range(2):
        with pytest.raises(SyntaxError):
            compile_shader("kernel void f( {}")


def test_source_must_be_text() -> None:
    with pytest.raises(TypeError, match="str, not bytes"):
        compile_shader(b"kernel void f() {}")  # type: ignore[arg-type]


def test_source_without_kernels() -> None:
    assert dir(compile_shader("constant int x = 3;")) == []


def test_include_dirs(tmp_path: Path) -> None:
    (tmp_path / "factor.h").write_text("#define FACTOR 5.0f\n")
    source = '#include "factor.h"\n' + SCALE.replace("factor * x[i]", "FACTOR * x[i]")
    out = torch.zeros(3)
    compile_shader(source, include_dirs=[tmp_path]).scale(torch.ones(3), out, 0.0)
    assert out.tolist() == [5, 5, 5]


def test_changed_header_is_compiled_again(tmp_path: Path) -> None:
    source = '#include "factor.h"\n' + SCALE.replace("factor * x[i]", "FACTOR * x[i]")
    results = []
    for factor in ("5.0f", "6.0f", "5.0f"):
        (tmp_path / "factor.h").write_text(f"#define FACTOR {factor}\n")
        out = torch.zeros(1)
        compile_shader(source, include_dirs=[str(tmp_path)]).scale(torch.ones(1), out, 0.0)
        results.append(out.item())
    assert results == [5, 6, 5]


def test_missing_header_is_a_syntax_error() -> None:
    with pytest.raises(SyntaxError, match=r"no_such_header\.h"):
        compile_shader('#include "no_such_header.h"\n' + SCALE)


def test_defines() -> None:
    source = """
    #include <metal_stdlib>
    kernel void f(device int* out) {
      out[0] = COUNT;
    #if ENABLED
      out[1] = 1;
    #endif
    }
    """
    out = torch.zeros(2, dtype=torch.int32)
    compile_shader(source, defines={"COUNT": 7, "ENABLED": True}).f(out, threads=1)
    assert out.tolist() == [7, 1]
    out.zero_()
    compile_shader(source, defines={"COUNT": "8", "ENABLED": False}).f(out, threads=1)
    assert out.tolist() == [8, 0]


FAST = """
#include <metal_stdlib>
kernel void f(device int* out) {
#ifdef __FAST_MATH__
  out[0] = 1;
#else
  out[0] = 0;
#endif
}
"""


def test_fast_math(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_fast(**keywords: object) -> int:
        out = torch.full((1,), -1, dtype=torch.int32)
        compile_shader(FAST, **keywords).f(out)
        return int(out.item())

    assert is_fast() == 0
    assert is_fast(fast_math=True) == 1
    monkeypatch.setenv("PYTORCH_MPS_FAST_MATH", "1")
    assert is_fast() == 1
    assert is_fast(fast_math=False) == 0


def test_parameter_may_hide_a_program_scope_name() -> None:
    source = """
    #include <metal_stdlib>
    constant float scale = 3.0f;
    kernel void f(device float* out, constant float& scale) { out[0] = scale; }
    """
    out = torch.zeros(1)
    compile_shader(source).f(out, 8.0)
    assert out.item() == 8


def test_threadgroup_scalar_with_an_initialiser() -> None:
    source = """
    #include <metal_stdlib>
    using namespace metal;
    kernel void f(device float* out, uint i [[thread_position_in_grid]]) {
      threadgroup float shared = 0.0f;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (i == 0) shared = 4.0f;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      out[i] = shared;
    }
    """
    out = torch.zeros(70)
    compile_shader(source).f(out)
    assert out.tolist() == [4] * 70


def test_calls_from_many_threads() -> None:
    lib = compile_shader(SCALE)

    def work(factor: int) -> bool:
        x, y = torch.arange(300.0), torch.zeros(300)
        for _ in range(30):
            lib.scale(x, y, float(factor))
            if not torch.equal(y, factor * x):
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(1, 7)))


def test_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compile_shaders'"):
        _ = anymetal.compile_shaders  # type: ignore[attr-defined]
