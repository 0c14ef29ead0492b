"""Paged attention: every strategy and cache, ragged batches, extremes, wrong tables, messages."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import doubled, judge

import anymetal
from anymetal import ops
from anymetal.errors import LimitError
from anymetal.ops.declare import Case, variants
from anymetal.ops.paged.attention import Call, Launch, _paged_attention
from anymetal.ops.paged.reference import paged_case, with_torch, with_torch_attention
from anymetal.policy.policy import override

CPU = torch.device("cpu")
E4M3, E5M2 = "fp8_e4m3", "fp8_e5m2"


def made(case: Case, dtype: torch.dtype = torch.float32, seed: int = 5) -> tuple[list[Any], Any]:
    return case.make(dtype, CPU, torch.Generator().manual_seed(seed))


def judged(args: list[Any], keywords: dict[str, Any], where: str) -> None:
    doubles = {name: doubled(value) for name, value in keywords.items()}
    judge(
        _paged_attention(*args, **keywords),
        with_torch(*[doubled(arg) for arg in args], **doubles),
        with_torch_attention(*args, **keywords),
        where,
    )


# --- strategies -----------------------------------------------------------------------------------

STRATEGIES = {
    "fp32/looped_rows1": (torch.float32, paged_case((33, 70), 3, 3, 32)),
    "fp16/looped_rows4": (torch.float16, paged_case((70, 5), 6, 2, 40)),
    "bf16/looped_rows4": (torch.bfloat16, paged_case((33,), 4, 1, 96)),
    "fp32/two_phase_rows1": (torch.float32, paged_case((1100,), 2, 2, 32)),
    "fp16/two_phase_rows4": (torch.float16, paged_case((1100, 3), 3, 1, 40, 32)),
    f"bf16/looped_rows4_{E4M3}": (
        torch.bfloat16,
        paged_case((70,), 4, 2, 64, kv_cache_dtype=E4M3, scales=True),
    ),
    f"fp16/two_phase_rows4_{E5M2}": (
        torch.float16,
        paged_case((1030,), 4, 1, 64, 7, kv_cache_dtype=E5M2, scales=True),
    ),
    "fp32/looped_rows4": (torch.float32, paged_case((20, 9), 2, 1, 256, 4, 2)),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_is_chosen_and_right(strategy: str) -> None:
    dtype, case = STRATEGIES[strategy]
    args, keywords = made(case, dtype)
    with variants.recorded() as keys:
        judged(args, keywords, strategy)
    assert keys == [f"paged_attention/{strategy}/scalar"]


@pytest.mark.parametrize("strategy", ["looped", "two_phase"])
def test_several_simdgroups_share_the_keys(strategy: str) -> None:
    lengths = (300, 0, 33) if strategy == "looped" else (1100, 600)
    args, keywords = made(paged_case(lengths, 6, 2, 40, sinks=True))
    with (
        override("paged_attention", group_size=128),
        override("paged_attention", "two_phase", max_groups=100),
        variants.recorded() as keys,
        anymetal.check() as report,
    ):
        judged(args, keywords, strategy)
    assert keys == [f"paged_attention/fp32/{strategy}_rows4/scalar"]
    assert not report.findings, report


def test_parts_of_a_few_keys_are_silent_under_the_checker() -> None:
    args, keywords = made(paged_case((200, 0, 31), 4, 1, 40, 8, (3, 2, 1), slopes=True, window=90))
    with (
        override("paged_attention", "two_phase", keys_per_part=32, max_groups=100),
        variants.recorded() as keys,
        anymetal.check() as report,
    ):
        judged(args, keywords, "parts of 32")
    assert keys == ["paged_attention/fp32/two_phase_rows4/scalar"]
    assert not report.findings, report


def test_more_simdgroups_than_the_kernel_has_room_for_are_refused() -> None:
    args, keywords = made(paged_case((20,), 2, 2, 32))
    with override("paged_attention", group_size=512), pytest.raises(LimitError, match="1 to 256"):
        _paged_attention(*args, **keywords)


# --- options --------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any options together; few head sizes, for each is a kernel of its own."""
    batch = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, 80), min_size=batch, max_size=batch))
    ragged = st.lists(st.integers(0, 9), min_size=batch, max_size=batch).map(tuple)
    counts = draw(st.one_of(st.integers(1, 5), ragged))
    kv_heads = draw(st.sampled_from((1, 2, 3)))
    options: dict[str, Any] = {
        "window": draw(st.none() | st.integers(1, 60)),
        "softcap": draw(st.none() | st.sampled_from((0.5, 30.0))),
        "scale": draw(st.none() | st.just(-0.7)),
        "is_causal": draw(st.booleans()),
        "kv_cache_dtype": draw(st.sampled_from(("auto", "auto", E4M3))),
    }
    flags = {name: draw(st.booleans()) for name in ("slopes", "sinks", "scales")}
    return paged_case(
        lengths,
        kv_heads * draw(st.sampled_from((1, 3, 4))),
        kv_heads,
        draw(st.sampled_from((32, 40))),
        draw(st.sampled_from((1, 5, 16))),
        counts,
        **flags,
        **options,
    )


@settings(max_examples=60 if os.environ.get("ANYMETAL_TEST_ALL") == "1" else 12, deadline=None)
@given(cases(), st.integers(0, 1000), st.sampled_from((17, 32, 1024)))
def test_any_options_are_right(case: Case, seed: int, part: int) -> None:
    args, keywords = made(case, seed=seed)
    doubles = {name: doubled(value) for name, value in keywords.items()}
    exact = with_torch(*[doubled(arg) for arg in args], **doubles)
    with override("paged_attention", "two_phase", keys_per_part=part, max_groups=100):
        result = _paged_attention(*args, **keywords)
    torch.testing.assert_close(result.double(), exact, rtol=2e-5, atol=2e-5)


def test_one_several_and_ragged_queries_are_the_same() -> None:
    args, _ = made(paged_case((40, 21), 4, 2, 32, 8, 3))
    query, *cache = args
    uniform = ops.paged_attention(query, *cache)
    starts = torch.tensor([0, 3, 6])
    ragged = ops.paged_attention(query.flatten(0, 1), *cache, cu_seqlens_q=starts)
    assert torch.equal(uniform.flatten(0, 1), ragged)
    for i in range(3):  # a query alone, with the keys up to its own
        alone = ops.paged_attention(query[:, i], *cache[:-1], cache[-1] - 2 + i)
        torch.testing.assert_close(alone, uniform[:, i], rtol=1e-6, atol=1e-6)


def test_indices_may_be_of_64_bits_and_scales_numbers() -> None:
    args, _ = made(paged_case((40, 21), 4, 2, 32))
    query, key, value, tables, lengths = args
    wide = ops.paged_attention(
        query, key, value, tables.long(), lengths.long(), k_scale=0.5, v_scale=2
    )
    expected = ops.paged_attention(query, key * 0.5, value * 2, tables, lengths)
    torch.testing.assert_close(wide, expected)


def test_caches_of_another_order_are_not_copied() -> None:
    args, _ = made(paged_case((70, 5), 6, 2, 32))
    expected = ops.paged_attention(*args)
    heads_first = [c.transpose(1, 2).contiguous().transpose(1, 2) for c in args[1:3]]
    call = Call(args[0], *heads_first, *args[3:])
    taken = Launch(call, call.query, call.query).caches()
    assert [t.data_ptr() for t in taken] == [t.data_ptr() for t in heads_first]
    assert torch.equal(ops.paged_attention(args[0], *heads_first, *args[3:]), expected)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_caches_of_torchs_8_bit_floats_are_taken_as_they_are(dtype: torch.dtype) -> None:
    name = E4M3 if dtype == torch.float8_e4m3fn else E5M2
    args, _ = made(paged_case((30,), 4, 2, 64, kv_cache_dtype=name))
    expected = ops.paged_attention(*args, kv_cache_dtype=name)
    args[1:3] = [cache.view(dtype) for cache in args[1:3]]
    assert torch.equal(ops.paged_attention(*args), expected)


# --- extremes -------------------------------------------------------------------------------------


def one_sequence(keys: torch.Tensor, values: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    tables = torch.zeros(1, 1, dtype=torch.int32)
    lengths = torch.tensor([len(keys)])
    cache = [t[None, :, None] for t in (keys, values)]
    return ops.paged_attention(query.expand(1, 1, -1), *cache, tables, lengths)[0, 0]


def test_no_keys_give_zeros() -> None:
    args, _ = made(paged_case((0, 0), 4, 2, 32, 16, 3))
    assert not ops.paged_attention(*args).any()
    args, _ = made(paged_case((2,), 4, 2, 32, 16, 3))
    result = ops.paged_attention(*args)
    assert not result[0, 0].any()  # three queries, two keys: the first is older than all of them
    assert result[0, 1:].any(-1).all()


def test_no_blocks_at_all_give_zeros() -> None:
    query = torch.randn(2, 4, 32)
    none = torch.empty(0, 8, 2, 32)
    lengths = torch.zeros(2, dtype=torch.int32)
    for width in (0, 3):
        tables = torch.zeros(2, width, dtype=torch.int32)
        assert not ops.paged_attention(query, none, none, tables, lengths).any()


def test_window_of_more_keys_than_there_are() -> None:
    args, _ = made(paged_case((40, 3), 4, 2, 32, 8, 2))
    for is_causal in (True, False):
        expected = ops.paged_attention(*args, is_causal=is_causal)
        wide = ops.paged_attention(*args, is_causal=is_causal, window=2**40)
        assert torch.equal(wide, expected)


def test_all_equal_keys_give_the_mean() -> None:
    values = torch.randn(33, 32)
    result = one_sequence(torch.full((33, 32), 3.0), values, torch.ones(32))
    torch.testing.assert_close(result, values.mean(0), rtol=1e-5, atol=1e-6)


def test_large_scores_do_not_overflow() -> None:
    keys = torch.zeros(40, 32)
    keys[7] = 1e4
    values = torch.randn(40, 32)
    assert torch.equal(one_sequence(keys, values, torch.full((32,), 100.0)), values[7])
    keys[7] = -1e4
    result = one_sequence(keys, values, torch.full((32,), 100.0))
    expected = (values.sum(0) - values[7]) / 39
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_and_infinite_scores_are_as_torchs(bad: float) -> None:
    keys, values = torch.randn(2, 40, 32)
    keys[5] = bad
    query = torch.ones(32)
    own = torch.nn.functional.scaled_dot_product_attention(query[None], keys, values)[0]
    assert torch.equal(one_sequence(keys, values, query).isnan(), own.isnan())


def test_denormal_values_keep_their_size() -> None:
    tiny = torch.full((3, 32), 1e-39)
    result = one_sequence(torch.zeros(3, 32), tiny, torch.ones(32))
    torch.testing.assert_close(result, tiny[0], rtol=1e-3, atol=0)


# --- tables that are wrong ------------------------------------------------------------------------


def unchecked(args: list[Any], **options: Any) -> torch.Tensor:
    """What a kernel does whose tables nobody can look at, as on a GPU."""
    call = Call(*args, **options)
    output = torch.zeros(call.query.shape)
    with anymetal.check(outputs=()) as report:  # a query of no sequence stays as it is
        Launch(call, call.query.flatten(0, -3), output).run()
    assert not report.findings, report
    return output


def test_a_block_that_does_not_exist_makes_its_rows_nan() -> None:
    args, _ = made(paged_case((20, 20), 4, 2, 32, 8))
    expected = ops.paged_attention(*args)
    for wrong in (-1, 8, 2**31 - 1):
        tables = args[3].clone()
        tables[1, 1] = wrong
        result = unchecked([*args[:3], tables, args[4]])
        assert torch.equal(result[0], expected[0])
        assert result[1].isnan().all()


def test_lengths_past_the_table_and_below_zero_stay_inside() -> None:
    args, _ = made(paged_case((24, 20), 4, 2, 32, 8))
    whole = ops.paged_attention(*args)
    result = unchecked([*args[:4], torch.tensor([2**31 - 1, -5])])
    assert torch.equal(result[0], whole[0])  # the table ends after 24 keys
    assert not result[1].any()


@pytest.mark.parametrize(
    "starts", [[0, 9, 5], [-4, 2, 5], [3, 50, 2**31 - 1], [0, 0, 0], [2**30, 1, -7]]
)
def test_wrong_starts_stay_inside(starts: list[int]) -> None:
    args, keywords = made(paged_case((24, 20), 4, 2, 32, 8, (3, 2)))
    del keywords
    unchecked(args, cu_seqlens_q=torch.tensor(starts))


def test_too_small_max_context_len_changes_nothing() -> None:
    args, _ = made(paged_case((200,), 2, 2, 32))
    expected = ops.paged_attention(*args)
    with override("paged_attention", "two_phase", keys_per_part=64):
        result = ops.paged_attention(*args, max_context_len=70)
    torch.testing.assert_close(result, expected)


# --- messages -------------------------------------------------------------------------------------


def wrong(
    args: list[Any], message: str, error: type[Exception] = ValueError, **options: Any
) -> None:
    with pytest.raises(error, match=message):
        ops.paged_attention(*args, **options)


@pytest.fixture
def args() -> Iterator[list[Any]]:
    yield made(paged_case((20, 9), 4, 2, 32, 8))[0]


def changed(args: list[Any], index: int, value: Any) -> list[Any]:
    return [*args[:index], value, *args[index + 1 :]]


def test_wrong_shapes_say_which(args: list[Any]) -> None:
    query, key, value, tables, lengths = args
    wrong(changed(args, 0, query[0, 0]), r"'query' expects shape \[tokens, .* got \[32\]")
    wrong(changed(args, 0, query[..., :31]), "heads of 31 elements; expected 32")
    wrong(changed(args, 0, query[:, :3]), "3 heads, which is no multiple of the 2 heads")
    wrong(changed(args, 0, query[:1]), "1 rows for 2 sequences")
    wrong(changed(args, 1, key[0]), r"'key_cache' expects shape \[blocks, .* got \[8, 2, 32\]")
    wrong(changed(args, 2, value[:1]), r"'value_cache' expects shape \[7, 8, 2, 32\]")
    wrong(changed(args, 3, tables[0]), r"'block_tables' expects shape \[batch, .* got \[3\]")
    wrong(changed(args, 4, lengths[:1]), r"'context_lens' expects shape \[2\]")
    wrong(args, r"'cu_seqlens_q' expects shape \[3\]", cu_seqlens_q=lengths)
    wrong(args, r"'alibi_slopes' expects shape \[4\]", alibi_slopes=torch.ones(2))
    wrong(args, r"'k_scale' expects one number or 2 .* got shape \[4\]", k_scale=torch.ones(4))
    wrong(
        [query[:, None], *args[1:]],
        r"with 'cu_seqlens_q', argument 'query' expects",
        cu_seqlens_q=torch.tensor([0, 1, 2]),
    )
    empty = key[:, :0]
    wrong([query, empty, empty, tables, lengths], r"has blocks of no keys")
    wide = torch.randn(2, 4, 300)
    caches = [torch.randn(7, 8, 2, 300)] * 2
    wrong([wide, *caches, tables, lengths], "at most 256")


def test_wrong_dtypes_say_which(args: list[Any]) -> None:
    half = [cache.half() for cache in args[1:3]]
    wrong([args[0], *half, *args[3:]], "'key_cache' expects float32, .* got float16", TypeError)
    wrong(changed(args, 2, half[1]), "'value_cache' expects float32, got float16", TypeError)
    wrong(changed(args, 3, args[3].float()), "'block_tables' expects int32, int64", TypeError)
    wrong(args, "'sinks' expects float32, got float16", TypeError, sinks=torch.ones(4).half())
    coded = [cache.to(torch.float8_e5m2) for cache in args[1:3]]
    stored = [cache.view(torch.uint8) for cache in coded]
    wrong([args[0], *stored, *args[3:]], "is uint8, which does not say what its bytes are")
    wrong(args, "'kv_cache_dtype' expects one of auto, fp8", kv_cache_dtype="fp4")
    wrong(
        [args[0], *coded, *args[3:]],
        "'kv_cache_dtype' is 'fp8', but 'key_cache' is float8_e5m2",
        kv_cache_dtype="fp8",
    )


def test_wrong_numbers_are_named(args: list[Any]) -> None:
    wrong(args, "'window' expects 1 or more, got 0", window=0)
    wrong(args, "'softcap' expects a number above 0, or None for no cap; got nan", softcap=math.nan)
    wrong(args, "'max_context_len' expects 0 or more, got -1", max_context_len=-1)


def test_wrong_values_in_tables_are_named(args: list[Any]) -> None:
    lengths = "'context_lens' holds {} but 'block_tables' has room for 24 keys a sequence"
    wrong(changed(args, 4, torch.tensor([25, 3])), lengths.format("3 to 25,"))
    wrong(changed(args, 4, torch.tensor([-1, 3])), lengths.format("-1 to 3,"))
    tables = args[3].clone()
    tables[1, 1] = 7
    wrong(changed(args, 3, tables), r"holds 7 at \[1, 1\], but 'key_cache' has 7 blocks")
    tables[1, 1] = -1
    wrong(changed(args, 3, tables), r"holds -1 at \[1, 1\]")
    starts = "'cu_seqlens_q' expects to rise from 0 to the 2 rows of 'query', got"
    for values in ([0, 1, 3], [1, 1, 2], [0, 3, 2]):
        wrong(args, starts, cu_seqlens_q=torch.tensor(values))


def test_blocks_past_the_end_may_hold_anything(args: list[Any]) -> None:
    expected = ops.paged_attention(*args)
    tables = args[3].clone()
    tables[1, 2:] = 10**9
    assert torch.equal(ops.paged_attention(*changed(args, 3, tables)), expected)


def test_gradients_are_refused(args: list[Any]) -> None:
    result = ops.paged_attention(args[0].requires_grad_(), *args[1:])
    with pytest.raises(RuntimeError, match="paged_attention has no gradient: a cache is read"):
        result.sum().backward()


def test_view_over_too_much_memory_is_refused() -> None:
    call = Call(*made(paged_case((9,), 2, 2, 32))[0])
    spread = torch.empty(2**32 + 32, device="meta").as_strided((2, 1, 1, 32), (2**32, 32, 32, 1))
    launch = Launch(replace(call, key_cache=spread), call.query, call.query)
    with pytest.raises(ValueError, match=r"'key_cache' of shape .* ends 4294967327 elements after"):
        launch.caches()


def test_compiles_with_options() -> None:
    args, keywords = made(paged_case((40, 3), 4, 1, 32, 8, (5, 7), slopes=True))
    compiled = torch.compile(
        lambda *a: ops.paged_attention(*a, k_scale=0.5, **keywords) + 1,
        fullgraph=True,
        backend="aot_eager",
    )
    expected = ops.paged_attention(*args, k_scale=0.5, **keywords) + 1
    assert torch.equal(compiled(*args), expected)
    torch._dynamo.reset()


def test_tables_on_a_gpu_are_not_waited_for(mps: torch.device) -> None:
    args, _ = made(paged_case((20, 20), 4, 2, 32, 8))
    expected = ops.paged_attention(*args)
    tables = args[3].clone()
    tables[1, 1] = 99
    moved = [arg.to(mps) for arg in (*args[:3], tables, args[4])]
    result = ops.paged_attention(*moved).cpu()
    assert torch.equal(result[0], expected[0])
    assert result[1].isnan().all()
    with pytest.raises(ValueError, match="'block_tables' is on cpu, but 'query' is on mps"):
        ops.paged_attention(*moved[:3], tables, moved[4])


def test_cost_counts_the_keys_that_are_seen() -> None:
    args, _ = made(paged_case((20, 9), 4, 2, 32, 8), torch.float16)
    cost = _paged_attention.cost
    assert cost is not None
    query = 2 * 4 * 32
    assert cost(*args).read == 2 * (query + 2 * 29 * 2 * 32)
    assert cost(*args).write == 2 * query
    assert cost(*args).flops == 4 * 29 * 4 * 32
    assert cost(*args, window=5).read == 2 * (query + 2 * 10 * 2 * 32)
