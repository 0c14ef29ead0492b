"""Indexing against torch's in float64, every option; indices out of range; two ways to add."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anymetal
from anymetal import ops
from anymetal.ops.declare import OPERATORS
from anymetal.ops.indexing.places import add_into

INDEX = torch.tensor([0, 2, 2, 5, 1, 1, 3, 0, 2, 4])


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def both(function: Any, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """A result and the gradients of its arguments."""
    held = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*held)
    upstream = torch.linspace(-1, 1, result.numel(), dtype=result.dtype).view(result.shape)
    return [result.detach(), *torch.autograd.grad(result, held, upstream)]


def same(ours: list[torch.Tensor], exact: list[torch.Tensor]) -> None:
    for mine, truth in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-5, atol=1e-5)


def bags(**options: Any) -> Any:
    """F.embedding_bag and ours with the same options."""
    index = INDEX.to(options.pop("dtype"))
    index = index.view(2, 5) if options["offsets"] is None else index

    def call(function: Any, table: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        given = {"per_sample_weights": weights[0].view(index.shape)} if weights else {}
        result: torch.Tensor = function(index, table, **options, **given)
        return result

    return call


def test_embedding_bag_with_every_option() -> None:
    choices = itertools.product(
        ("sum", "mean", "max"), (False, True), (False, True), (None, 2, -1), (False, True),
        (torch.int64, torch.int32), (False, True),
    )  # fmt: skip
    for mode, has_offsets, last, padding, scale, dtype, weighted in choices:
        if (weighted and mode != "sum") or (last and not has_offsets) or (mode == "max" and scale):
            continue
        ends = torch.tensor([0, 3, 3, 10 if last else 9]) if has_offsets else None
        options = {
            "offsets": None if ends is None else ends.to(dtype),
            "mode": mode,
            "include_last_offset": last,
            "padding_idx": padding,
            "scale_grad_by_freq": scale,
            "dtype": dtype,
        }
        call = bags(**options)
        tensors = (random(6, 3), *([random(10, seed=1)] if weighted else []))
        ours = both(lambda *args, c=call: c(ops.embedding_bag, *args), *tensors)
        doubles = [tensor.double() for tensor in tensors]
        call = bags(**(options | {"scale_grad_by_freq": False}))
        exact = both(lambda *args, c=call: c(F.embedding_bag, *args), *doubles)
        if scale:
            # torch 2.13's own divides by the counts of other rows on the CPU.
            exact[1] /= INDEX.bincount(minlength=6)[:, None]
        same(ours, exact)


def test_embedding_with_every_option() -> None:
    index = torch.tensor([[0, 2, 2], [5, 1, 2]])
    for padding, scale, dtype in itertools.product(
        (None, 2, -1), (False, True), (torch.int64, torch.int32)
    ):
        options = {"padding_idx": padding, "scale_grad_by_freq": scale}
        ours = both(lambda w, d=dtype, o=options: ops.embedding(index.to(d), w, **o), random(6, 3))
        exact = both(lambda w, o=options: F.embedding(index, w, **o), random(6, 3).double())
        same(ours, exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_atomics_add_what_sorted_segments_add(dtype: torch.dtype) -> None:
    index = torch.randint(0, 9, (4, 501), generator=torch.Generator().manual_seed(3))
    values = random(4, 501).to(dtype)
    by_atomics = ops.scatter_add(torch.zeros(4, 9, dtype=dtype), 1, index, values)
    assert "/atomic/" in str(ops.variants.last())
    torch.use_deterministic_algorithms(True)
    try:
        sorted_once = ops.scatter_add(torch.zeros(4, 9, dtype=dtype), 1, index, values)
        sorted_again = ops.scatter_add(torch.zeros(4, 9, dtype=dtype), 1, index, values)
        assert "/sorted/" in str(ops.variants.last())
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(sorted_once, sorted_again)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-1
    torch.testing.assert_close(by_atomics, sorted_once, rtol=tolerance, atol=tolerance)


def test_atomics_are_silent_under_the_checker() -> None:
    index = torch.tensor([[0, 1, 1], [2, 2, 2]])
    with anymetal.check(outputs=()) as report:
        ops.scatter_add(torch.zeros(2, 3), 1, index, random(2, 3))
    assert not report.findings, report


def test_rows_are_added_in_one_order() -> None:
    """Without being asked for: sorted rows were faster than atomics."""
    index = torch.randint(0, 9, (501,), generator=torch.Generator().manual_seed(3))
    values = random(501, 33)
    once, again = (ops.index_add(torch.zeros(9, 33), 0, index, values) for _ in range(2))
    assert "/sorted/" in str(ops.variants.last())
    assert torch.equal(once, again)
    by_atomics = torch.zeros(9, 33)
    operator = OPERATORS["index_add"]
    with anymetal.check(outputs=()) as report:
        add_into(operator, by_atomics, 0, index, values, each=False, by="atomics")
    assert "/atomic/" in str(ops.variants.last())
    assert not report.findings, report
    exact = torch.zeros(9, 33, dtype=torch.float64).index_add(0, index, values.double())
    for found in (once, by_atomics):
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [3, 17])
@pytest.mark.parametrize("wrong", [6, -1, 2**33])
def test_index_out_of_range_is_an_error(wrong: int, columns: int) -> None:
    x, index = random(6, columns), torch.tensor([0, wrong])
    said = rf"index {wrong} is out of (bounds|range)"
    calls: dict[str, Any] = {
        "index_select": lambda: ops.index_select(x, 0, index),
        "index_add": lambda: ops.index_add(x, 0, index, x[:2]),
        "gather": lambda: ops.gather(x, 0, index[:, None]),
        "scatter_add": lambda: ops.scatter_add(x, 0, index[:, None], x[:2, :1]),
        "embedding": lambda: ops.embedding(index, x),
        "embedding_bag": lambda: ops.embedding_bag(index[None], x),
    }
    for call in calls.values():
        with pytest.raises(RuntimeError, match=said):
            call()


def test_arguments_that_do_not_fit_are_named() -> None:
    x, index = random(6, 3), torch.tensor([0, 1])
    with pytest.raises(IndexError, match="Index is supposed to be a vector, but got dim: 2"):
        ops.index_select(x, 0, index[None])
    with pytest.raises(IndexError, match=r"Dimension out of range .* but got 2"):
        ops.gather(x, 2, index[None])
    with pytest.raises(RuntimeError, match="Size does not match at dimension 1"):
        ops.gather(x, 0, torch.zeros(2, 4, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="the same number of dimensions as input"):
        ops.gather(x, 0, index)
    with pytest.raises(TypeError, match="'index' expects int64, int32, got bool"):
        ops.index_select(x, 0, index.bool())
    with pytest.raises(ValueError, match="'padding_idx' expects -6 to 5, got 6"):
        ops.embedding(index, x, 6)
    with pytest.raises(NotImplementedError, match="only supported for mode='sum'"):
        ops.embedding_bag(index[None], x, per_sample_weights=x[:1, :2])


def test_modules_have_torchs_parameters() -> None:
    mine, theirs = (
        ops.modules.EmbeddingBag(7, 3, mode="sum"),
        torch.nn.EmbeddingBag(7, 3, mode="sum"),
    )
    theirs.load_state_dict(mine.state_dict())
    index = torch.tensor([[0, 6, 2]])
    torch.testing.assert_close(mine(index), theirs(index))
    assert ops.modules.Embedding(7, 3, padding_idx=0)(index).shape == (1, 3, 3)
