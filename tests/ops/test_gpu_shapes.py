"""Launch shapes that the policies keep for large GPUs, run and checked on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import anymetal
from anymetal import ops
from anymetal.ops.norms.rows import by_equal_turns
from anymetal.ops.quantised import matvec
from anymetal.ops.quantised.matvec import asked_shape
from anymetal.policy.policy import Choice, override

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
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


@pytest.mark.parametrize("sizes", [(1024, 40), (1026, 40)])
def test_four_elements_of_parameters_and_states(sizes: tuple[int, int]) -> None:
    """Tensors whose lengths do not divide go one element at a time, in the same call."""
    params, grads = ([normal(size, dtype=FP32) + i for size in sizes] for i in range(2))
    expected = [torch.nn.Parameter(param.double()) for param in params]
    for param, grad in zip(expected, grads, strict=True):
        param.grad = grad.double()
    torch.optim.AdamW(expected, lr=0.1, betas=(0.9, 0.99), weight_decay=0.1).step()

    def step() -> torch.Tensor:
        mine, steps = [param.clone() for param in params], torch.zeros(len(sizes))
        states = [torch.zeros(2, size) for size in sizes]
        ops.adam_step_(
            mine, grads, states, steps, 0.1, 0.9, 0.99, 1e-8, 0.1, decoupled_weight_decay=True
        )
        return torch.cat(mine)

    with override("adam_step_", "tables", group_size=64, chunk=512, width=4):
        close(silent(step), torch.cat(expected).detach(), 4.0)


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_logits_in_eights(dtype: torch.dtype) -> None:
    x, target = normal(3, 2056, dtype=dtype), torch.tensor([0, 7, 2055])
    with override("cross_entropy", "looped", group_size=64, width=8):
        result = silent(lambda: ops.cross_entropy(x, target))
    close(result, torch.nn.functional.cross_entropy(x.double(), target), 16.0)


@pytest.mark.parametrize(
    ("kind", "columns", "shape", "dtype"),
    [
        ("layer_norm", 1096, {"block_held": 16}, BF16),
        ("layer_norm", 1024, {"block_held": 16}, BF16),
        ("layer_norm", 1024, {"block_held": 32}, BF16),
        ("layer_norm", 1024, {"block_held": 16}, FP32),
        ("layer_norm", 1024, {"block_held": 32}, FP32),
        ("layer_norm", 1096, {"block_held": 32}, FP32),
        ("rms_norm", 1096, {"block_held": 32}, FP32),
        ("rms_norm", 1024, {"block_held": 32}, BF16),
        ("layer_norm", 1024, {"block_held": 16, "pairs_held": 16}, BF16),
        ("rms_norm", 1024, {"block_held": 16, "pairs_held": 16}, FP16),
        ("layer_norm", 1024, {"block_held": 16, "asked_columns": 1024}, BF16),
        ("rms_norm", 1024, {"block_held": 16, "asked_columns": 1024}, FP16),
        ("layer_norm", 1024, {"block_held": 32, "asked_columns": 1024}, FP16),
        ("rms_norm", 1024, {"block_held": 32, "asked_columns": 1024}, FP32),
        ("layer_norm", 1024, {"block_held": 32, "asked_columns": 1024}, FP32),
        ("layer_norm", 8704, {"asked_columns": 1024}, BF16),
        ("layer_norm", 8704, {"asked_columns": 1024}, FP32),
    ],
)
@pytest.mark.parametrize("rows", [36, 35])
def test_gradients_of_norms_with_rows_by_turns(
    kind: str, columns: int, shape: dict[str, int], dtype: torch.dtype, rows: int
) -> None:
    x, grad = (normal(rows, columns + i, dtype=dtype)[:, :columns].contiguous() for i in range(2))
    parameters = [normal(columns + i, dtype=dtype)[:columns] for i in range(2)]
    used = parameters if kind == "layer_norm" else parameters[:1]

    def gradients(function: Callable[..., torch.Tensor], wide: bool) -> torch.Tensor:
        leaves = [t.double() if wide else t.clone() for t in (x, *used)]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        result = function(leaves[0], (columns,), *leaves[1:])
        found = torch.autograd.grad(result, leaves, grad.to(result.dtype))
        return torch.cat([one.flatten() for one in found])

    name = f"{kind}_backward"
    usual = {"group_size": 1024, "block_columns": 16384, "long_columns": 8192, "long_held": 32}
    teams = {"cores": 5, "core_threads": 896, "core_memory": 1 << 22}  # 28, 14, 7 or 3 of a core
    with (
        override(name, "single_group", **usual | shape),
        override(name, "columns", rows_per_block=1, sharing=3, **teams),
    ):
        result = silent(lambda: gradients(getattr(ops, kind), False))
    exact = gradients(getattr(torch.nn.functional, kind), True)
    close(result, exact, 4.0 * float(exact.abs().max()))


@pytest.mark.parametrize(
    ("rows", "teams", "used"),
    [(16384, 264, 261), (4096, 132, 132), (4096, 128, 128), (130, 130, 130), (7, 3, 3), (0, 0, 0)],
)
def test_teams_take_equal_turns_where_few_are_left_idle(rows: int, teams: int, used: int) -> None:
    assert by_equal_turns(rows, teams) == used


@pytest.mark.parametrize(("columns", "name"), [(2048, "log_softmax"), (1024, "softmax")])
def test_softmax_of_rows_that_fill_all_threads(columns: int, name: str) -> None:
    x, grad = normal(7, columns) * 4, normal(7, columns + 8)[:, 8:].contiguous()
    shape = {"group_size": 64, "steps": columns // 256, "width": 8, "whole": 1}
    with override(name, "single_group", **shape):
        result = silent(lambda: getattr(ops, name)(x, -1))
    exact = getattr(torch, name)(x.double(), -1)
    close(result, exact, float(exact.abs().max()))
    leaf = x.clone().requires_grad_()
    with override(f"{name}_backward", "single_group", **shape):
        output = getattr(ops, name)(leaf, -1)
        found = silent(lambda: torch.autograd.grad(output, leaf, grad, retain_graph=True)[0])
    wide = x.double().requires_grad_()
    (expected,) = torch.autograd.grad(getattr(torch, name)(wide, -1), wide, grad.double())
    close(found, expected, 8.0 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("kind", "held", "dtype"),
    [("rms_norm", 32, BF16), ("layer_norm", 32, BF16), ("layer_norm", 16, FP32)],
)
def test_norms_of_rows_that_fill_all_threads(kind: str, held: int, dtype: torch.dtype) -> None:
    columns = 64 * held
    x = normal(5, columns, dtype=dtype) + 100
    parameters = [normal(columns + i, dtype=dtype)[:columns].clone() for i in range(2)]
    used = parameters if kind == "layer_norm" else parameters[:1]
    shape = {"group_size": 64, "held": held, "width": 16 // dtype.itemsize, "whole": 1}
    with override(kind, "single_group", **shape):
        result = silent(lambda: getattr(ops, kind)(x, (columns,), *used))
    wide = [p.double() for p in used]
    exact = getattr(torch.nn.functional, kind)(x.double(), (columns,), *wide)
    close(result, exact, 16.0)


def test_a_row_far_from_zero_that_begins_with_an_outlier() -> None:
    x, grad = normal(3, 2048, dtype=FP32) + 1000, normal(3, 2052, dtype=FP32)[:, :2048]
    x[:, 0] = 2000

    def gradient(leaf: torch.Tensor) -> torch.Tensor:
        function = ops.layer_norm if leaf.dtype == FP32 else torch.nn.functional.layer_norm
        weight = torch.ones(2048, dtype=leaf.dtype).requires_grad_()
        leaf = leaf.requires_grad_()
        result = function(leaf, (2048,), weight)
        found = torch.autograd.grad(result, (leaf, weight), grad.to(leaf.dtype))
        return torch.cat([one.flatten() for one in found])

    shape = {"block_columns": 2048, "block_held": 16, "long_columns": 8192}
    with override("layer_norm_backward", "single_group", group_size=1024, **shape):
        result = gradient(x.clone())
    exact = gradient(x.double())
    close(result, exact, 64.0 * float(exact.abs().max()))


@pytest.mark.parametrize(("width", "keys", "kv_heads"), [(128, 75, 1), (64, 100, 2), (128, 33, 2)])
@pytest.mark.parametrize("parts", [0, 1])
def test_teams_of_lanes_that_share_keys(width: int, keys: int, kv_heads: int, parts: int) -> None:
    q = normal(1, 2, 3, width)
    k, v = (normal(1, kv_heads, keys + i, width)[:, :, :keys].contiguous() for i in range(2))
    two = {"max_groups": 64 * parts, "min_keys": 32, "keys_per_part": 32}
    with override("scaled_dot_product_attention", group_size=64, width=8, rows=2, **two):
        result = silent(
            lambda: ops.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        )
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True
    )
    close(result, exact, float(v.double().abs().max()))


@pytest.mark.parametrize(("scheme", "columns"), [("int4", 2304), ("int8", 640)])
def test_four_words_of_quantised_weights(scheme: str, columns: int) -> None:
    x, weight = normal(2, columns), ops.quantize(normal(11, columns), scheme, 64)
    with override("quantized_linear", "dots", group_size=64, split=2, width=4):
        result = silent(lambda: ops.quantized_linear(x, weight))
    whole = ops.dequantize(weight, FP32).double()
    close(result, x.double() @ whole.T, float((x.double().abs() @ whole.abs().T).max()))


# Every kind of group, their sizes, both dtypes; rows that end within 16.
@pytest.mark.parametrize(
    ("scheme", "group", "columns", "dtype"),
    [
        ("int4", 64, 1280, BF16),
        ("int4", 128, 768, FP16),
        ("int4_zero_point", 32, 512, BF16),
        ("mlx_4bit", 64, 512, FP16),
        ("q4_0", 32, 512, BF16),
    ],
)
def test_quantised_weights_as_matrices(
    scheme: str, group: int, columns: int, dtype: torch.dtype
) -> None:
    x = normal(2, columns, dtype=dtype)
    weight = ops.quantize(normal(21, columns, dtype=dtype), scheme, group)
    shape = {"matrix_group_size": 64, "matrix_groups": 99}
    with override("quantized_linear", "dots", split=1, **shape):
        result = silent(lambda: ops.quantized_linear(x, weight))
    whole = ops.dequantize(weight, FP32).double()
    close(result, x.double() @ whole.T, float((x.double().abs() @ whole.abs().T).max()))


Shape = tuple[int, int, int, int]


def _asked(
    x: torch.Tensor,
    scheme: str,
    group: int,
    rows: int,
    shape: Shape,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> None:
    """A product by matvec_asked is near the exact one; fewer rows than a tile has go elsewhere."""
    weight = ops.quantize(normal(rows, x.shape[-1], dtype=x.dtype) / 16, scheme, group)
    names = ("asked_tiles", "asked_items", "asked_simdgroups", "asked_groups")
    with (
        override("quantized_linear", "dots", **dict(zip(names, shape, strict=True))),
        mock.patch.object(matvec, "_asked", wraps=matvec._asked) as asked,
    ):
        result = silent(lambda: ops.quantized_linear(x, weight, bias, activation=activation))
    assert asked.called == (rows >= 16)
    whole = ops.dequantize(weight, FP32).double()
    exact = x.double() @ whole.T
    if bias is not None:
        exact += bias.double()
    if activation is not None:
        exact = getattr(F, activation)(exact)
    close(result, exact, float((x.double().abs() @ whole.abs().T).max()))


@pytest.mark.parametrize(
    ("rows", "columns", "shape"),
    [
        (2048, 4096, (1, 8)),
        (4096, 4096, (1, 8)),
        (4096, 14336, (2, 16)),
        (8192, 8192, (2, 8)),
        (16384, 4096, (2, 8)),
    ],
)
def test_tiles_and_simdgroups_of_quantised_weights(
    rows: int, columns: int, shape: tuple[int, int]
) -> None:
    """As was fastest on an H200: all threadgroups at once, of as few tiles as that takes."""
    values = {"asked_tiles": 2, "asked_items": 2, "asked_simdgroups": 8, "asked_groups": 264}
    assert asked_shape(Choice(128, values, "this test"), rows, 1, columns) == shape


# Every kind of group, both sizes, both dtypes; rows that end within a tile or a threadgroup, fewer
# than either has, an odd number of blocks, fewer blocks than simdgroups, and as many as long rows
# have.
@pytest.mark.parametrize(
    ("scheme", "group", "rows", "columns", "dtype"),
    [
        ("int4", 64, 37, 1280, BF16),
        ("int4", 64, 16, 14336, BF16),
        ("int4", 128, 90, 768, FP16),
        ("int4_zero_point", 64, 1, 256, BF16),
        ("int4_zero_point", 64, 17, 256, BF16),
        ("int4_zero_point", 128, 33, 2304, FP16),
        ("mlx_4bit", 64, 28, 4352, FP16),
        ("mlx_4bit", 128, 45, 4352, BF16),
    ],
)
@pytest.mark.parametrize("shape", [(2, 2, 8, 2), (2, 4, 8, 1), (1, 3, 4, 9), (2, 2, 16, 1)])
def test_quantised_weights_that_are_asked_for(
    scheme: str,
    group: int,
    rows: int,
    columns: int,
    dtype: torch.dtype,
    shape: Shape,
) -> None:
    _asked(normal(2, columns, dtype=dtype), scheme, group, rows, shape)


@pytest.mark.parametrize("activation", [None, "silu", "gelu"])
def test_quantised_weights_that_are_asked_for_with_a_bias(activation: str | None) -> None:
    _asked(normal(3, 768), "int4", 64, 40, (2, 2, 8, 1), normal(40), activation)


# Activations of every size beside each other: the matrices are of halves, whose range is small.
@pytest.mark.parametrize(("largest", "dtype"), [
    (0.0, BF16), (1e-33, BF16), (1e-6, BF16), (1.0, BF16), (1e5, BF16), (1e37, BF16),
    (1e-2, FP16), (6e4, FP16),
])  # fmt: skip
def test_quantised_weights_and_activations_of_all_sizes(largest: float, dtype: torch.dtype) -> None:
    x = normal(1, 1024, dtype=FP32)
    x = (x / x.abs().max() * torch.logspace(-6, 0, 1024) * largest).to(dtype)
    _asked(x, "int4", 64, 20, (2, 2, 8, 1))


@pytest.mark.parametrize(("parts", "matrices"), [(1, 0), (2, 0), (1, 1), (2, 1)])
def test_teams_of_lanes_that_share_paged_keys(parts: int, matrices: int) -> None:
    keys, heads = 75 + 64 * matrices, 2
    caches = [normal(10 + i, 16, heads, 128)[:10] for i in range(2)]
    table = torch.tensor([[3, 1, 5, 0, 2, 9, 4, 8, 6]], dtype=torch.int32)
    query = normal(1, 8, 128)
    shape = {"group_size": 64, "rows_per_group": 4, "width": 8, "keys_per_part": keys // parts + 1}
    with override("paged_attention", max_groups=64, matrices=matrices, **shape):
        result = silent(
            lambda: ops.paged_attention(
                query, *caches, table, torch.tensor([keys], dtype=torch.int32)
            )
        )
    k, v = (
        cache[table[0].long()].flatten(0, 1)[:keys].transpose(0, 1).double() for cache in caches
    )
    k, v = (one.repeat_interleave(4, 0)[None] for one in (k, v))
    exact = torch.nn.functional.scaled_dot_product_attention(query.double().unsqueeze(2), k, v)
    close(result, exact.squeeze(2), float(v.abs().max()))
