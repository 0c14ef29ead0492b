"""Dropout: words are Philox's, masks those of the seed, and the gradient uses the same mask."""

from __future__ import annotations

import pytest
import torch

from anymetal import ops
from anymetal.ops.dropout.dropout import mask_of, philox


def test_reference_has_the_words_that_were_published() -> None:
    """The first known answer of Random123's philox4x32-10: counter and key are zero."""
    words = philox(torch.zeros(1, dtype=torch.int64), 0)[0].tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_mask_is_that_of_the_seed_and_the_gradients() -> None:
    x = torch.randn(5, 77).requires_grad_()
    for seed in (0, 1, 2**40 + 3):
        result = ops.dropout(x, 0.3, seed=seed)
        kept = mask_of(x.numel(), 0.3, seed).view(x.shape)
        assert torch.equal(result != 0, kept)
        torch.testing.assert_close(result, torch.where(kept, x / 0.7, 0.0))
        # A gradient in another order of memory.
        upstream = torch.randn(77, 5).t()
        (found,) = torch.autograd.grad(result, x, upstream)
        torch.testing.assert_close(found, torch.where(kept, upstream / 0.7, 0.0))


def test_one_element_in_ten_is_dropped() -> None:
    torch.manual_seed(4)
    first, second = (ops.dropout(torch.ones(100_000), 0.1) for _ in range(2))
    assert abs((first == 0).float().mean().item() - 0.1) < 0.005
    assert abs(((first == 0) & (second == 0)).float().mean().item() - 0.01) < 0.002
    torch.manual_seed(4)
    assert torch.equal(ops.dropout(torch.ones(100_000), 0.1), first)


def test_dropout_add_adds_what_dropout_gives() -> None:
    x, residual = torch.randn(3, 33), torch.randn(3, 33)
    added = ops.dropout_add(x, residual, 0.25, seed=9)
    torch.testing.assert_close(added, ops.dropout(x, 0.25, seed=9) + residual)


def test_nothing_happens_outside_of_training() -> None:
    x = torch.randn(5)
    assert ops.dropout(x, 0.5, training=False) is x
    module = ops.modules.Dropout(0.5).eval()
    assert module(x) is x
    assert not torch.equal(module.train()(torch.ones(64)), torch.ones(64))
    with pytest.raises(ValueError, match=r"'p' expects 0 to 1, got 1\.5"):
        ops.dropout(x, 1.5)
