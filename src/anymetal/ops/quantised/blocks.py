"""Blocks of q4_K, q6_K and nf4 go in, float32 weights come out, in their libraries' arithmetic.

All arithmetic is float32, whose products and sums are rounded one by one, so the results are those
of ggml and bitsandbytes to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

Tensor = torch.Tensor
Optional = torch.Tensor | None

# bitsandbytes' NormalFloat: quantiles of a normal distribution, with an exact zero.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def half_at(blocks: Tensor, at: int) -> Tensor:
    """The half at a byte of each block, as a column of float32."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def read_q4_k(blocks: Tensor) -> Tensor:
    """Eight groups of 32; their scales and least weights have six bits each, in twelve bytes.

    The first four of both are the low six bits of bytes 0 to 7. The others have their low four bits
    in bytes 8 to 11, and their high two above those of the first.
    """
    low, least, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((low & 63, (rest & 15) | ((low >> 2) & 48)), 1)
    minima = torch.cat((least & 63, (rest >> 4) | ((least >> 2) & 48)), 1)
    pairs = blocks[:, 16:].reshape(-1, 4, 32)  # two groups share 32 bytes
    codes = torch.stack((pairs & 15, pairs >> 4), 2).reshape(-1, 8, 32)
    steps = (half_at(blocks, 0) * scales.float())[..., None] * codes.float()
    return (steps - (half_at(blocks, 2) * minima.float())[..., None]).flatten(1)


def read_q6_k(blocks: Tensor) -> Tensor:
    """Sixteen groups of 16 with scales of eight bits; codes are four low bits and two high ones."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = torch.cat((low & 15, low >> 4), 2).reshape(-1, 8, 32)
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device).view(4, 1)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts
    codes = low | ((high & 3).reshape(-1, 8, 32) << 4)
    scales = half_at(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()
    return (scales[..., None] * (codes.float() - 32).view(-1, 16, 16)).flatten(1)


def read_nf4(data: Tensor, absmax: Tensor, count: int, block_size: int) -> Tensor:
    """A value of the table times the largest weight of its block; the high half of a byte first."""
    codes = torch.stack((data >> 4, data & 15), -1).flatten()[:count].long()
    values = torch.tensor(NF4, device=data.device)[codes]
    return values * absmax.float().repeat_interleave(block_size)[:count]


@dataclass(frozen=True)
class Packing:
    """A format that products read: rows are whole chunks, a simdgroup takes a step at once."""

    chunk: int
    chunk_bytes: int
    step: int
    has_scales: bool = False

    def bytes_of(self, columns: int) -> int:
        return columns // self.chunk * self.chunk_bytes

    def random(
        self, rows: int, columns: int, block_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Optional]:
        """Blocks of random codes, and scales of weights about as large as a layer's."""

        def bytes_(*shape: int) -> Tensor:
            return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)

        size = columns**-0.5
        count = rows * columns // self.chunk
        blocks = bytes_(count, self.chunk_bytes)
        if self.has_scales:
            scales = torch.rand(-(-rows * columns // block_size), generator=generator) + 0.5
            return blocks.view(rows, self.bytes_of(columns)), scales * size
        for at, largest in ((0, 500), (2, 100)) if self.chunk_bytes == 144 else ((208, 2000),):
            halves = (torch.rand(count, 1, generator=generator) + 0.5) * size / largest
            blocks[:, at : at + 2] = halves.half().view(torch.uint8)
        return blocks.view(rows, self.bytes_of(columns)), None


FORMATS = {
    "q4_K": Packing(256, 144, 256),
    "q6_K": Packing(256, 210, 256),
    "nf4": Packing(32, 16, 64, has_scales=True),
}


def format_named(who: str, name: str) -> Packing:
    """A format, or an error that lists them."""
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise ValueError(f"{who}: argument 'format' expects one of {known}, got {name!r}")
    return FORMATS[name]


def unpacked_blocks(
    blocks: Tensor, scales: Optional, rows: int, columns: int, format: str, block_size: int
) -> Tensor:
    """The matrix in float32; the definition of the three formats."""
    if scales is not None:
        found = read_nf4(blocks.reshape(-1), scales.detach(), rows * columns, block_size)
        return found.view(rows, columns)
    read = read_q4_k if format == "q4_K" else read_q6_k
    packing = FORMATS[format]
    return read(blocks.reshape(-1, packing.chunk_bytes)).reshape(rows, columns)
