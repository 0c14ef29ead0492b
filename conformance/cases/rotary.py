"""Rotary position embeddings: interleaved and split-half, forward and backward."""

from __future__ import annotations

import torch

from conformance.case import BFLOAT, FLOAT, HALF, Check, Launch, case, check, normal, unwritten

FILE = "training_kernels.metal"
BATCH, LENGTH, HEADS, HEAD = 2, 9, 3, 16


def angles(dtype: torch.dtype, length: int = LENGTH, head: int = HEAD) -> list[torch.Tensor]:
    """Cosines and sines of [length, head / 2]."""
    theta = torch.arange(length)[:, None] / 10000 ** (torch.arange(head // 2) / (head // 2))
    return [theta.cos().to(dtype), theta.sin().to(dtype)]


def rotate_split(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of the last dimension of [..., length, heads, head] in float64."""
    first, second = x.double().chunk(2, -1)
    c, s = cos.double()[:, None, :], sin.double()[:, None, :]
    return torch.cat([first * c - second * s, second * c + first * s], -1)


def rotate_pairs(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate neighbouring pairs of the last dimension in float64."""
    even, odd = x.double()[..., 0::2], x.double()[..., 1::2]
    c, s = cos.double()[:, None, :], sin.double()[:, None, :]
    return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)


def single(dtype: torch.dtype, split: bool, backward: bool, per_thread: int = 1) -> Launch:
    x = normal(BATCH, LENGTH, HEADS, HEAD, dtype=dtype)
    out = torch.full_like(x, float("nan"))
    cos, sin = angles(dtype)
    rotate = rotate_split if split else rotate_pairs
    # The gradient of a rotation is the rotation by the opposite angle.
    expected = rotate(x, cos, -sin if backward else sin)
    width = (HEAD // 2 if split else HEAD) // per_thread
    return Launch(
        (x, cos, sin, out, BATCH, LENGTH, HEADS, HEAD),
        (width, HEADS, BATCH * LENGTH),
        (width, HEADS, 1),
        [check("out", out, expected)],
    )


case(FILE, "rope_fwd_interleaved", FLOAT)(lambda: single(torch.float32, False, False))
case(FILE, "rope_fwd_interleaved_half", HALF)(lambda: single(torch.float16, False, False))
case(FILE, "rope_bwd_interleaved", FLOAT)(lambda: single(torch.float32, False, True))
case(FILE, "rope_fwd_split_half", FLOAT)(lambda: single(torch.float32, True, False))
case(FILE, "rope_fwd_split_half_half", HALF)(lambda: single(torch.float16, True, False))
case(FILE, "rope_fwd_split_half_bfloat", BFLOAT)(lambda: single(torch.bfloat16, True, False))
case(FILE, "rope_bwd_split_half", FLOAT)(lambda: single(torch.float32, True, True))
case(FILE, "rope_bwd_split_half_half", HALF)(lambda: single(torch.float16, True, True))
case(FILE, "rope_bwd_split_half_bfloat", BFLOAT, "four bfloats a thread")(
    lambda: single(torch.bfloat16, True, True, per_thread=4)
)


def query_and_key() -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], tuple[int, ...]]:
    """Queries of 3 heads, keys of 1, the angles, and the sizes as the kernels take them."""
    query, key = normal(BATCH, LENGTH, HEADS, HEAD), normal(BATCH, LENGTH, 1, HEAD)
    return query, key, angles(torch.float32), (BATCH, LENGTH, HEADS, 1, HEAD)


@case(FILE, "rope_fwd_qk_fused", FLOAT, "three query heads, one key head")
def fused_pairs() -> Launch:
    query, key, (cos, sin), sizes = query_and_key()
    new_query, new_key = unwritten(*query.shape), unwritten(*key.shape)
    checks: list[Check] = [
        check("query", new_query, rotate_pairs(query, cos, sin)),
        check("key", new_key, rotate_pairs(key, cos, sin)),
    ]
    arguments = (query, key, cos, sin, new_query, new_key, *sizes)
    return Launch(arguments, (HEAD, HEADS, BATCH * LENGTH), (16, 3, 2), checks)


@case(FILE, "rope_fwd_qk_split_half", FLOAT, "in place")
def fused_split() -> Launch:
    query, key, (cos, sin), sizes = query_and_key()
    checks = [
        check("query", query, rotate_split(query, cos, sin)),
        check("key", key, rotate_split(key, cos, sin)),
    ]
    arguments = (query, key, cos, sin, *sizes)
    return Launch(arguments, (HEAD // 2, HEADS, BATCH * LENGTH), (8, 3, 2), checks)
