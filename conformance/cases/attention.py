"""Attention: naive, flash forward and backward, one query a threadgroup with and without RoPE."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from conformance.case import FLOAT_SUM, HALF, Launch, case, check, normal, unwritten
from conformance.cases.rotary import angles, rotate_split

FILE = "sdpa_kernels.metal"
RACE = (
    "race: the dot product in shared_scratch[0] is overwritten by the next key's products before "
    "the second simdgroup has read it"
)


def three(heads: int, length: int, head: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return normal(heads, length, head), normal(heads, length, head), normal(heads, length, head)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> torch.Tensor:
    return scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)


@case(FILE, "attention_naive", FLOAT_SUM, "a private array of 1024 scores")
def naive() -> Launch:
    heads, length, head = 3, 50, 24
    q, k, v = three(heads, length, head)
    out = unwritten(heads, length, head)
    arguments = (q, k, v, out, heads, length, head, 1 / math.sqrt(head))
    return Launch(arguments, (length, heads), (32, 1), [check("out", out, attend(q, k, v))])


@case(FILE, "flash_attention_fwd_v2", FLOAT_SUM, "asks for 65536 bytes", refused="32768")
def flash_forward() -> Launch:
    heads, length, head = 2, 128, 64
    q, k, v = three(heads, length, head)
    out, logsumexp = unwritten(heads, length, head), unwritten(heads, length)
    return Launch(
        (q, k, v, out, logsumexp, heads, length, head, 1 / math.sqrt(head), 0),
        (2 * 64, heads, 1),
        (64, 1, 1),
        [check("out", out, attend(q, k, v))],
        {0: 2 * 64 * 128 * 4},
    )


@case(FILE, "flash_attention_bwd_v2", FLOAT_SUM, "causal; atomic adds to device floats")
def flash_backward() -> Launch:
    heads, length, head = 2, 33, 16
    scale = 1 / math.sqrt(head)
    q, k, v = three(heads, length, head)
    upstream = normal(heads, length, head)
    wide = [t.double().requires_grad_() for t in (q, k, v)]
    out = attend(wide[0], wide[1], wide[2], causal=True)
    expected = torch.autograd.grad(out, wide, upstream.double())
    above = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (wide[0] @ wide[1].mT * scale).masked_fill(above, -math.inf)
    gradients = [torch.zeros(heads, length, head) for _ in range(3)]
    arguments = (q, k, v, out.detach().float(), upstream, scores.logsumexp(-1).detach().float())
    checks = [
        check(name, got, gradient)
        for name, got, gradient in zip(("dq", "dk", "dv"), gradients, expected, strict=True)
    ]
    sizes = (heads, length, head, scale, 1)
    return Launch((*arguments, *gradients, *sizes), (length, heads), (1, 1), checks)


@case(FILE, "sdpa_vector_64", FLOAT_SUM, known_wrong=RACE)
def vector() -> Launch:
    heads, length = 2, 21
    q, k, v = three(heads, length, 64)
    out = unwritten(heads, length, 64)
    stride = length * 64
    arguments = (q, k, v, out, 1, length, stride, stride, stride, 0.125)
    checks = [check("out", out, attend(q, k, v))]
    return Launch(arguments, (heads * 64, length, 1), (64, 1, 1), checks)


def rotated_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Attention of [heads, length, 64] after RoPE on queries and keys, in float64."""
    turned = [rotate_split(t.transpose(0, 1), cos, sin).transpose(0, 1) for t in (q, k)]
    return attend(turned[0], turned[1], v)


def rope_vector(dtype: torch.dtype) -> Launch:
    heads, length = 2, 15
    q, k, v = (t.to(dtype) for t in three(heads, length, 64))
    cos, sin = angles(dtype, length, 64)
    out = unwritten(heads, length, 64, dtype=dtype)
    stride = length * 64
    sizes = (1, length, length, stride, stride, stride, 0.125, 0)
    expected = rotated_attention(q, k, v, cos, sin)
    return Launch(
        (q, k, v, cos, sin, out, *sizes),
        (heads * 64, length, 1),
        (64, 1, 1),
        [check("out", out, expected)],
    )


case(FILE, "rope_sdpa_64", FLOAT_SUM, known_wrong=RACE)(lambda: rope_vector(torch.float32))
case(FILE, "rope_sdpa_64_half", HALF, known_wrong=RACE)(lambda: rope_vector(torch.float16))


def rope_strided(dtype: torch.dtype, causal: bool) -> Launch:
    """[batch, length, heads, 64] read through strides, two query heads on one key head."""
    batch, length, heads = 2, 13, 4
    q = normal(batch, length, heads, 64, dtype=dtype)
    k, v = (normal(batch, length, heads // 2, 64, dtype=dtype) for _ in range(2))
    cos, sin = angles(dtype, length, 64)
    out = unwritten(batch, length, heads, 64, dtype=dtype)
    turned = [rotate_split(t, cos, sin).transpose(1, 2) for t in (q, k)]
    keys, values = (t.repeat_interleave(2, 1) for t in (turned[1], v.transpose(1, 2)))
    expected = attend(turned[0], keys, values, causal).transpose(1, 2)
    strides = [(t.stride(0), t.stride(2), t.stride(1)) for t in (q, k, v)]
    sizes = (2, length, length, *(s for three in strides for s in three), 0.125, 0, heads)
    return Launch(
        (q, k, v, cos, sin, out, *sizes),
        (batch * heads * 64, length, 1),
        (64, 1, 1),
        [check("out", out, expected)],
    )


case(FILE, "rope_sdpa_64_strided_v2", FLOAT_SUM, "grouped queries, causal")(
    lambda: rope_strided(torch.float32, causal=True)
)
case(FILE, "rope_sdpa_64_half_strided_v2", HALF, "grouped queries", known_wrong=RACE)(
    lambda: rope_strided(torch.float16, causal=False)
)
