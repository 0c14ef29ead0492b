"""matmul, linear and addmm: every kernel, layout, epilogue and edge, gradients, messages."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import called, doubled, judge

import anymetal
from anymetal import ops
from anymetal.errors import PolicyError
from anymetal.ops.declare import variants
from anymetal.ops.matmul.product import Epilogue, product_of
from anymetal.policy.policy import override

ALL = os.environ.get("ANYMETAL_TEST_ALL") == "1"  # make thorough
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kernels" / "simdgroup_matmul.metal"


def random(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + math.prod(shape)))


def judge_matmul(a: torch.Tensor, b: torch.Tensor, where: str) -> torch.Tensor:
    result = ops.matmul(a, b)
    judge(result, doubled(a) @ doubled(b), a @ b, where)
    return result


# --- which kernel ---------------------------------------------------------------------------------

CHOSEN = {
    "dots_1/vec4": ((1, 36), (9, 36), True),
    "dots_1/scalar": ((1, 37), (600, 37), True),
    "dots_4/vec4": ((2, 32), (700, 32), True),
    "dots_4/scalar": ((3, 33), (33, 5), False),
    "columns_8/vec4": ((7, 20), (20, 36), False),
    "columns_1/scalar": ((1, 20), (20, 35), False),
    "tiles_32x32x16_2x2_nn/vec4": ((9, 20), (20, 36), False),
    "tiles_32x32x16_2x2_nt/scalar": ((33, 17), (31, 17), True),
    "tiles_64x32x16_2x2_nn/vec4": ((2100, 4), (4, 32), False),
    "tiles_32x64x16_2x2_nt/vec4": ((32, 8), (2100, 8), True),
    "tiles_64x64x16_2x2_nn/scalar": ((258, 3), (3, 259), False),
}


@pytest.mark.parametrize("kernel", CHOSEN)
def test_kernel_for_the_shape_is_chosen_and_right(kernel: str) -> None:
    left, right, flipped = CHOSEN[kernel]
    a, b = random(*left), random(*right)
    judge_matmul(a, b.t() if flipped else b, kernel)
    assert variants.last() == f"matmul/fp32/{kernel}"
    # The transposed product is another one with the same numbers.
    judge_matmul((b.t() if flipped else b).t(), a.t(), f"{kernel}, transposed")


LAYOUTS = ("nn", "nt", "tn", "tt")
# Every tile in two layouts and every layout with two tiles; `make thorough` has all pairs.
TILES = [
    (rows, columns, layout)
    for rows, columns in ((32, 32), (64, 64), (32, 64), (64, 32))
    for layout in LAYOUTS
    if os.environ.get("ANYMETAL_TEST_ALL") == "1"
    or (rows == columns) == (LAYOUTS.index(layout) % 3 == 0)
]


@pytest.mark.parametrize(("rows", "columns", "layout"), TILES)
def test_tile_in_a_layout(rows: int, columns: int, layout: str) -> None:
    a = random(70, 52) if layout[0] == "n" else random(52, 70).t()
    b = random(52, 66) if layout[1] == "n" else random(66, 52).t()
    with override("matmul", "tiles", rows=rows, columns=columns):
        judge_matmul(a, b, f"{rows}x{columns} {layout}")
    asked = "nn" if layout == "tt" else layout
    assert f"tiles_{rows}x{columns}x16_2x2_{asked}/" in (variants.last() or "")


@pytest.mark.parametrize("split", [1, 2, 8])
@pytest.mark.parametrize("length", [1, 200, 1031])
def test_simdgroups_that_share_a_sum(split: int, length: int) -> None:
    a, b = random(3, length), random(6, length).t()
    with override("matmul", "dots", split=split, group_size=256):
        judge_matmul(a, b, f"split in {split}")


def test_tile_that_is_not_there_is_an_error() -> None:
    a = random(20, 20)
    with (
        override("matmul", "tiles", rows=48),
        pytest.raises(PolicyError, match=r"no tile of rows 48, .*; there are 64x64x16 in 2x2"),
    ):
        ops.matmul(a, a)
    with override("matmul", "tiles", group_size=96), pytest.raises(PolicyError, match="96 threads"):
        ops.matmul(a, a)
    with override("matmul", "dots", split=3), pytest.raises(PolicyError, match="split is 3"):
        ops.matmul(a, a[0])


# --- shapes and layouts ---------------------------------------------------------------------------


@st.composite
def operands(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors that can be multiplied, of any rank up to four, in any order of memory."""
    size = st.sampled_from([0, 1, 2, 3, 7, 8, 9, 12, 16, 31, 33, 40])
    m, n, k = draw(size), draw(size), draw(size)
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    shapes = []
    for matrix in ((m, k), (k, n)):
        kept = batch[draw(st.integers(0, len(batch))) :]
        shapes.append([draw(st.sampled_from([1, each])) for each in kept] + list(matrix))
    if draw(st.integers(0, 4)) == 0:
        shapes[0] = [k]
    if draw(st.integers(0, 4)) == 0:
        shapes[1] = [k]
    return _laid_out(draw, shapes[0], 1), _laid_out(draw, shapes[1], 2)


def _laid_out(draw: st.DrawFn, shape: list[int], seed: int) -> torch.Tensor:
    order = draw(st.permutations(range(len(shape))))
    apart = draw(st.sampled_from([1, 1, 2]))
    memory = random(*(shape[i] for i in order), apart, seed=seed)[..., 0]
    places = [order.index(i) for i in range(len(shape))]
    return memory.permute(places)


@settings(max_examples=150 if ALL else 60, deadline=None, derandomize=True)
@given(operands())
def test_any_shape_and_layout(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    a, b = pair
    result, exact = ops.matmul(a, b), doubled(a) @ doubled(b)
    assert result.shape == exact.shape
    # A few roundings of the products' sizes: a sum may be much smaller than they are.
    allowed = 4 * torch.finfo(torch.float32).eps * (doubled(a).abs() @ doubled(b).abs())
    assert ((result.double() - exact).abs() <= allowed).all(), f"{a.stride()} {b.stride()}"


@settings(max_examples=40, deadline=None, derandomize=True)
@given(operands())
def test_gradients_of_any_shape_and_layout(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    exact = called(torch.matmul, [doubled(tensor) for tensor in pair], {})
    mine = called(ops.matmul, list(pair), {})
    torch.testing.assert_close([each.double() for each in mine], list(exact), rtol=1e-5, atol=2e-5)


def test_operands_are_read_where_they_lie() -> None:
    def copied(a: torch.Tensor, b: torch.Tensor) -> list[bool]:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        output = torch.empty(*batch, a.shape[-2], b.shape[-1])
        product = product_of(a, b, output, Epilogue())
        memory = {product.a.tensor.data_ptr(), product.b.tensor.data_ptr()}
        return [tensor.data_ptr() not in memory for tensor in (a, b)]

    assert copied(random(20, 30), random(30, 10)) == [False, False]
    assert copied(random(30, 20).t(), random(10, 30).t()) == [False, False]
    assert copied(random(2, 30, 20).mT, random(4, 1, 30, 10)) == [False, False]
    # Heads of an attention: [batch, length, heads, size] as [batch, heads, length, size].
    heads = random(2, 10, 3, 8).transpose(1, 2)
    assert copied(heads, heads.mT) == [False, False]
    assert copied(random(20, 30).expand(5, 20, 30), random(30, 10)) == [False, False]
    assert copied(random(20, 60)[:, ::2], random(30, 10)) == [True, False]


@pytest.mark.parametrize(
    ("left", "right", "rows"),
    [((4, 5, 30), (30, 12), 20), ((6, 1, 30), (30, 40), 6), ((30, 30), (5, 30, 1), 5)],
)
def test_batch_of_one_matrix_becomes_rows(
    left: tuple[int, ...], right: tuple[int, ...], rows: int
) -> None:
    a, b = random(*left), random(*right)
    batch = torch.broadcast_shapes(left[:-2], right[:-2])
    product = product_of(a, b, torch.empty(*batch, left[-2], right[-1]), Epilogue())
    assert (product.batch, product.m) == ((), rows)
    judge_matmul(a, b, f"{left} by {right}")


@pytest.mark.parametrize("k", [512, 4096])
def test_long_sums_keep_their_digits(k: int) -> None:
    a, b = random(17, k), random(k, 18)
    judge_matmul(a, b, f"k = {k}")
    judge_matmul(a[:3], random(k, 40), f"k = {k}, few rows")


def test_same_bits_every_time() -> None:
    a, b = random(70, 130), random(130, 70)
    first = ops.matmul(a, b)
    assert all(torch.equal(ops.matmul(a, b), first) for _ in range(3))


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 35, 37), (3, 35, 37), (3, 37, 4), (1, 33, 1)])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan], ids=str)
def test_infinities_and_nans_stay_in_their_row_and_column(
    shape: tuple[int, int, int], value: float
) -> None:
    m, k, n = shape
    a, b = random(m, k), random(k, n)
    a[m - 1, k - 1] = value  # at the ragged edge, where rows past the end are copies of this one
    b[0, 0] = value
    torch.testing.assert_close(ops.matmul(a, b), a @ b, equal_nan=True, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        ops.matmul(a, b.t().contiguous().t()), a @ b, equal_nan=True, rtol=1e-4, atol=1e-5
    )


def test_extreme_values() -> None:
    a = torch.full((9, 20), 300.0, dtype=torch.float16)
    assert ops.matmul(a, a.t()).isinf().all()  # 1.8 million, more than a half holds
    # Sums pass 65504 on the way, and come back: they are floats.
    signs = torch.tensor([1.0, -1.0]).repeat_interleave(10).half()
    assert (ops.matmul(a * signs, a.t()) == 0).all()
    tiny = torch.full((9, 20), 1e-39)
    judge_matmul(tiny, torch.ones(20, 9), "denormals")
    large = torch.full((9, 20), 1e30)
    assert ops.matmul(large, large.t()).isinf().all()
    equal = torch.full((33, 100), 1000.25)
    judge_matmul(equal, equal.t(), "all equal")


# --- linear ---------------------------------------------------------------------------------------

ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def torchs_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
) -> torch.Tensor:
    result = ACTIVATIONS[activation](F.linear(x, weight, bias))
    return result if residual is None else result + residual


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
) -> torch.Tensor:
    return ops.linear(x, weight, bias, activation=activation, residual=residual)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("given", ["bias", "residual", "both", "neither"])
@pytest.mark.parametrize("rows", [3, 40])
def test_epilogue_and_its_gradient(activation: str | None, given: str, rows: int) -> None:
    bias = random(12) if given in ("bias", "both") else None
    residual = random(rows, 12) if given in ("residual", "both") else None
    args: list[Any] = [random(rows, 33), random(12, 33) / 6, bias, residual, activation]
    doubles = [doubled(arg) for arg in args]
    judge(linear(*args), torchs_linear(*doubles), torchs_linear(*args), given)
    judge(
        called(linear, args, {}),
        called(torchs_linear, doubles, {}),
        called(torchs_linear, args, {}),
        f"gradient with {given}",
    )


@pytest.mark.parametrize(
    ("input", "weight"), [((7,), (5, 7)), ((7,), (7,)), ((2, 3, 7), (7,)), ((0, 7), (5, 7))]
)
def test_linear_of_vectors(input: tuple[int, ...], weight: tuple[int, ...]) -> None:
    shape = (*input[:-1], *weight[:-1])
    args: list[Any] = [
        random(*input),
        random(*weight),
        random(*weight[:-1]),
        random(*shape),
        "silu",
    ]
    judge(linear(*args), torchs_linear(*map(doubled, args)), torchs_linear(*args), "vectors")
    exact = called(torchs_linear, [doubled(arg) for arg in args], {})
    judge(called(linear, args, {}), exact, called(torchs_linear, args, {}), "their gradient")


def test_linear_takes_strided_operands() -> None:
    x = random(3, 20, 5).permute(2, 0, 1)
    residual = random(16, 3, 5).permute(2, 1, 0)
    args: list[Any] = [x, random(20, 16).t(), random(32)[::2], residual, "gelu"]
    judge(linear(*args), torchs_linear(*map(doubled, args)), torchs_linear(*args), "strided")


def test_sum_is_rounded_once() -> None:
    x = torch.full((10, 4), 132.5).half()
    result = ops.linear(x, x, residual=torch.full((10, 10), -60000.0).half())
    # 70225 is more than a half holds, 10225 is nearest to 10224.
    assert (result == 10224.0).all()


def test_compiled_with_any_number_of_rows() -> None:
    weight, bias = random(12, 20), random(12)

    def function(x: torch.Tensor) -> torch.Tensor:
        return ops.matmul(ops.linear(x, weight, bias, activation="gelu"), weight)

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (9, 10, 40):
        x = random(rows, 20)
        assert torch.equal(compiled(x), function(x))
    torch._dynamo.reset()


# --- addmm, higher gradients ----------------------------------------------------------------------


def test_addmm_with_beta_zero_does_not_read_its_input() -> None:
    a, b = random(9, 20), random(20, 10)
    result = ops.addmm(torch.full((10,), math.nan), a, b, beta=0.0, alpha=2.0)
    torch.testing.assert_close(result, 2 * (a @ b))
    assert (ops.addmm(torch.ones(10), a[:, :0], b[:0], beta=3.0) == 3.0).all()


def test_matmul_can_be_differentiated_twice() -> None:
    def second(function: Any, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        a = random(3, 1, 9, 12).to(dtype).requires_grad_()
        b = random(2, 12, 5).to(dtype).requires_grad_()
        first = torch.autograd.grad(function(a, b).pow(3).sum(), (a, b), create_graph=True)
        return torch.autograd.grad(sum(each.pow(2).sum() for each in first), (a, b))

    torchs = second(torch.matmul, torch.float32)
    judge(second(ops.matmul, torch.float32), second(torch.matmul, torch.float64), torchs, "twice")


def test_activation_can_be_differentiated_once() -> None:
    x, weight = random(9, 12).requires_grad_(), random(10, 12)
    gradient = torch.autograd.grad(
        ops.linear(x, weight, activation="silu").sum(), x, create_graph=True
    )
    with pytest.raises(RuntimeError, match="linear_slope has no gradient: linear with an activ"):
        gradient[0].sum().backward()


# --- checker --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel", ["tiles_64x64x16_2x2_nn/scalar", "columns_1/scalar", "dots_4/vec4"]
)
def test_kernel_is_silent_under_the_checker(kernel: str) -> None:
    left, right, flipped = CHOSEN[kernel]
    # The last row and column of a tile and no more: every thread fetches past the edges.
    a, b = random(*(min(size, 66) for size in left)), random(*(min(size, 66) for size in right))
    with (
        override("matmul", "tiles", rows=64, columns=64),
        override("matmul", "dots", split=4),
        anymetal.check() as report,
    ):
        ops.matmul(a, b.t() if flipped else b)
    assert (variants.last() or "").endswith(kernel)
    assert not report.findings, report


def test_epilogue_is_silent_under_the_checker() -> None:
    with anymetal.check() as report:
        ops.linear(
            random(9, 20), random(12, 20), random(12), activation="gelu", residual=random(9, 12)
        )
    assert not report.findings, report


def test_benchmark_kernel() -> None:
    kernel = anymetal.compile_shader(BENCHMARK.read_text()).simdgroup_matmul
    m, n, k = 64, 128, 48
    a, b, c = random(m, k), random(k, n), torch.full((m, n), math.nan)
    with anymetal.check() as report:
        kernel(a, b, c, m, n, k, threads=(n // 64 * 128, m // 64), group_size=(128, 1))
    torch.testing.assert_close(c, a @ b, rtol=1e-5, atol=1e-5)
    assert not report.findings, report


# --- messages -------------------------------------------------------------------------------------


def test_wrong_shapes() -> None:
    a = random(2, 3)
    with pytest.raises(
        ValueError,
        match=r"matmul: argument 'other' expects size 3 in dimension -2 \(the last size of 'input',"
        r" whose shape is \[2, 3\]\), got shape \[4, 5\]",
    ):
        ops.matmul(a, random(4, 5))
    with pytest.raises(ValueError, match=r"\[2\] of 'input' and \[3\] of 'other', cannot be broad"):
        ops.matmul(random(2, 2, 3), random(3, 3, 2))
    with pytest.raises(ValueError, match=r"matmul: argument 'input' expects at least one dimens"):
        ops.matmul(torch.tensor(1.0), a)
    with pytest.raises(TypeError, match=r"matmul: argument 'other' expects float32, got float16"):
        ops.matmul(a, random(3, 2).half())
    with pytest.raises(ValueError, match=r"matmul: the result of shape \[65536, 65536\] has 4294"):
        ops.matmul(torch.zeros(1, 1).expand(65536, 1), torch.zeros(1, 1).expand(1, 65536))
    with pytest.raises(ValueError, match=r"linear: argument 'weight' expects shape \[5, 3\]"):
        ops.linear(a, random(5, 4))
    with pytest.raises(ValueError, match=r"linear: argument 'weight' expects shape \[out, in\]"):
        ops.linear(a, random(2, 5, 3))
    with pytest.raises(ValueError, match=r"linear: argument 'bias' expects shape \[5\]"):
        ops.linear(a, random(5, 3), random(4))
    with pytest.raises(ValueError, match=r"linear: argument 'residual' expects shape \[2, 5\]"):
        ops.linear(a, random(5, 3), residual=random(5))
    with pytest.raises(ValueError, match=r"'activation' expects None, 'relu', .*, got 'tanh'"):
        ops.linear(a, random(5, 3), activation="tanh")
    with pytest.raises(ValueError, match=r"addmm: argument 'mat2' expects shape \[3, 5\]"):
        ops.addmm(a, a, random(4, 5))
    with pytest.raises(ValueError, match=r"addmm: argument 'mat1' expects two dimensions, got"):
        ops.addmm(a, random(2, 2, 3), a)
    with pytest.raises(ValueError, match=r"a shape that broadcasts to \[2, 2\], got \[3\]"):
        ops.addmm(random(3), a, random(3, 2))


def test_batch_of_many_dimensions_that_do_not_collapse() -> None:
    """Kernels walk four of them; operands with more are copied."""
    a = torch.randn(2, 1, 3, 1, 2, 1, 2, 3, 4)
    b = torch.randn(1, 2, 1, 2, 1, 3, 1, 4, 5)
    torch.testing.assert_close(ops.matmul(a, b), a @ b)
