"""Packed weights of MLX, GPTQ, AWQ and bitsandbytes go in as their checkpoints hold them; the
matrices [out, in] come out, in the arithmetic of the scales' dtype, as those libraries have it."""

from __future__ import annotations

import torch

from anymetal.ops.quantised.blocks import read_nf4

Tensor = torch.Tensor

MLX_BITS = (2, 3, 4, 6, 8)
GPTQ_BITS = (2, 4, 8)
_WORD = 32
# AWQ's columns of a word, from the lowest bits on.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def _check_bits(who: str, bits: int, known: tuple[int, ...]) -> None:
    if bits not in known:
        words = ", ".join(str(one) for one in known)
        raise ValueError(f"{who}: argument 'bits' expects {words}, got {bits!r}")


def _check_shape(who: str, name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(
            f"{who}: argument '{name}' expects shape {list(expected)}, got {list(tensor.shape)}"
        )


def fields(words: Tensor, bits: int) -> Tensor:
    """Numbers of `bits` bits in 32-bit words, the first in the lowest, along the last dimension."""
    shifts = torch.arange(0, _WORD, bits, dtype=torch.int32, device=words.device)
    found = (words.view(torch.int32)[..., None] >> shifts) & ((1 << bits) - 1)
    return found.flatten(-2)


def dequantize_mlx(
    words: Tensor, scales: Tensor, biases: Tensor, *, bits: int = 4, group_size: int = 64
) -> Tensor:
    """MLX's affine weights: code * scale + bias. Codes are a stream of bits along a row.

    `words` is [out, in * bits / 32] of uint32, scales and biases are [out, in / group_size].
    """
    _check_bits("dequantize_mlx", bits, MLX_BITS)
    rows, columns = scales.shape[0], scales.shape[1] * group_size
    _check_shape("dequantize_mlx", "words", words, (rows, columns * bits // _WORD))
    _check_shape("dequantize_mlx", "biases", biases, tuple(scales.shape))
    stream = words.contiguous().view(torch.uint8)[..., None] >> torch.arange(8, dtype=torch.uint8)
    places = (stream & 1).reshape(rows, columns, bits).int() << torch.arange(bits)
    codes = places.sum(-1).view(rows, -1, group_size).to(scales.dtype)
    return (scales[..., None] * codes + biases[..., None]).view(rows, columns)


def gptq_zeros(qzeros: Tensor, bits: int, less_one: bool) -> Tensor:
    """The zeros of words. Ones are added to whole words, as GPTQ does: the last may carry over."""
    words = qzeros.view(torch.int32)
    if less_one:
        ones = sum(1 << place for place in range(0, _WORD, bits))
        words = words + torch.tensor(ones).to(torch.int32)
    return fields(words, bits)


def dequantize_gptq(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    g_idx: Tensor | None = None,
    *,
    bits: int = 4,
    group_size: int = 128,
    zeros_less_one: bool = True,
) -> Tensor:
    """GPTQ's weights: (code - zero) * scale. Words run down the rows of a matrix [in, out].

    `qweight` is [in * bits / 32, out], `qzeros` [groups, out * bits / 32], `scales` [groups, out];
    `g_idx` names the group of each row. The first format has zeros minus one, GPTQ's second
    (`gptq_v2`) has them as they are.
    """
    _check_bits("dequantize_gptq", bits, GPTQ_BITS)
    codes = fields(qweight.t().contiguous(), bits)  # [out, in]
    outputs, inputs = codes.shape
    _check_shape("dequantize_gptq", "scales", scales, (scales.shape[0], outputs))
    _check_shape("dequantize_gptq", "qzeros", qzeros, (len(scales), outputs * bits // _WORD))
    zeros = gptq_zeros(qzeros, bits, zeros_less_one)  # [groups, out]
    group = torch.arange(inputs) // group_size if g_idx is None else g_idx.long()
    _check_shape("dequantize_gptq", "g_idx", group, (inputs,))
    return (codes - zeros.t()[:, group]).to(scales.dtype) * scales.t()[:, group]


def in_awq_order(words: Tensor) -> Tensor:
    """The codes of AWQ's words as they stand in the matrix [in, out]."""
    back = torch.tensor([_AWQ_ORDER.index(column) for column in range(8)])
    return fields(words, 4).view(len(words), -1, 8)[..., back].flatten(1)


def dequantize_awq(
    qweight: Tensor, qzeros: Tensor, scales: Tensor, *, group_size: int = 128
) -> Tensor:
    """AWQ's weights of four bits: (code - zero) * scale. Words run along rows of [in, out].

    `qweight` is [in, out / 8], `qzeros` [in / group_size, out / 8], `scales` [in / group_size,
    out]; the eight columns of a word are 0, 2, 4, 6, 1, 3, 5, 7.
    """
    inputs, outputs = qweight.shape[0], qweight.shape[1] * 8
    groups = -(-inputs // group_size)
    _check_shape("dequantize_awq", "qzeros", qzeros, (groups, outputs // 8))
    _check_shape("dequantize_awq", "scales", scales, (groups, outputs))
    codes, zeros = in_awq_order(qweight), in_awq_order(qzeros)
    group = torch.arange(inputs) // group_size
    return ((codes - zeros[group]).to(scales.dtype) * scales[group]).t().contiguous()


def dequantize_nf4(
    packed: Tensor,
    absmax: Tensor,
    shape: tuple[int, ...],
    *,
    block_size: int = 64,
    dtype: torch.dtype = torch.float16,
) -> Tensor:
    """bitsandbytes' nf4: a value of the table times the largest of its block, in float32.

    `packed` are bytes, the first code in the high half; `absmax` is float32, a number a block of
    `block_size` weights in the order of memory.
    """
    count = torch.Size(shape).numel()
    data = packed.reshape(-1)
    _check_shape("dequantize_nf4", "packed", data, ((count + 1) // 2,))
    _check_shape("dequantize_nf4", "absmax", absmax, (-(-count // block_size),))
    return read_nf4(data, absmax, count, block_size).to(dtype).view(shape)
