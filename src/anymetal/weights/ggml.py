"""Blocks of ggml's formats go in, float32 weights come out, in the order of ggml's own arithmetic.

A format is a number of weights a block, and of bytes. All arithmetic is float32, whose products and
sums are rounded one by one, so the results are ggml's to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from anymetal.ops.quantised.blocks import half_at, read_q4_k, read_q6_k

Tensor = torch.Tensor


@dataclass(frozen=True)
class Format:
    """How a block of `weights` weights is kept in `size` bytes; `read` takes rows of such bytes."""

    weights: int
    size: int
    read: Callable[[Tensor], Tensor]


def _nibbles(bytes_: Tensor) -> Tensor:
    """The low halves of bytes along a row, then the high ones."""
    return torch.cat((bytes_ & 15, bytes_ >> 4), -1)


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    """32 bits of four bytes, the first in the lowest, each as 16."""
    bits = blocks[:, at : at + 4, None] >> torch.arange(8, dtype=torch.uint8)
    return (bits & 1).reshape(len(blocks), 32) << 4


def _q4_0(blocks: Tensor) -> Tensor:
    return half_at(blocks, 0) * (_nibbles(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return half_at(blocks, 0) * _nibbles(blocks[:, 4:]).float() + half_at(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return half_at(blocks, 0) * (codes.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return half_at(blocks, 0) * codes.float() + half_at(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return half_at(blocks, 0) * blocks[:, 2:].view(torch.int8).float()


FORMATS = {
    "Q4_0": Format(32, 18, _q4_0),
    "Q4_1": Format(32, 20, _q4_1),
    "Q5_0": Format(32, 22, _q5_0),
    "Q5_1": Format(32, 24, _q5_1),
    "Q8_0": Format(32, 34, _q8_0),
    "Q4_K": Format(256, 144, read_q4_k),
    "Q6_K": Format(256, 210, read_q6_k),
    "F16": Format(1, 2, lambda blocks: blocks.view(torch.float16).float()),
    "BF16": Format(1, 2, lambda blocks: blocks.view(torch.bfloat16).float()),
    "F32": Format(1, 4, lambda blocks: blocks.view(torch.float32)),
}


def dequantize_ggml(blocks: Tensor, name: str) -> Tensor:
    """Rows of bytes in one of ggml's formats, as rows of float32 weights."""
    known = FORMATS.get(name)
    if known is None:
        raise ValueError(
            f"dequantize_ggml: unknown format {name!r}; the known ones are {', '.join(FORMATS)}"
        )
    if blocks.dtype != torch.uint8 or blocks.dim() != 2 or blocks.shape[1] % known.size:
        raise ValueError(
            f"dequantize_ggml: argument 'blocks' expects rows of uint8 in blocks of {known.size}"
            f" bytes for {name}, got {blocks.dtype} of shape {list(blocks.shape)}"
        )
    rows, count = blocks.shape[0], blocks.shape[1] // known.size
    found = known.read(blocks.contiguous().view(rows * count, known.size))
    return found.reshape(rows, count * known.weights)
