"""Packed weights by the written rule of each format, a weight at a time."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from anymetal import weights
from anymetal.ops.quantised.blocks import NF4
from anymetal.weights.packed import MLX_BITS

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def codes(bits: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(bits))


def words_of(values: list[int], bits: int) -> list[int]:
    """A stream of numbers as 32-bit words, the first in the lowest bits."""
    stream = sum(value << (bits * i) for i, value in enumerate(values))
    count = len(values) * bits // 32
    return [(stream >> (32 * i)) & 0xFFFFFFFF for i in range(count)]


def as_words(rows: list[list[int]]) -> torch.Tensor:
    signed = [[word - (1 << 32) if word >> 31 else word for word in row] for row in rows]
    return torch.tensor(signed, dtype=torch.int32)


@pytest.mark.parametrize("bits", MLX_BITS)
def test_mlx(bits: int) -> None:
    rows, columns, group = 3, 64, 32
    given = codes(bits, rows, columns)
    words = as_words([words_of(row, bits) for row in given.tolist()]).view(torch.uint32)
    for dtype in DTYPES:
        scales, biases = random(rows, 2, dtype=dtype), random(rows, 2, dtype=dtype)
        found = weights.dequantize_mlx(words, scales, biases, bits=bits, group_size=group)
        for i, j in itertools.product(range(rows), range(columns)):
            one = scales[i, j // group] * given[i, j].to(dtype) + biases[i, j // group]
            assert torch.equal(found[i, j], one)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("ordered", [True, False])
def test_gptq(bits: int, ordered: bool) -> None:
    inputs, outputs, group = 64, 32, 32
    given, zeros = codes(bits, inputs, outputs), codes(bits, 2, outputs).clamp(min=1)
    qweight = as_words([words_of(column, bits) for column in given.t().tolist()]).t().contiguous()
    qzeros = as_words([words_of(row, bits) for row in (zeros - 1).tolist()])
    scales = random(2, outputs, dtype=torch.float16)
    g_idx = None if ordered else torch.randperm(inputs) % 2
    found = weights.dequantize_gptq(qweight, qzeros, scales, g_idx, bits=bits, group_size=group)
    for i, j in itertools.product(range(inputs), range(outputs)):
        g = i // group if g_idx is None else int(g_idx[i])
        one = (given[i, j] - zeros[g, j]).half() * scales[g, j]
        assert torch.equal(found[j, i], one)
    second = weights.dequantize_gptq(
        qweight, qzeros, scales, g_idx, bits=bits, group_size=group, zeros_less_one=False
    )
    assert not torch.equal(second, found)


def test_awq() -> None:
    inputs, outputs, group = 32, 16, 16
    given, zeros = codes(4, inputs, outputs), codes(4, 2, outputs).flip(0)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def packed(matrix: torch.Tensor) -> torch.Tensor:
        rows = []
        for row in matrix.tolist():
            turned = [row[8 * (i // 8) + order[i % 8]] for i in range(len(row))]
            rows.append(words_of(turned, 4))
        return as_words(rows)

    scales = random(2, outputs, dtype=torch.float16)
    found = weights.dequantize_awq(packed(given), packed(zeros), scales, group_size=group)
    for i, j in itertools.product(range(inputs), range(outputs)):
        one = (given[i, j] - zeros[i // group, j]).half() * scales[i // group, j]
        assert torch.equal(found[j, i], one)


@pytest.mark.parametrize("shape", [(3, 64), (5, 7), (1,)])
def test_nf4(shape: tuple[int, ...]) -> None:
    count = torch.Size(shape).numel()
    given = codes(4, count).tolist()
    pairs = zip(given[0::2], [*given[1::2], 0], strict=False)
    packed = torch.tensor([high << 4 | low for high, low in pairs], dtype=torch.uint8)
    absmax = random(-(-count // 64)).abs()
    for dtype in DTYPES:
        found = weights.dequantize_nf4(packed, absmax, shape, dtype=dtype).flatten()
        for i, code in enumerate(given):
            assert torch.equal(found[i], (torch.tensor(NF4[code]) * absmax[i // 64]).to(dtype))


def test_shapes_that_do_not_fit_are_named() -> None:
    word = torch.zeros(2, 8, dtype=torch.int32)
    calls: tuple[tuple[Any, str], ...] = (
        (lambda: weights.dequantize_mlx(word, random(2, 2), random(2, 2)), "'words' .* 16"),
        (lambda: weights.dequantize_mlx(word, random(2, 1), random(2, 2)), "'biases'"),
        (lambda: weights.dequantize_mlx(word, random(2, 1), random(2, 1), bits=5), "'bits'"),
        (lambda: weights.dequantize_gptq(word, word, random(2, 9)), "'scales'"),
        (lambda: weights.dequantize_gptq(word, word, random(2, 8), bits=3), "'bits'"),
        (lambda: weights.dequantize_awq(word, word, random(1, 64)), "'qzeros'"),
        (lambda: weights.dequantize_nf4(word.byte(), random(1), (4, 4)), "'packed'"),
        (lambda: weights.dequantize_nf4(word.byte(), random(2), (4, 8)), "'absmax'"),
    )
    for call, words in calls:
        with pytest.raises(ValueError, match=words):
            call()


def test_table_of_nf4_is_its_rule() -> None:
    """Quantiles of a normal distribution: eight above zero, seven below; the ends are 1."""
    edge = 0.9677083
    above = torch.special.ndtri(torch.linspace(edge, 0.5, 9, dtype=torch.float64)[:-1])
    below = -torch.special.ndtri(torch.linspace(edge, 0.5, 8, dtype=torch.float64)[:-1])
    rule = torch.cat((above, below, torch.zeros(1, dtype=torch.float64))).sort().values
    expected = rule / rule.max()
    torch.testing.assert_close(torch.tensor(NF4).double(), expected, rtol=0, atol=2e-7)
