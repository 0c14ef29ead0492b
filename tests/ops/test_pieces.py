"""How much of a long row each of several threadgroups takes."""

from __future__ import annotations

import pytest
import torch

from anymetal import ops
from anymetal.ops.declare.pieces import piece_of
from anymetal.policy.policy import Choice, override


@pytest.mark.parametrize(
    ("length", "rows", "piece"),
    [
        (65536, 1, 4096),  # never less than the least
        (65536, 8, 4096),
        (65536, 32, 16384),  # 128 threadgroups
        (65536, 16, 8192),
        (2**20, 8, 16384),
        (100, 1, 4096),
    ],
)
def test_pieces_are_halved_while_there_are_too_few(length: int, rows: int, piece: int) -> None:
    values = {"chunk": 16384, "wanted_groups": 128, "least_piece": 4096}
    assert piece_of(Choice(512, values, "here"), "chunk", length, rows) == piece


def test_without_a_wish_the_policy_decides() -> None:
    assert piece_of(Choice(512, {"chunk": 16384}, "here"), "chunk", 65536, 1) == 16384


def test_results_are_the_same_in_pieces_of_any_length() -> None:
    query, key, value = (torch.randn(1, 2, n, 64) for n in (1, 3000, 3000))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    split = {"max_groups": 512, "min_keys": 64, "keys_per_part": 2048, "least_piece": 100}
    for wanted in (0, 5, 64):
        with override("scaled_dot_product_attention", "two_phase", wanted_groups=wanted, **split):
            found = ops.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("length", "least"), [(32, 8), (7, 8), (33, 4), (1, 8)])
def test_strided_softmax_with_few_threads_along_a_column(length: int, least: int) -> None:
    x = torch.randn(3, length, 50)
    with override("softmax", "columns", group_size=512, columns_per_group=32, least_elements=least):
        found = ops.softmax(x, 1)
    torch.testing.assert_close(found, x.softmax(1), rtol=1e-5, atol=1e-7)
