"""Launch shapes that the policies keep for large GPUs, run and checked on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import anymetal
from anymetal import ops
from anymetal.policy.policy import override

BF16, FP32 = torch.bfloat16, torch.float32
WIDE = {"group_size": 128, "rows": 128, "depth": 32, "columns": 128, "width": 8}
TALL = {"group_size": 128, "rows": 128, "depth": 16, "columns": 64}
QUERIES = {"group_size": 64, "width": 8, "matrices": 2, "ahead": 1}


def normal(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def silent(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The result of a call, of which the checker says nothing."""
    plain = call()
    with anymetal.check() as report:
        checked = call()
    assert not report.findings
    assert torch.equal(plain, checked)
    return plain


def close(result: torch.Tensor, exact: torch.Tensor, scale: float) -> None:
    eps = torch.finfo(result.dtype).eps
    assert float((result.double() - exact).abs().max()) <= 2 * eps * scale


@pytest.mark.parametrize(
    ("sizes", "dtype", "tile"),
    [((136, 40, 152), BF16, WIDE), ((129, 36, 68), FP32, TALL)],
)
def test_large_tiles(sizes: tuple[int, int, int], dtype: torch.dtype, tile: dict[str, int]) -> None:
    m, k, n = sizes
    a, b = normal(m, k, dtype=dtype), normal(k, n, dtype=dtype)
    with override("matmul", "tiles", simdgroup_rows=2, max_results=0, **tile):
        result = silent(lambda: ops.matmul(a, b))
    close(result, a.double() @ b.double(), float((a.double().abs() @ b.double().abs()).max()))


def test_sixteen_queries_a_simdgroup_with_keys_on_their_way() -> None:
    q, k, v = normal(1, 2, 41, 64), normal(1, 2, 75, 64), normal(1, 2, 75, 64)
    with override("scaled_dot_product_attention", "tiles", **QUERIES):
        result = silent(lambda: ops.scaled_dot_product_attention(q, k, v, is_causal=True))
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=True
    )
    close(result, exact, float(v.double().abs().max()))


def test_simdgroups_that_share_columns_of_quantised_weights() -> None:
    x, weight = normal(1, 1088), ops.quantize(normal(11, 1088), "int4", 64)
    with override("quantized_linear", "dots", group_size=128, split=4):
        result = silent(lambda: ops.quantized_linear(x, weight))
    whole = ops.dequantize(weight, FP32).double()
    close(result, x.double() @ whole.T, float((x.double().abs() @ whole.abs().T).max()))


@pytest.mark.parametrize("columns", [2048, 1096])
def test_eight_elements_an_access(columns: int) -> None:
    x = normal(3, columns)
    with override("layer_norm", "single_group", group_size=64, held=32, width=8):
        result = silent(lambda: ops.layer_norm(x, (columns,)))
    close(result, torch.nn.functional.layer_norm(x.double(), (columns,)), 4.0)
    with override("softmax", "single_group", group_size=64, steps=8, width=8):
        result = silent(lambda: ops.softmax(x, -1))
    close(result, torch.softmax(x.double(), -1), float(torch.softmax(x.double(), -1).max()))
