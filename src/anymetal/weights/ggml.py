"""Blocks of ggml's formats go in, float32 weights come out, in the order of ggml's own arithmetic.

A format is a number of weights a block, and of bytes. All arithmetic is float32, whose products and
sums are rounded one by one, so the results are ggml's to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor


@dataclass(frozen=True)
class Format:
    """How a block of `weights` weights is kept in `size` bytes; `read` takes rows of such bytes."""

    weights: int
    size: int
    read: Callable[[Tensor], Tensor]


def _half(blocks: Tensor, at: int) -> Tensor:
    """The half at a byte of each block, as a column of float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(bytes_: Tensor) -> Tensor:
    """The low halves of bytes along a row, then the high ones."""
    return torch.cat((bytes_ & 15, bytes_ >> 4), -1)


def _fifth_bits(blocks: Tensor, at: int) -> Tensor:
    """32 bits of four bytes, the first in the lowest, each as 16."""
    bits = blocks[:, at : at + 4, None] >> torch.arange(8, dtype=torch.uint8)
    return (bits & 1).reshape(len(blocks), 32) << 4


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).float() - 8)


def _q4_1(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).float() + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (codes.float() - 16)


def _q5_1(blocks: Tensor) -> Tensor:
    codes = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * codes.float() + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * blocks[:, 2:].view(torch.int8).float()


def _q4_k(blocks: Tensor) -> Tensor:
    """Eight groups of 32; their scales and least weights have six bits each, in twelve bytes.

    The first four of both are the low six bits of bytes 0 to 7. The others have their low four bits
    in bytes 8 to 11, and their high two above those of the first.
    """
    low, least, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((low & 63, (rest & 15) | ((low >> 2) & 48)), 1)
    minima = torch.cat((least & 63, (rest >> 4) | ((least >> 2) & 48)), 1)
    pairs = blocks[:, 16:].reshape(-1, 4, 32)  # two groups share 32 bytes
    codes = torch.stack((pairs & 15, pairs >> 4), 2).reshape(-1, 8, 32)
    steps = (_half(blocks, 0) * scales.float())[..., None] * codes.float()
    return (steps - (_half(blocks, 2) * minima.float())[..., None]).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16 with scales of eight bits; codes are four low bits and two high ones."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat((low & 15, low >> 4), 2).reshape(-1, 8, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> torch.tensor(
        [0, 2, 4, 6], dtype=torch.uint8
    ).view(4, 1)
    codes = low | ((high & 3).reshape(-1, 8, 32) << 4)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()
    return (scales[..., None] * (codes.float() - 32).view(-1, 16, 16)).flatten(1)


FORMATS = {
    "Q4_0": Format(32, 18, _q4_0),
    "Q4_1": Format(32, 20, _q4_1),
    "Q5_0": Format(32, 22, _q5_0),
    "Q5_1": Format(32, 24, _q5_1),
    "Q8_0": Format(32, 34, _q8_0),
    "Q4_K": Format(256, 144, _q4_k),
    "Q6_K": Format(256, 210, _q6_k),
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
