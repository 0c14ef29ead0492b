"""Kernels of metallibs run on both engines and under the checker like those of Metal source."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import modules
import pytest
import torch

import anymetal
from anymetal.errors import MetallibError, UnsetConstantError
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import ShaderLibrary

ENGINES = ("simdgroup", "coroutine")


def library(kernel: str, text: str, air: tuple[int, int] = (2, 6)) -> ShaderLibrary:
    return anymetal.load_metallib(modules.metallib(modules.function(kernel, text, air=air)))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANYMETAL_ENGINE", request.param)
    return str(request.param)


def row_means(kernel: Kernel, x: torch.Tensor) -> torch.Tensor:
    out = torch.full((x.shape[0],), -1.0)
    kernel(x, out, x.shape[1], threads=64 * x.shape[0], group_size=64)
    return out


def test_row_means_are_those_of_the_source(engine: str) -> None:
    from_air = library("row_mean", modules.ROW_MEAN).row_mean
    from_source = anymetal.compile_shader(modules.ROW_MEAN_SOURCE).row_mean
    assert from_air.engine == from_source.engine == engine
    for shape in ((1, 1), (3, 31), (2, 32), (5, 33), (7, 1009)):
        x = torch.randn(shape)
        means = row_means(from_air, x)
        assert torch.equal(means, row_means(from_source, x))
        torch.testing.assert_close(means, x.double().mean(1).float(), rtol=1e-5, atol=1e-6)


def test_arguments_are_those_of_the_source() -> None:
    from_air = library("row_mean", modules.ROW_MEAN).row_mean
    from_source = anymetal.compile_shader(modules.ROW_MEAN_SOURCE).row_mean
    assert from_air.arguments == from_source.arguments
    assert from_air.static_thread_group_memory_length == 32 * 4


def test_function_constants(engine: str) -> None:
    data = modules.metallib(
        modules.function("scaled", modules.SCALED, constants=modules.SCALED_CONSTANTS)
    )
    scaled = anymetal.load_metallib(data)
    x, bias, out = torch.randn(33), torch.randn(33), torch.zeros(33)
    plain = scaled.specialize("scaled", {"scale": 2.5, "has_bias": False})
    assert [a.name for a in plain.arguments] == ["x", "out", "i"]
    plain(x, 0, out, threads=33)
    assert torch.equal(out, x * 2.5)
    scaled.specialize("scaled", {3: -0.1, 7: True})(x, bias, out, threads=33)
    assert torch.equal(out, x * -0.1 + bias)
    with pytest.raises(UnsetConstantError, match=r"without a value: 'has_bias' \(index 7\)"):
        scaled.specialize("scaled", {"scale": 1.0})
    with pytest.raises(ValueError, match=r"it has scale \(3\), has_bias \(7\)"):
        scaled.specialize("scaled", {"other": 1})


def test_function_constants_may_be_vectors(engine: str) -> None:
    data = modules.metallib(
        modules.function("weighted", modules.WEIGHTED, constants=modules.WEIGHTED_CONSTANTS)
    )
    weighted = anymetal.load_metallib(data)
    for on, expected in (((False, True), -0.1), ((True, False), 0.5)):
        out = torch.zeros(3)
        weighted.specialize("weighted", {"weights": (0.5, 7.0, -0.1), "on": on})(out)
        assert torch.equal(out, torch.full((3,), expected))
    with pytest.raises(TypeError, match="'weights' is a float3, but its value is 2: expected 3"):
        weighted.specialize("weighted", {"weights": 2, "on": (True, True)})


@pytest.mark.parametrize("air", [(2, 6), (2, 8)])
def test_simdgroup_matrices(engine: str, air: tuple[int, int]) -> None:
    product = library("product", modules.matrices(air), air).product
    a, b, out = torch.randn(8, 8), torch.randn(8, 8), torch.zeros(8, 8)
    product(a, b, out, threads=32, group_size=32)
    torch.testing.assert_close(out, a @ b)


def spread(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix as the lanes hold it: 16x16 fragments, of which a lane has eight elements."""
    rows, columns = matrix.shape
    lanes = [
        matrix[
            16 * down + ((lane >> 2 & 4) | (lane >> 1 & 3)) + 8 * (i >> 2),
            16 * across + 4 * ((lane >> 2 & 2) | (lane & 1)) + (i & 3),
        ]
        for lane in range(32)
        for down in range(rows // 16)
        for across in range(columns // 16)
        for i in range(8)
    ]
    return torch.stack(lanes)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_of_cooperative_tensors(engine: str, left: bool, right: bool) -> None:
    product = library("product", modules.tensor_product(left, right), (2, 8)).product
    a, b, c = torch.randn(16, 16), torch.randn(16, 32), torch.randn(16, 32)
    out = spread(c)
    stored = (spread(a.T if left else a), spread(b.T if right else b))
    product(*stored, out, threads=32, group_size=32)
    torch.testing.assert_close(out, spread(c + a @ b))
    if engine == "coroutine":
        with anymetal.check() as report:
            product(*stored, out, threads=32, group_size=32)
        assert not report.findings


def test_products_of_tensors_in_memory(engine: str) -> None:
    """Matrices that end inside the tile: nothing beyond them is read or written."""
    product = library("memory", modules.tensors_in_memory(), (2, 8)).memory
    a, b, out = torch.randn(9, 15), torch.randn(16, 24), torch.randn(10, 20)
    wanted = out.clone()
    wanted[:9] += a[:, :13] @ b[1:14, 4:]
    given = (a.flatten()[: 8 * 15 + 13].clone(), b.flatten()[: 14 * 24].clone(), out)
    if engine == "coroutine":
        with anymetal.check() as report:
            product(*given[:2], out[:9].clone(), threads=32, group_size=32)
        assert not report.findings
    product(*given, threads=32, group_size=32)
    torch.testing.assert_close(out, wanted)


def test_functions_on_vectors(engine: str) -> None:
    declared = "declare <4 x float> @air.fma.v4f32(<4 x float>, <4 x float>, <4 x float>)"
    line = "%y = call <4 x float> @air.fma.v4f32(<4 x float> %v, <4 x float> %v, <4 x float> %v)"
    fused = library("fused", modules.calls("fused", declared, line)).fused
    x, out = torch.randn(33, 4), torch.zeros(33, 4)
    fused(x, out, threads=33)
    exact = x.double() * x.double() + x.double()
    assert torch.equal(out, exact.float())


def test_overflow_wraps_as_from_source(engine: str) -> None:
    """Apple's optimiser may assume that there is none; code that runs here may not."""
    line = """
  %b = bitcast <4 x float> %v to <4 x i32>
  %n = add nsw <4 x i32> %b, <i32 1, i32 1, i32 1, i32 1>
  %c = icmp sgt <4 x i32> %n, %b
  %z = zext <4 x i1> %c to <4 x i32>
  %y = bitcast <4 x i32> %z to <4 x float>"""
    grows = library("grows", modules.calls("grows", "", line)).grows
    x = torch.tensor([[2**31 - 1, 5, -1, 0]], dtype=torch.int32)
    out = torch.zeros(1, 4, dtype=torch.int32)
    grows(x, out, threads=1)
    assert out.tolist() == [[0, 1, 1, 1]]


def test_the_checker_quotes_instructions() -> None:
    kernel = library("row_mean", modules.ROW_MEAN).row_mean
    with anymetal.check() as report:
        row_means(kernel, torch.randn(2, 65))
    assert not report.findings
    out = torch.zeros(1)
    with anymetal.check(raise_on_error=False) as report:
        kernel(torch.randn(2, 65), out, 65, threads=128, group_size=64)
    (finding,) = report.findings
    assert finding.kind == "out_of_bounds"
    assert finding.place.position is not None
    assert finding.place.position.file == "row_mean.air"
    assert finding.place.excerpt.strip().startswith("store float %mean, ptr addrspace(1) %result")


def test_the_checker_finds_a_race() -> None:
    kernel = library("row_race", modules.RACING).row_race
    with anymetal.check(raise_on_error=False) as report:
        row_means(kernel, torch.randn(2, 65))
    race = next(finding for finding in report.findings if finding.kind == "race")
    assert "partials" in race.message
    assert race.other is not None
    assert {"load", "store"} == {
        word
        for place in (race.place, race.other)
        for word in ("load", "store")
        if word in place.excerpt.split()
    }


def test_the_checker_quotes_the_source_where_it_is_known(tmp_path: Path) -> None:
    file = tmp_path / "row_race.metal"
    file.write_text("// a file\n  value = x[i];  // the author's\n")
    text = modules.with_debug_information(modules.RACING, str(file)[1:], 2)
    with anymetal.check(raise_on_error=False) as report:
        row_means(library("row_race", text).row_race, torch.randn(2, 65))
    places = [
        place
        for finding in report.findings
        for place in (finding.place, finding.other)
        if place is not None and place.position is not None and place.position.file == str(file)
    ]
    assert places
    assert places[0].position is not None
    assert places[0].position.line == 2
    assert places[0].excerpt.strip() == "value = x[i];  // the author's"


def test_what_is_unknown_is_named() -> None:
    declared = "declare <4 x float> @air.invent.v4f32(<4 x float>)"
    line = "%y = call <4 x float> @air.invent.v4f32(<4 x float> %v)"
    strange = library("strange", modules.calls("strange", declared, line))
    with pytest.raises(MetallibError, match=r"'strange' calls air\.invent\.v4f32, which"):
        _ = strange.strange
    texture = modules.ROW_MEAN.replace('!"air.buffer", !"air.buffer_size"', '!"air.texture"')
    with pytest.raises(MetallibError, match=r"parameter 'columns' is of the kind air\.texture"):
        _ = library("row_mean", texture).row_mean
    with pytest.raises(MetallibError, match=r"is AIR 2\.9; versions 2\.3 to 2\.8"):
        _ = library("row_mean", modules.ROW_MEAN, (2, 9)).row_mean
    whole = modules.function("row_mean", modules.ROW_MEAN)
    cut = anymetal.load_metallib(modules.metallib(replace(whole, bitcode=whole.bitcode[:99])))
    with pytest.raises(MetallibError, match="LLVM cannot read its bitcode"):
        _ = cut.row_mean


def test_a_library_lists_its_kernels(tmp_path: Path) -> None:
    functions = (
        modules.function("row_mean", modules.ROW_MEAN),
        modules.function("scaled", modules.SCALED),
    )
    file = tmp_path / "two.metallib"
    file.write_bytes(modules.metallib(*functions))
    found = anymetal.load_metallib(file)
    assert dir(found) == ["row_mean", "scaled"]
    with pytest.raises(RuntimeError, match=r"for: neither\. The source has: row_mean, scaled"):
        _ = found.neither
    with pytest.raises(TypeError, match="takes a path or bytes, not int"):
        anymetal.load_metallib(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        anymetal.load_metallib(os.fspath(tmp_path / "none.metallib"))
