"""How weights become a few bits each: the schemes by name, and what they mean in plain torch.

The plain functions are the definition: kernels give the same codes, bit for bit, which is why they
compute in float32 whatever they are given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch

Tensor = torch.Tensor
Optional = torch.Tensor | None
# Codes, scales, and what else a group has, from groups of weights along the last dimension.
Recipe = Callable[[Tensor, int, torch.dtype], tuple[Tensor, Tensor, Optional]]

WORD_BITS = 32
BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)
DEFAULT_GROUP_SIZE = 64
# What a group has besides its scale: nothing, a code that stands for zero, or a bias.
SYMMETRIC, ZERO_POINT, AFFINE = "symmetric", "zero_point", "affine"


@dataclass(frozen=True)
class Scheme:
    """One way to quantise: bits of a code, what a group has, and how both are found.

    `recipe` is the name of its kernel. ggml's formats have one group size and their scales are
    halves, whatever the dtype of the weights.
    """

    name: str
    bits: int
    kind: str
    recipe: str
    group_sizes: tuple[int, ...] = GROUP_SIZES
    scale_dtype: torch.dtype | None = None

    @property
    def is_ggml(self) -> bool:
        return self.scale_dtype is not None

    @property
    def default_group_size(self) -> int:
        return min(self.group_sizes, key=lambda size: abs(size - DEFAULT_GROUP_SIZE))

    @property
    def levels(self) -> int:
        return 1 << self.bits

    def define(self, groups: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
        """Codes, scales and offsets of groups of float32 weights, by plain torch operators."""
        return _RECIPES[self.recipe](groups, self.bits, dtype)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("int4", 4, SYMMETRIC, "symmetric"),
        Scheme("int8", 8, SYMMETRIC, "symmetric"),
        Scheme("int4_zero_point", 4, ZERO_POINT, "zero_point"),
        Scheme("int8_zero_point", 8, ZERO_POINT, "zero_point"),
        Scheme("q4_0", 4, SYMMETRIC, "q4_0", (32,), torch.float16),
        Scheme("q8_0", 8, SYMMETRIC, "q8_0", (32,), torch.float16),
        Scheme("mlx_4bit", 4, AFFINE, "affine"),
        Scheme("mlx_8bit", 8, AFFINE, "affine"),
    )
}


def scheme_named(name: str, who: str) -> Scheme:
    """A scheme, or an error that lists them."""
    found = SCHEMES.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join(SCHEMES)
        raise ValueError(f"{who}: argument 'scheme' expects one of {known}, got {name!r}")
    return found


def check_group_size(who: str, scheme: Scheme, group_size: int) -> None:
    if group_size not in scheme.group_sizes:
        known = ", ".join(str(size) for size in scheme.group_sizes)
        raise ValueError(
            f"{who}: argument 'group_size' expects {known} for scheme {scheme.name!r}, got"
            f" {group_size!r}"
        )


# --- recipes --------------------------------------------------------------------------------------


def _symmetric(groups: Tensor, bits: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
    """Zero is the middle code, and the largest weight is as far from it as codes go both ways."""
    middle = 1 << (bits - 1)
    scales = (groups.abs().amax(-1) / (middle - 1)).to(dtype)
    return _nearest(groups, scales.float(), torch.tensor(float(middle)), bits), scales, None


def _zero_point(groups: Tensor, bits: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
    """Codes from the least to the largest weight, or to zero, which always has a code."""
    largest = (1 << bits) - 1
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = (high / largest - low / largest).to(dtype)
    zeros = torch.where(scales == 0, 0.0, (-low / scales.float()).round().clamp(0, largest))
    return _nearest(groups, scales.float(), zeros[..., None], bits), scales, zeros.to(torch.uint8)


def _affine(groups: Tensor, bits: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
    """MLX's: the end further from zero is exact, and zero too where it is half a step away."""
    largest = (1 << bits) - 1
    low, high = groups.amin(-1), groups.amax(-1)
    step = ((high - low) / largest).clamp(min=1e-7)
    below = low.abs() > high.abs()
    edge = torch.where(below, low, high)
    step = torch.where(below, step, -step)
    steps = (edge / step).round()
    scales = torch.where(steps == 0, step, edge / steps)
    biases = torch.where(steps == 0, 0.0, edge)
    codes = ((groups - biases[..., None]) / scales[..., None]).round().clamp(0, largest)
    return codes, scales.to(dtype), biases.to(dtype)


def _q4_0(groups: Tensor, bits: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
    """ggml's: the weight furthest from zero, the first of several, becomes -8."""
    del bits
    furthest = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    scales = furthest / -8
    codes = (groups * _reciprocal(scales) + 8.5).trunc().clamp(0, 15)
    return codes, scales[..., 0].to(dtype), None


def _q8_0(groups: Tensor, bits: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Optional]:
    """ggml's: halves are rounded away from zero."""
    del bits
    scales = groups.abs().amax(-1, keepdim=True) / 127
    steps = groups * _reciprocal(scales)
    whole = steps.abs().floor()
    rounded = (whole + (2 * (steps.abs() - whole)).floor()).copysign(steps)
    return (rounded + 128).clamp(0, 255), scales[..., 0].to(dtype), None


def _nearest(groups: Tensor, scales: Tensor, zeros: Tensor, bits: int) -> Tensor:
    scales = scales[..., None]
    steps = torch.where(scales == 0, 0.0, (groups / scales).round())
    return (steps + zeros).clamp(0, (1 << bits) - 1)


def _reciprocal(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 0.0, 1 / scales)


_RECIPES: dict[str, Recipe] = {
    "symmetric": _symmetric,
    "zero_point": _zero_point,
    "affine": _affine,
    "q4_0": _q4_0,
    "q8_0": _q8_0,
}


# --- words ----------------------------------------------------------------------------------------

# A block is a word for each lane of a simdgroup. Code i of word l belongs to weight 32 i + l of the
# block, so that lanes read neighbouring words and neighbouring activations, and all of them are in
# one group at a time. A row ends with a whole block, of which the last codes may be unused.
LANES = 32


def row_words(columns: int, bits: int) -> int:
    """Words of a row of `columns` weights."""
    return -(-columns // (LANES * (WORD_BITS // bits))) * LANES


def words_of(codes: Tensor, bits: int) -> Tensor:
    """Codes along rows as words, in blocks. Words are int32: torch does little with uint32."""
    rows, columns = codes.shape
    width, words = WORD_BITS // bits, row_words(columns, bits)
    padded = codes.new_zeros(rows, words * width, dtype=torch.uint8)
    padded[:, :columns] = codes.to(torch.uint8)
    blocks = padded.view(rows, words // LANES, width, LANES).transpose(-1, -2)
    return packed(blocks.reshape(rows, words * width), bits)


def codes_of(words: Tensor, columns: int, bits: int) -> Tensor:
    """The codes of words in blocks, as uint8."""
    rows, width = words.shape[0], WORD_BITS // bits
    count = words.shape[1] // LANES
    blocks = unpacked(words, bits).view(rows, count, LANES, width).transpose(-1, -2)
    return blocks.reshape(rows, count * LANES * width)[:, :columns]


def packed(codes: Tensor, bits: int) -> Tensor:
    """Neighbouring codes of rows as words, the first in the lowest bits: MLX's order."""
    codes = codes.to(torch.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | (codes[..., 1::2] << 4)
    shape = (*codes.shape[:-1], codes.shape[-1] // 4)
    return codes.flatten().view(torch.int32).view(shape)


def unpacked(words: Tensor, bits: int) -> Tensor:
    """The codes of words in MLX's order, as uint8."""
    codes = words.flatten().view(torch.uint8)
    if bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1)
    return codes.view(*words.shape[:-1], words.shape[-1] * (WORD_BITS // bits))


def weights_of(
    words: Tensor, scales: Tensor, offsets: Optional, bits: int, group_size: int
) -> Tensor:
    """Weights from codes, in the arithmetic of `scales`; the definition of dequantisation."""
    rows, groups = scales.shape
    columns = groups * group_size
    codes = codes_of(words, columns, bits).to(scales.device)
    steps = codes.reshape(rows, groups, group_size).to(scales.dtype)
    scale = scales[..., None]
    if offsets is None:
        weights = scale * (steps - (1 << (bits - 1)))
    elif offsets.is_floating_point():
        weights = scale * steps + offsets[..., None]
    else:
        weights = scale * (steps - offsets[..., None].to(scales.dtype))
    return weights.view(rows, columns)


# --- ggml's blocks --------------------------------------------------------------------------------

GGML_GROUP = 32
_SCALE_BYTES = 2


@functools.cache
def ggml_block_bytes(bits: int) -> int:
    """A half and 32 codes."""
    return _SCALE_BYTES + GGML_GROUP * bits // 8


def to_ggml_blocks(codes: Tensor, scales: Tensor, bits: int) -> Tensor:
    """Codes and scales as the bytes of ggml's q4_0 or q8_0: a block is a scale and its 32 codes.

    In q4_0 the first sixteen codes are the low halves of the bytes and the others the high ones;
    codes of q8_0 are in two's complement.
    """
    rows, groups = scales.shape
    codes = codes.reshape(rows, groups, GGML_GROUP)
    codes = codes[..., :16] | (codes[..., 16:] << 4) if bits == 4 else codes ^ 128
    heads = scales.contiguous().view(torch.uint8).view(rows, groups, _SCALE_BYTES)
    return torch.cat((heads, codes), -1).view(rows, groups * ggml_block_bytes(bits))


def from_ggml_blocks(blocks: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes and scales from ggml's bytes."""
    size = ggml_block_bytes(bits)
    rows, groups = blocks.shape[0], blocks.shape[1] // size
    split = blocks.reshape(rows, groups, size)
    heads, codes = split[..., :_SCALE_BYTES], split[..., _SCALE_BYTES:]
    codes = torch.cat((codes & 15, codes >> 4), -1) if bits == 4 else codes ^ 128
    scales = heads.contiguous().view(torch.float16).view(rows, groups)
    return codes.reshape(rows, groups * GGML_GROUP), scales
