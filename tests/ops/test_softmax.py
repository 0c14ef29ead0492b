"""softmax and log_softmax: every strategy, extreme rows, dtypes, memory orders, messages."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from judging import called, doubled, judge

import anymetal
from anymetal import ops
from anymetal.ops.declare import variants
from anymetal.policy.policy import override

Function = Callable[..., torch.Tensor]
BOTH: dict[str, tuple[Function, Function]] = {
    "softmax": (ops.softmax, torch.softmax),
    "log_softmax": (ops.log_softmax, torch.log_softmax),
}
each_function = pytest.mark.parametrize("name", BOTH)

STRATEGIES = {
    "single_simdgroup/vec4": (5, 256),
    "single_simdgroup/scalar": (5, 33),
    "single_group/vec4": (2, 260),
    "single_group/scalar": (2, 2047),
    "looped/vec4": (9, 2052),
    "looped/scalar": (2, 2051),
    "two_phase/vec4": (2, 20004),
    "two_phase/scalar": (1, 17001),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
@each_function
def test_each_strategy_is_chosen_and_right(name: str, strategy: str) -> None:
    mine, torchs = BOTH[name]
    x = torch.randn(STRATEGIES[strategy], generator=torch.Generator().manual_seed(3)) * 4
    with variants.recorded() as keys:
        result = mine(x, -1)
        gradients = called(mine, [x, -1], {})
    assert keys == [f"{name}/fp32/{strategy}"] * 2 + [f"{name}_backward/fp32/{strategy}"]
    judge(result, torchs(doubled(x), -1), torchs(x, -1), strategy)
    own = called(torchs, [x, -1], {})
    judge(gradients, called(torchs, [doubled(x), -1], {}), own, f"gradient of {strategy}")


@pytest.mark.parametrize("strategy", ["looped/scalar", "two_phase/vec4", "single_group/vec4"])
def test_strategy_is_silent_under_the_checker(strategy: str) -> None:
    x = torch.randn(STRATEGIES[strategy], requires_grad=True)
    with anymetal.check() as report:
        ops.softmax(x, -1).sum().backward()
    assert not report.findings, report


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_longer_rows_in_registers(dtype: torch.dtype) -> None:
    """As an NVIDIA GPU holds them; some threads have nothing but -inf, one row has nothing else."""
    x = torch.randn(4, 1028).to(dtype)
    x[1, 128:] = -torch.inf
    x[2, :] = -torch.inf
    x[3, 5] = torch.nan
    with override("softmax", "single_group", group_size=64, steps=8):
        result = ops.softmax(x, -1)
    judge(result[:2], torch.softmax(doubled(x[:2]), -1), torch.softmax(x[:2], -1), "softmax")
    assert result[2:].isnan().all()


def test_launch_follows_the_policy() -> None:
    x = torch.randn(3, 500)
    expected = torch.softmax(x, -1)
    with override("softmax", "single_simdgroup", steps=4), variants.recorded() as keys:
        torch.testing.assert_close(ops.softmax(x, -1), expected)
    assert keys == ["softmax/fp32/single_simdgroup/vec4"]
    with override("softmax", "single_group", group_size=32), variants.recorded() as keys:
        torch.testing.assert_close(ops.softmax(x, -1), expected)
    assert keys == ["softmax/fp32/looped/vec4"]
    with (
        override("softmax", "single_group", group_size=32),
        override("softmax", "two_phase", min_columns=300, chunk=130, group_size=64),
        variants.recorded() as keys,
    ):
        torch.testing.assert_close(ops.softmax(x, -1), expected)
    assert keys == ["softmax/fp32/two_phase/vec4"]


ROWS = {
    "large mean": [1e4 + i for i in range(7)],
    "huge mean": [3e38] * 5,
    "all equal": [2.5] * 40,
    "denormal": [1e-40, -1e-40, 1e-45, 0.0],
    "some masked": [-math.inf, 1.0, -math.inf, 2.0],
    "first elements masked": [-math.inf] * 300 + [0.5],
    "all masked": [-math.inf] * 35,
    "infinite": [math.inf, 1.0, 2.0],
    "not a number": [1.0, math.nan, 2.0],
    "masked and not a number": [-math.inf, math.nan],
    "far apart": [-3e38, 3e38],
}


@pytest.mark.parametrize("row", ROWS)
@each_function
def test_extreme_rows_are_torchs(name: str, row: str) -> None:
    mine, torchs = BOTH[name]
    x = torch.tensor([ROWS[row]])
    judge(mine(x, -1), torchs(doubled(x), -1), torchs(x, -1), row)
    judge(mine(x.t(), 0), torchs(doubled(x).t(), 0), torchs(x.t(), 0), row)
    column = x.reshape(-1, 1).repeat(1, 3)  # another kernel: the dimension is not the last
    judge(mine(column, 0), torchs(doubled(column), 0), torchs(column, 0), row)


@pytest.mark.parametrize("length", [3000, 20000])
def test_all_masked_long_row_is_nan_and_its_neighbour_is_not(length: int) -> None:
    x = torch.zeros(2, length)
    x[0] = -math.inf
    result = ops.softmax(x, -1)
    assert result[0].isnan().all()
    torch.testing.assert_close(result[1], torch.full((length,), 1 / length))


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("input_dtype", [torch.float32, torch.float16])
def test_dtype_argument(input_dtype: torch.dtype, dtype: torch.dtype | None) -> None:
    x = torch.randn(3, 40).to(input_dtype)
    result = ops.softmax(x, -1, dtype=dtype)
    own = torch.softmax(x, -1, dtype=dtype)
    as_torch_sees_it = x if dtype is None else x.to(dtype)
    judge(result, torch.softmax(as_torch_sees_it.double(), -1), own, "dtype")
    gradient = called(lambda t: ops.softmax(t, -1, dtype=dtype), [x], {})
    torchs = called(lambda t: torch.softmax(t, -1, dtype=dtype), [x], {})
    assert gradient[0].dtype == input_dtype
    torch.testing.assert_close(gradient, torchs, rtol=2e-2, atol=2e-3)


def test_half_input_with_float_result_is_not_copied() -> None:
    x = torch.randn(3, 40).half()
    with variants.recorded() as keys:
        result = ops.softmax(x, -1, dtype=torch.float32)
    assert keys == ["softmax/fp16/single_simdgroup/vec4"]
    torch.testing.assert_close(result, torch.softmax(x.float(), -1))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@each_function
def test_any_dimension_in_any_memory_order(
    name: str, order: tuple[int, int, int], dim: int
) -> None:
    mine, torchs = BOTH[name]
    x = torch.randn(3, 4, 37).permute(order)
    result = mine(x, dim)
    torch.testing.assert_close(result, torchs(x, dim), rtol=1e-5, atol=1e-6)
    assert result.stride() == x.stride()  # dense inputs are walked as they lie


def test_dimension_with_stride_one_needs_no_strided_kernel() -> None:
    x = torch.randn(5, 40).t()
    ops.softmax(x, 0)
    assert variants.last() == "softmax/fp32/single_simdgroup/vec4"
    ops.softmax(x, 1)
    assert variants.last() == "softmax/fp32/columns/scalar"


def test_scalar_and_one_element() -> None:
    assert ops.softmax(torch.tensor(3.0), 0).item() == 1.0
    assert ops.log_softmax(torch.tensor(3.0), -1).item() == 0.0
    assert ops.softmax(torch.tensor(3.0), 0).shape == ()


def test_many_columns_and_long_columns() -> None:
    for shape in ((2, 7, 129), (3000, 3), (5, 1000)):
        x = torch.randn(shape)
        torch.testing.assert_close(ops.softmax(x, -2), torch.softmax(x, -2), rtol=1e-5, atol=1e-6)


def test_wrong_dimension_and_dtype() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(
        IndexError,
        match=r"softmax: argument 'dim' expects -2 to 1 for shape \[2, 3\]"
        r", got 2",
    ):
        ops.softmax(x, 2)
    with pytest.raises(
        TypeError, match=r"log_softmax: argument 'dtype' expects .*, got torch.int32"
    ):
        ops.log_softmax(x, 0, torch.int32)
