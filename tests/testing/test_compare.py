"""`anymetal.testing.compare`: right kernels pass, wrong ones are named with their first element."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anymetal import compile_shader
from anymetal.testing import ComparisonError, Tolerance, compare
from anymetal.testing.cases import RAGGED, argument_count, cases_of, expanded, laid_out

pytest_plugins = ["pytester"]

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void twice(device const float* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = 2 * x[i];
}

kernel void forgets_the_33rd(device const float* x, device float* y,
                             uint i [[thread_position_in_grid]]) {
  y[i] = i == 32 ? 0 : 2 * x[i];
}

kernel void reads_its_neighbour(device const float* x, device float* y,
                                uint i [[thread_position_in_grid]]) {
  float next = x[i + 1];
  y[i] = 2 * x[i] + (next == 12345.0f ? 1.0f : 0.0f);
}
"""


@pytest.fixture(scope="module")
def library() -> Any:
    return compile_shader(SOURCE)


def through(kernel: Any) -> Any:
    def call(x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel(x, y)
        return y

    return call


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_right_kernel_passes_all_ragged_sizes_and_layouts(library: Any) -> None:
    report = compare(through(library.twice), double)
    assert report.passed
    sizes = {line.case.shapes[0][0] for line in report.lines}
    assert sizes == set(RAGGED)
    assert {line.case.layout for line in report.lines} >= {"dense", "offset", "strided"}
    assert report.lines[-1].case.values == "special"
    assert all(line.gradient is None for line in report.lines)


def test_table_fits_eighty_columns(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = str(compare(through(library.twice), double, shapes=[(3, 5), (2, 3, 4)], check=False))
    assert max(map(len, text.splitlines())) <= 80
    assert "3x5" in text and "2x3x4" in text and "transposed" in text


def test_wrong_element_is_named(library: Any) -> None:
    with pytest.raises(ComparisonError) as caught:
        compare(through(library.forgets_the_33rd), double, layouts=["dense"], check=False)
    text = str(caught.value)
    assert "fails in 4 of 8 cases" in text  # 33, 257, 4099, and 4099 with special values
    assert "the first: shape 33, float32, dense" in text
    assert "element [32] is 0.0; float64 has " in text


def test_outside_of_tests_a_report_comes_back(library: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    report = compare(through(library.forgets_the_33rd), double, shapes=[32, 33], check=False)
    assert not report
    assert [line.passed for line in report.lines[:4]] == [True] * 4
    assert report.failures[0].verdict == "wrong"
    assert "element [32]" in str(report)


def test_checker_finds_what_the_numbers_do_not_show(library: Any) -> None:
    kernel = through(library.reads_its_neighbour)
    assert compare(kernel, double, shapes=[31], layouts=["dense"], check=False, special=False)
    with pytest.raises(ComparisonError, match="out_of_bounds"):
        compare(kernel, double, shapes=[31], layouts=["dense"], special=False)


def test_gradient_is_judged_where_there_is_one(library: Any) -> None:
    class Twice(torch.autograd.Function):
        factor = 2.0

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return through(library.twice)(x)

        @staticmethod
        def backward(ctx: Any, upstream: torch.Tensor) -> torch.Tensor:
            return Twice.factor * upstream

    report = compare(Twice.apply, double, shapes=[33], check=False)
    assert all(line.gradient is not None and line.gradient.passed for line in report.lines)
    Twice.factor = 3.0
    with pytest.raises(ComparisonError, match=r"gradient: element \[0\] is"):
        compare(Twice.apply, double, shapes=[33], check=False)


def test_arguments_that_are_written_to_are_a_fault() -> None:
    def careless(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    with pytest.raises(ComparisonError, match="argument 0 was written to"):
        compare(careless, double, shapes=[5], check=False)
    assert compare(careless, lambda x: x.mul_(2), shapes=[5], check=False)


def test_an_exception_is_a_row(library: Any) -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 32:
            raise ValueError("too many")
        return 2 * x

    report = compare(refuses, double, shapes=[32, 33], check=False, raises=False)
    assert {line.verdict for line in report.failures} == {"raised"}
    assert "raised ValueError: too many" in str(report)


def test_misplaced_infinity_is_wrong() -> None:
    def clips(x: torch.Tensor) -> torch.Tensor:
        return (2 * x).nan_to_num(nan=torch.nan)

    report = compare(clips, double, shapes=[33], check=False, raises=False)
    assert [line.case.values for line in report.failures] == ["special"]
    assert "element [7] is 3.4028234663852886e+38; float64 has inf" in str(report)


def test_integers_must_be_equal() -> None:
    kinds = [torch.int32, torch.int64]
    assert compare(double, double, shapes=[33], dtypes=kinds, check=False)
    wrong = compare(lambda x: 2 * x + 1, double, shapes=[3], dtypes=kinds, raises=False)
    assert "element [0] is" in str(wrong)


def test_shapes_in_words() -> None:
    assert argument_count(lambda a, b: a @ b) == 2
    found = list(expanded("m k, k n", 2))
    assert all(left[1] == right[0] for left, right in found)
    assert {size for left, _ in found for size in left} >= {0, 1, 31, 32, 33}
    assert list(expanded([(2, 3)], 2)) == [((2, 3), (2, 3))]
    assert compare(torch.matmul, lambda a, b: a @ b, shapes="m k, k n", check=False)


def test_mistakes_in_the_call_are_named() -> None:
    with pytest.raises(ValueError, match=r"for 3 arguments, but the reference takes 1"):
        compare(double, double, shapes=["a, b, c"])
    with pytest.raises(ValueError, match="layouts has 'sparse'; expected some of dense"):
        compare(double, double, layouts=["sparse"])
    with pytest.raises(ValueError, match="need one entry"):
        cases_of(1, [], [torch.float32], ["dense"], torch.device("cpu"), None, True)


def test_layouts_hold_the_same_numbers() -> None:
    x = torch.arange(12.0).view(3, 4)
    for layout in ("offset", "strided", "transposed"):
        view = laid_out(x, layout)
        assert torch.equal(view, x)
        assert view.storage_offset() or not view.is_contiguous()


OFF = "lambda x: x * (1 + 1e-5)"


def test_tolerance_is_the_projects(pytester: pytest.Pytester) -> None:
    """Of a call, or of the project that pytest runs in; 4 roundings of float32 are 5e-7."""
    loose = Tolerance(floors={torch.float32: 2e-5})
    options: dict[str, Any] = {"shapes": [33], "special": False, "check": False, "raises": False}
    assert compare(eval(OFF), lambda x: x, tolerance=loose, **options)
    assert not compare(eval(OFF), lambda x: x, **options)
    pytester.makepyfile(
        f"""
        def test_it(metal_compare):
            metal_compare({OFF}, lambda x: x, shapes=[33], special=False, check=False)
        """
    )
    pytester.makepyprojecttoml("[tool.anymetal.tolerance]\nfloat32 = 2e-5\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    pytester.makepyprojecttoml("[tool.anymetal.tolerance]\nfloat32 = 5e-6\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)


def test_fixture_fails_the_test_with_the_element(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(metal_compare):
            assert metal_compare(lambda x: x + 1, lambda x: x + 1, shapes=[3], check=False)
            metal_compare(lambda x: x + 1, lambda x: x + 2, shapes=[3], check=False)
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ComparisonError: *fails in 5 of 5 cases*", "*metal compare*"])
