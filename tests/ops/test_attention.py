"""scaled_dot_product_attention: each kernel, the product of its options, and torch's corners."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import called, doubled
from torch.nn.attention import SDPBackend, sdpa_kernel

import anymetal
from anymetal import ops
from anymetal.errors import LimitError
from anymetal.evidence.judge import relative_error
from anymetal.ops.attention import cases as attention_cases
from anymetal.ops.declare import OPERATORS, Case, variants
from anymetal.policy.policy import override

CPU = torch.device("cpu")
NAME = "scaled_dot_product_attention"
OPERATOR = OPERATORS[NAME]
attend = ops.scaled_dot_product_attention
Function = Callable[..., Any]
BOTH: tuple[Function, Function] = (attend, F.scaled_dot_product_attention)


def made(case: Case, dtype: torch.dtype = torch.float32) -> tuple[list[Any], dict[str, Any]]:
    return case.make(dtype, CPU, torch.Generator().manual_seed(11))


def compared(args: list[Any], options: dict[str, Any], where: str, gradient: bool = True) -> None:
    """The operator and its gradient beside torch's own, against float64."""
    exact = [doubled(a) for a in args], {name: doubled(v) for name, v in options.items()}
    functions: list[Function] = [OPERATOR, OPERATOR.reference, attention_cases.baseline]
    given = [(args, options), exact, (args, options)]
    near([f(*a, **k) for f, (a, k) in zip(functions, given, strict=True)], where)
    if gradient:
        results = [called(f, a, k) for f, (a, k) in zip(functions, given, strict=True)]
        near(results, f"gradient of {where}")


def near(results: list[Any], where: str) -> None:
    """The library's rule with a higher floor: a gradient may be one number here, and torch's exact
    by luck."""
    dtype = results[0][0].dtype
    floor = (10 if dtype == torch.float32 else 2) * torch.finfo(dtype).eps
    for mine, exact, own in zip(*results, strict=True):
        error, allowed = relative_error(mine, exact), 2 * relative_error(own, exact)
        assert error <= max(floor, allowed if allowed < math.inf else 0.0), f"{where}: {error}"


def tensors(
    queries: int = 5, keys: int = 7, heads: int = 2, width: int = 20
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(queries * 31 + keys)
    q = torch.randn(1, heads, queries, width, generator=generator)
    k, v = (torch.randn(1, heads, keys, width, generator=generator) for _ in range(2))
    return q, k, v


# --- the product of the options -------------------------------------------------------------------


# What a kernel is compiled for: mask, softcap and slopes. `make thorough` has the whole product.
COMPILED: list[tuple[str | None, float | None, bool]] = [
    ("bool", None, True),
    ("float", 2.0, False),
]
if os.environ.get("ANYMETAL_TEST_ALL") == "1":
    COMPILED = list(itertools.product((None, "bool", "float"), (None, 2.0), (False, True)))


@st.composite
def calls(draw: st.DrawFn) -> Case:
    mask, softcap, slopes = draw(st.sampled_from(COMPILED))
    # Never one head alone: the gradient of its slope is one sum that cancels, and has no scale.
    key_heads, shared_by = draw(st.sampled_from(((1, 3), (2, 1), (2, 3))))
    queries = draw(st.sampled_from((2, 9, 33)))
    keys = draw(st.sampled_from((8, 31, 33, 70)))
    options: dict[str, Any] = {
        "key_heads": key_heads,
        "mask": mask,
        "is_causal": draw(st.booleans()),
        "window": draw(st.sampled_from((None, 6, 40))),
        "softcap": softcap,
        "slopes": slopes,
        "sinks": draw(st.booleans()),
        "scale": draw(st.sampled_from((None, 0.4))),
        "offset": draw(st.sampled_from((0, keys - queries))),
        "transposed": draw(st.booleans()),
    }
    # Widths below 32, so that few kernels are compiled; larger ones have a test of their own.
    width, value_width = draw(st.sampled_from(((20, 20), (17, 9), (8, 24))))
    shape = (draw(st.sampled_from((1, 2))), key_heads * shared_by, queries, width)
    return attention_cases.case(shape, keys, value_width=value_width, **options)


@settings(
    max_examples=30 if os.environ.get("ANYMETAL_TEST_ALL") else 2,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(calls())
def test_any_options_together(case: Case) -> None:
    compared(*made(case), case.name)


# --- kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "value_width", "queries"), [(100, 72, 12), (256, 250, 12), (192, 256, 2)]
)
def test_wide_heads(width: int, value_width: int, queries: int) -> None:
    case = attention_cases.case((1, 2, queries, width), 41, value_width=value_width)
    compared(*made(case), f"{width} and {value_width} wide", gradient=width == 100)


def test_access_width_follows_the_policy() -> None:
    q, k, v = tensors(9, 40, width=128)
    with override(NAME, width=4), variants.recorded() as keys:
        result = attend(q, k, v)
        decoded = attend(q[:, :, :2], k, v)
    assert keys == [f"{NAME}/fp32/tiles/vec4", f"{NAME}/fp32/decode/vec4"]
    expected = F.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(decoded, expected[:, :, :2], rtol=1e-5, atol=1e-6)


def test_unaligned_keys_are_read_one_by_one() -> None:
    q, k, v = tensors(9, 40, width=128)
    around = torch.zeros(k.numel() + 2)
    moved = around[2:].view(k.shape).copy_(k)
    with override(NAME, width=4), variants.recorded() as keys:
        result = attend(q, moved, v)
    assert keys == [f"{NAME}/fp32/tiles/vec2"]
    torch.testing.assert_close(result, F.scaled_dot_product_attention(q, k, v))


SPLIT = {"max_groups": 64, "min_keys": 64, "keys_per_part": 64}


@pytest.mark.parametrize("options", [{}, {"sinks": True, "window": 50, "is_causal": True}])
def test_two_phases_are_as_right_as_one(options: dict[str, Any]) -> None:
    case = attention_cases.case((2, 4, 3, 20), 300, key_heads=2, offset=250, **options)
    args, keywords = made(case)
    with override(NAME, "two_phase", **SPLIT), variants.recorded() as keys:
        compared(args, keywords, "two phases", gradient=False)
        assert set(keys) == {f"{NAME}/fp32/two_phase/scalar"}
        with anymetal.check() as report:
            OPERATOR(*args, **keywords)
    assert not report.findings, report


def test_few_queries_over_many_keys_use_two_phases_by_default() -> None:
    q, k, v = tensors(1, 4000, heads=1)
    with variants.recorded() as keys:
        result = attend(q, k, v)
    assert keys == [f"{NAME}/fp32/two_phase/scalar"]
    torch.testing.assert_close(result, F.scaled_dot_product_attention(q, k, v))


@pytest.mark.parametrize("rows", [2, 8])
def test_rows_at_once_follow_the_policy(rows: int) -> None:
    args, keywords = made(attention_cases.case((1, 6, 3, 20), 70, key_heads=1))
    with override(NAME, "decode", rows=rows):
        compared(args, keywords, f"{rows} rows", gradient=False)


def test_too_large_a_threadgroup_is_refused() -> None:
    with (
        override(NAME, "decode", group_size=1024),
        pytest.raises(LimitError, match=r"group_size 1024 \(override\) .* room for, 512 threads"),
    ):
        attend(*tensors(2))


def test_keys_and_values_are_not_copied_where_only_their_rows_are_dense() -> None:
    q = torch.randn(2, 3, 9, 20)
    packed = torch.randn(2, 40, 2, 3, 20)  # batch, sequence, key or value, head
    k, v = (packed[:, :, i].transpose(1, 2) for i in range(2))
    with anymetal.launch.guarded.watched() as launches:
        result = attend(q, k, v)
    assert len(launches) == 1
    problem = anymetal.ops.attention.launch.problem_of(
        OPERATOR, anymetal.ops.attention.arguments.Call(q, k, v)
    )
    assert problem.key.data_ptr() == k.data_ptr()
    assert problem.value.stride() == v.stride()
    torch.testing.assert_close(result, F.scaled_dot_product_attention(q, k, v))


def test_result_lies_in_memory_like_the_query() -> None:
    q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors())
    assert attend(q, k, v).transpose(1, 2).is_contiguous()
    assert attend(q.contiguous(), k, v).is_contiguous()


def test_all_options_are_silent_under_the_checker() -> None:
    options: dict[str, Any] = {"mask": "float", "sinks": True, "slopes": True, "softcap": 3.0}
    args, keywords = made(attention_cases.case((1, 2, 10, 20), 33, **options), torch.float16)
    keywords = {n: v.requires_grad_() if _learns(v) else v for n, v in keywords.items()}
    with anymetal.check() as report:
        OPERATOR(*(a.requires_grad_() for a in args), **keywords)[0].sum().backward()
    assert not report.findings, report


def _learns(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


# --- what torch does ------------------------------------------------------------------------------

MASKED = {
    "no key for one query": torch.tensor([True] * 5)[:, None]
    .repeat(1, 7)
    .index_fill(0, torch.tensor(2), False),
    "the first keys": torch.arange(7).expand(5, 7) >= 3,
    "all": torch.zeros(5, 7, dtype=torch.bool),
}


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("queries", [5, 9])
def test_masked_rows_are_torchs(name: str, additive: bool, queries: int) -> None:
    q, k, v = tensors(queries)
    mask = MASKED[name].repeat(2, 1)[:queries]
    if additive:
        mask = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    mine = called(attend, [q, k, v], {"attn_mask": mask})
    torchs = called(F.scaled_dot_product_attention, [q, k, v], {"attn_mask": mask})
    torch.testing.assert_close(attend(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, mask))
    torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)
    assert not any(gradient.isnan().any() for gradient in mine)


NEAR: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
VALUES = {"infinite": math.inf, "not a number": math.nan, "huge": 1e30, "denormal": 1e-41}


@pytest.mark.parametrize("queries", [3, 9])
@pytest.mark.parametrize("name", VALUES)
def test_extreme_keys_are_torchs(name: str, queries: int) -> None:
    q, k, v = tensors(queries)
    k[0, 0, 2, 3] = VALUES[name]
    exact = F.scaled_dot_product_attention(*(t.double() for t in (q, k, v)))
    torch.testing.assert_close(attend(q, k, v).double(), exact, **NEAR, equal_nan=True)


def test_large_and_equal_scores_do_not_overflow() -> None:
    q, k, v = tensors(9)
    large = attend(q * 1e4, k * 1e4, v)
    expected = F.scaled_dot_product_attention(*((t * 1e4).double() for t in (q, k)), v.double())
    torch.testing.assert_close(large.double(), expected, **NEAR)
    equal = attend(torch.ones_like(q), torch.ones_like(k), v)
    torch.testing.assert_close(equal, v.mean(2, keepdim=True).expand_as(equal))


@pytest.mark.parametrize("shapes", [
    ((2, 3, 5, 20), (1, 3, 7, 20), (2, 3, 7, 20)),
    ((2, 4, 5, 20), (2, 1, 7, 20), (2, 1, 7, 20)),
    ((2, 1, 5, 20), (2, 4, 7, 20), (2, 4, 7, 20)),
    ((2, 4, 5, 20), (4, 7, 20), (7, 20)),
    ((5, 20), (7, 20), (7, 20)),
    ((5, 20), (3, 7, 20), (3, 7, 20)),
    ((2, 1, 3, 4, 5, 20), (2, 1, 3, 4, 7, 20), (2, 1, 3, 4, 7, 20)),
])  # fmt: skip
def test_batch_dimensions_are_broadcast_as_torchs(shapes: tuple[tuple[int, ...], ...]) -> None:
    args = [torch.randn(shape, generator=torch.Generator().manual_seed(5)) for shape in shapes]
    torch.testing.assert_close(attend(*args), F.scaled_dot_product_attention(*args))
    mine, torchs = (called(f, args, {}) for f in BOTH)
    torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("heads", [(2, 2), (1, 1), (2, 1), (4, 2)])
def test_shared_heads_are_torchs(heads: tuple[int, int]) -> None:
    q = torch.randn(2, 4, 5, 20)
    k, v = (torch.randn(2, count, 7, 20) for count in heads)
    mine = attend(q, k, v, enable_gqa=True)
    torch.testing.assert_close(mine, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


@pytest.mark.parametrize("shape", [(1, 7), (5, 1), (2, 5, 7), (1, 1, 1, 7), (1, 2, 5, 7), (1, 1)])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_are_broadcast(shape: tuple[int, ...], kind: torch.dtype) -> None:
    mask = torch.randn(shape) > -1 if kind == torch.bool else torch.randn(shape)
    q, k, v = tensors()
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(attend(q, k, v, mask), expected)


def test_gradient_of_a_broadcast_mask_is_torchs() -> None:
    q, k, v = tensors(9)
    for shape in ((9, 7), (2, 1, 7), (1, 1, 9, 1)):
        mask = {"attn_mask": torch.randn(shape)}
        mine, torchs = (
            called(f, [q, k, v], mask) for f in (attend, F.scaled_dot_product_attention)
        )
        torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)


def test_float_mask_of_half_queries() -> None:
    q, k, v = (t.half() for t in tensors(9))
    mask = torch.randn(9, 7)
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), mask.double())
    torch.testing.assert_close(attend(q, k, v, mask).double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (0, 0)])
def test_nothing_to_attend(sizes: tuple[int, int]) -> None:
    q, k, v = tensors(*sizes)
    torch.testing.assert_close(attend(q, k, v), F.scaled_dot_product_attention(q, k, v))
    assert [g.abs().sum() for g in called(attend, [q, k, v], {})] == [0, 0, 0]


def test_a_sink_alone_takes_everything() -> None:
    q, k, v = tensors(9)
    hidden = torch.zeros(9, 7, dtype=torch.bool)
    sinks = torch.tensor([0.5, -3.0])
    assert attend(q, k, v, hidden, sinks=sinks).abs().sum() == 0
    assert attend(q, k[:, :, :0], v[:, :, :0], sinks=sinks).abs().sum() == 0


def test_window_and_offset_count_positions() -> None:
    """The last rows of a long call are those of a call with an offset."""
    q, k, v = tensors(40, 40)
    slopes = torch.tensor([0.5, 0.25])
    options: dict[str, Any] = {"is_causal": True, "window": 6, "alibi_slopes": slopes}
    whole = attend(q, k, v, **options)
    last = attend(q[:, :, 37:], k, v, offset=37, **options)
    torch.testing.assert_close(last, whole[:, :, 37:])
    alone = attend(q[:, :, 37:38], k[:, :, 32:38], v[:, :, 32:38], offset=5, alibi_slopes=slopes)
    torch.testing.assert_close(alone, whole[:, :, 37:38])


# --- messages -------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "dropout": ({"dropout_p": 0.1}, ValueError, r"'dropout_p' expects 0.0, got 0.1: dropout is"),
    "window": ({"window": 0}, ValueError, r"'window' expects 1 or more keys, got 0"),
    "softcap": ({"softcap": -1.0}, ValueError, r"'softcap' expects a number above 0.*got -1.0"),
    "offset": ({"offset": 1 << 40}, ValueError, r"'offset' expects .*, got 1099511627776"),
    "mask shape": (
        {"attn_mask": torch.ones(5, 6)},
        ValueError,
        r"'attn_mask' expects .* broadcast to \[1, 2, 5, 7\] .*got \[5, 6\]",
    ),
    "mask dtype": (
        {"attn_mask": torch.ones(5, 7, dtype=torch.int32)},
        TypeError,
        r"'attn_mask' expects bool, float32, float32, got int32",
    ),
    "slopes": (
        {"alibi_slopes": torch.ones(3)},
        ValueError,
        r"'alibi_slopes' expects shape \[2\] or \[1, 2\] .*got \[3\]",
    ),
    "sinks": ({"sinks": torch.ones(1)}, ValueError, r"'sinks' expects shape \[2\] .*got \[1\]"),
    "key width": ({"key": torch.ones(1, 2, 7, 8)}, ValueError, r"'key' expects a last dim.* of 20"),
    "heads": ({"key": torch.ones(1, 3, 7, 20)}, ValueError, r"'key' expects 2 heads.*got 3"),
    "values": ({"value": torch.ones(1, 2, 6, 20)}, ValueError, r"'value' expects shape \[1, 2, 7"),
    "batch": ({"key": torch.ones(3, 2, 7, 20), "value": torch.ones(2, 2, 7, 20)}, ValueError,
              r"expect batch dimensions that can be broadcast, got \[1\], \[3\], \[2\]"),
    "device": ({"sinks": torch.ones(2, device="meta")}, ValueError, r"'sinks' is on meta, but"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_say_what_is_wrong(name: str) -> None:
    options, kind, message = WRONG[name]
    arguments = dict(zip(("query", "key", "value"), tensors(), strict=True)) | options
    if name == "heads":
        arguments["value"] = arguments["key"]
    with pytest.raises(kind, match=f"{NAME}: .*{message}"):
        attend(**arguments)


def test_too_wide_heads_and_too_few_dimensions() -> None:
    q = torch.ones(1, 1, 3, 300)
    with pytest.raises(ValueError, match="heads of at most 256 elements are supported, got 300"):
        attend(q, q, q)
    with pytest.raises(ValueError, match=r"'query' expects at least 2 dimensions, got \[3\]"):
        attend(torch.ones(3), torch.ones(3), torch.ones(3))


def test_gradients_of_the_gradient() -> None:
    found = []
    for function in (attend, F.scaled_dot_product_attention):
        q, k, v = (tensor.detach().requires_grad_() for tensor in tensors(9))
        with sdpa_kernel(SDPBackend.MATH):
            (first,) = torch.autograd.grad(function(q, k, v).square().sum(), q, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), (q, k, v)))
    for mine, torchs in zip(*found, strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-4, atol=1e-5)
