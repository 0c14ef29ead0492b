"""Bodies of MLX kernels: the signature that is written for them, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import anymetal
from anymetal.mlx import MetalKernel, metal_kernel
from anymetal.testing import compare, do_bench

EXP = """
    uint elem = thread_position_in_grid.x;
    T tmp = inp[elem];
    out[elem] = metal::exp(tmp);
"""
# What MLX's documentation shows for this body, of half tensors.
EXP_SOURCE = (Path(__file__).parent / "myexp.metal").read_text()


@pytest.fixture(scope="module")
def myexp() -> MetalKernel:
    return metal_kernel("myexp", ["inp"], ["out"], EXP)


def exponential(kernel: MetalKernel, a: torch.Tensor, **options: Any) -> torch.Tensor:
    (out,) = kernel(
        inputs=[a],
        template=[("T", torch.float32)],
        grid=(a.numel(), 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
        **options,
    )
    return out


def test_signature_is_the_one_mlx_writes(
    myexp: MetalKernel, capsys: pytest.CaptureFixture[str]
) -> None:
    a = torch.randn(4, 16).half()
    torch.testing.assert_close(exponential(myexp, a, verbose=True), a.exp())
    assert (
        capsys.readouterr().out == f"Generated source code for `myexp`:\n```\n{EXP_SOURCE}\n```\n"
    )


def test_body_is_compared_checked_and_timed(myexp: MetalKernel) -> None:
    sizes = [0, 1, 7, 8, 33, (3, 5)]  # fewer than 8 elements are in constant memory
    assert compare(lambda x: exponential(myexp, x), torch.exp, shapes=sizes)
    x = torch.randn(4096)
    timing = do_bench(
        lambda x: exponential(myexp, x), x, baseline=torch.exp, count=True, seconds=0.02
    )
    assert timing.bytes == 2 * 4 * 4096


STRIDED = """
    uint elem = thread_position_in_grid.x;
    int loc = elem_to_loc(elem, x_shape, x_strides, x_ndim);
    y[elem] = x[loc] + bias;
    if (elem < N) sizes[elem] = FLAG ? x_shape[elem] : small[elem];
"""


@pytest.mark.parametrize("row_contiguous", [True, False])
def test_strides_scalars_and_two_outputs(row_contiguous: bool) -> None:
    kernel = metal_kernel(
        *("strided", ["x", "bias", "small"], ["y", "sizes"], STRIDED),
        ensure_row_contiguous=row_contiguous,
    )
    x = torch.randn(6, 5, 4).permute(2, 0, 1)[::2]
    for bias in (2.5, torch.tensor(2.5)):
        y, sizes = kernel(
            inputs=[x, bias, torch.tensor([7, 8, 9], dtype=torch.int32)],
            template=[("N", 3), ("FLAG", True)],
            grid=(x.numel(), 1, 1),
            threadgroup=(1024, 1, 1),
            output_shapes=[x.shape, (3,)],
            output_dtypes=[torch.float32, torch.int32],
        )
        assert torch.equal(y, x + 2.5)
        assert sizes.tolist() == [2, 6, 5]


COUNT = """
    uint elem = thread_position_in_grid.x;
    uint bin = ceildiv(values[elem], width);
    if (bin < counts_of) atomic_fetch_add_explicit(&counts[bin], 1, memory_order_relaxed);
"""


def test_atomic_outputs_begin_with_the_value() -> None:
    kernel = metal_kernel(
        "count", ["values", "width", "counts_of"], ["counts"], COUNT, atomic_outputs=True
    )
    values = torch.arange(100, dtype=torch.int32)
    with anymetal.check() as report:
        (counts,) = kernel(
            inputs=[values, 10, 5],
            grid=(100, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(5,)],
            output_dtypes=[torch.int32],
            init_value=3,
        )
    assert counts.tolist() == [4, 13, 13, 13, 13]
    assert not report.findings


LARGEST = """
    uint elem = thread_position_in_grid.x;
    T most = Limits<T>::min;
    for (int k = 0; k < N; ++k) most = max(most, exp(x[elem * N + k]));
    y[elem] = simd_shuffle_xor(simd_shuffle_xor(most, 1), 1);
"""


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_functions_of_narrow_types_stay_narrow(dtype: torch.dtype) -> None:
    kernel = metal_kernel("largest", ["x"], ["y"], LARGEST)
    x = torch.randn(8, 5).to(dtype)
    (y,) = kernel(
        inputs=[x],
        template=[("T", dtype), ("N", 5)],
        grid=(8, 1, 1),
        threadgroup=(8, 1, 1),
        output_shapes=[(8,)],
        output_dtypes=[dtype],
    )
    assert torch.equal(y, x.float().exp().to(dtype).amax(1))


LINE = "if (elem < 8) out[elem + 1] = inp[elem];"
WRONG = """
    uint elem = thread_position_in_grid.x;
    if (elem < 8) out[elem + 1] = inp[elem];
"""


def test_finding_stands_at_the_line_of_the_body() -> None:
    kernel = metal_kernel("wrong", ["inp"], ["out"], WRONG)
    with anymetal.check() as report:
        kernel(
            inputs=[torch.zeros(8)],
            grid=(8, 1, 1),
            threadgroup=(8, 1, 1),
            output_shapes=[(8,)],
            output_dtypes=[torch.float32],
        )
    (finding,) = (one for one in report.findings if one.kind == "out_of_bounds")
    position = finding.place.position
    assert position is not None and Path(position.file) == Path(__file__)
    assert Path(__file__).read_text().splitlines()[position.line - 1].strip() == LINE


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": []}, "myexp: inputs has 0, expected 1: inp"),
        ({"output_shapes": []}, "myexp: output_shapes has 0, expected 1: out"),
        ({"output_dtypes": [torch.float64]}, "dtype torch.float64: MLX kernels have float32"),
        ({"inputs": ["a"]}, "input 'inp' is str, expected a tensor or a number"),
        ({"inputs": [1 << 40]}, "input 'inp' is 1099511627776, which no int32 holds"),
        ({"stream": 1}, "stream is 1, expected None"),
    ],
)
def test_bad_call_names_the_argument(myexp: MetalKernel, given: dict[str, Any], words: str) -> None:
    good = {
        "inputs": [torch.zeros(8)],
        "output_shapes": [(8,)],
        "output_dtypes": [torch.float32],
        "grid": (8, 1, 1),
        "threadgroup": (8, 1, 1),
    }
    with pytest.raises((TypeError, ValueError), match=words):
        myexp(**{**good, **given})


def test_bad_kernel_names_the_argument() -> None:
    for given, words in (
        ({"output_names": []}, "output_names is empty"),
        ({"input_names": ["2d"]}, "'2d' is no name in Metal"),
        ({"input_names": ["y"]}, "two arrays are named 'y'"),
        ({"compile_options": {"mode": "fast"}}, "no compile option 'mode'"),
        ({"compile_options": {"math_mode": "best"}}, "math_mode is 'best', expected safe"),
        ({"source": None}, "source is None, expected a str"),
    ):
        good = {"name": "k", "input_names": ["x"], "output_names": ["y"], "source": ""}
        with pytest.raises((TypeError, ValueError), match=words):
            metal_kernel(**{**good, **given})  # type: ignore[arg-type]
