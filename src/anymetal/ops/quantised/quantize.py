"""Weights go in; codes of 4 or 8 bits with a scale a group come out, and weights again.

Schemes are listed in `schemes`: groups of int4 or int8, symmetric or with zero points, ggml's
q4_0 and q8_0, and MLX's affine format. All are kept in words of 32 bits in an order that suits
simdgroups, so that one set of kernels reads them; `Quantized` converts to and from ggml's blocks
and MLX's arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.ops.declare import FLOATS, Case, Cost, operator, variants
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import row_stride
from anymetal.ops.quantised.schemes import (
    AFFINE,
    BITS,
    GROUP_SIZES,
    SCHEMES,
    SYMMETRIC,
    WORD_BITS,
    ZERO_POINT,
    Scheme,
    check_group_size,
    codes_of,
    from_ggml_blocks,
    ggml_block_bytes,
    packed,
    row_words,
    scheme_named,
    to_ggml_blocks,
    unpacked,
    weights_of,
    words_of,
)
from anymetal.policy.policy import choose

SOURCE = "quantize.metal"
Tensor = torch.Tensor
Optional = torch.Tensor | None
ScalarType = torch.dtype


@dataclass(frozen=True)
class Quantized:
    """A quantised matrix: words of codes, a scale a group, and what else a group has.

    `offsets` are None (symmetric schemes), zero points (uint8) or biases (MLX's, as the scales).
    """

    words: Tensor
    scales: Tensor
    offsets: Optional
    scheme: Scheme
    group_size: int

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return self.scales.shape[0], self.scales.shape[1] * self.group_size

    @property
    def codes(self) -> Tensor:
        """The code of each weight, as uint8."""
        return codes_of(self.words, self.shape[1], self.scheme.bits)

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and offsets."""
        extra = self.offsets.nbytes if self.offsets is not None else 0
        return self.words.nbytes + self.scales.nbytes + extra

    @property
    def dtype(self) -> torch.dtype:
        """Of the scales."""
        return self.scales.dtype

    def to(self, *args: Any, **keywords: Any) -> Quantized:
        """On another device or with scales of another dtype, as Tensor.to; ggml's stay halves."""
        scales = self.scales.to(*args, **keywords)
        offsets = self.offsets
        if self.scheme.is_ggml and scales.dtype != self.scales.dtype:
            scales = self.scales.to(scales.device)
        if offsets is not None:
            offsets = (
                offsets.to(scales) if offsets.is_floating_point() else offsets.to(scales.device)
            )
        words = self.words.to(scales.device)
        return replace(self, words=words, scales=scales, offsets=offsets)

    def dequantize(self, dtype: ScalarType | None = None) -> Tensor:
        """The matrix, in `dtype` or that of the scales."""
        return dequantize(self, dtype)

    # --- other people's formats -------------------------------------------------------------------

    @staticmethod
    def from_ggml(blocks: Tensor, scheme: str) -> Quantized:
        """From the bytes of a tensor in a GGUF file: rows of q4_0 or q8_0 blocks."""
        kind = _ggml_scheme("from_ggml", scheme)
        check_dtype("from_ggml", "blocks", blocks, [torch.uint8])
        size = ggml_block_bytes(kind.bits)
        if blocks.dim() != 2 or blocks.shape[1] % size:
            raise ValueError(
                f"from_ggml: argument 'blocks' expects rows of {size}-byte blocks of {scheme}, got"
                f" shape {list(blocks.shape)}"
            )
        codes, scales = from_ggml_blocks(blocks, kind.bits)
        words = words_of(codes, kind.bits)
        return Quantized(words, scales, None, kind, kind.default_group_size)

    def to_ggml(self) -> Tensor:
        """The bytes of a GGUF file's tensor, rows of blocks; for schemes q4_0 and q8_0."""
        kind = _ggml_scheme("to_ggml", self.scheme.name)
        return to_ggml_blocks(self.codes, self.scales, kind.bits)

    @staticmethod
    def from_mlx(
        words: Tensor, scales: Tensor, biases: Tensor, group_size: int = 64, bits: int = 4
    ) -> Quantized:
        """From what mlx.core.quantize gives: uint32 words, scales and biases."""
        scheme = scheme_named(f"mlx_{bits}bit", "from_mlx")
        check_group_size("from_mlx", scheme, group_size)
        check_dtype("from_mlx", "words", words, [torch.uint32, torch.int32])
        check_dtype("from_mlx", "scales", scales, FLOATS)
        columns = words.shape[-1] * (WORD_BITS // bits)
        if words.dim() != 2 or columns % group_size:
            raise ValueError(
                f"from_mlx: argument 'words' expects rows of whole groups of {group_size} codes of"
                f" {bits} bits, got shape {list(words.shape)}"
            )
        shape = (words.shape[0], columns // group_size)
        check_shape("from_mlx", "scales", scales, shape, "one for each group of 'words'")
        kept = words_of(unpacked(words.view(torch.int32), bits), bits)
        check_quantized("from_mlx", kept, scales, biases, bits, group_size)
        return Quantized(kept, scales, biases, scheme, group_size)

    def to_mlx(self) -> tuple[Tensor, Tensor, Tensor]:
        """What mlx.core.dequantize takes; every scheme can be written as scale * code + bias.

        For other schemes than MLX's own a bias is computed, which rounds it to the scales' dtype.
        """
        words = packed(self.codes, self.scheme.bits).view(torch.uint32)
        if self.scheme.kind == AFFINE:
            assert self.offsets is not None
            return words, self.scales, self.offsets
        middle = self.scheme.levels // 2
        zeros = middle if self.offsets is None else self.offsets.float()
        return words, self.scales, (-self.scales.float() * zeros).to(self.scales.dtype)


def _ggml_scheme(who: str, name: str) -> Scheme:
    scheme = SCHEMES.get(name)
    if scheme is None or not scheme.is_ggml:
        raise ValueError(f"{who}: expects scheme 'q4_0' or 'q8_0', got {name!r}")
    return scheme


# --- checks ---------------------------------------------------------------------------------------


def kind_of(offsets: Optional) -> str:
    """What a group has besides its scale."""
    if offsets is None:
        return SYMMETRIC
    return AFFINE if offsets.is_floating_point() else ZERO_POINT


def check_quantized(
    name: str, words: Tensor, scales: Tensor, offsets: Optional, bits: int, group_size: int
) -> None:
    """The parts of a quantised matrix must fit each other."""
    check_dtype(name, "scales", scales, FLOATS)
    check_size(name, "scales", scales)
    check_dtype(name, "words", words, [torch.int32])
    check_size(name, "words", words)
    for argument, value, expected in (
        ("bits", bits, BITS),
        ("group_size", group_size, GROUP_SIZES),
    ):
        if value not in expected:
            known = ", ".join(str(one) for one in expected)
            raise ValueError(f"{name}: argument '{argument}' expects {known}, got {value}")
    check_device(name, "scales", scales, "words", words)
    if scales.dim() != 2:
        raise ValueError(
            f"{name}: argument 'scales' expects two dimensions, got shape {list(scales.shape)}"
        )
    rows, groups = scales.shape
    expected_words = row_words(groups * group_size, bits)
    why = f"rows of {groups} groups of {group_size} codes, as 'scales' has"
    check_shape(name, "words", words, (rows, expected_words), why)
    if offsets is None:
        return
    if offsets.is_floating_point():
        check_like(name, "offsets", offsets, "scales", scales)
    else:
        check_dtype(name, "offsets", offsets, [torch.uint8])
        check_device(name, "offsets", offsets, "words", words)
    check_shape(name, "offsets", offsets, scales.shape, "that of 'scales'")


def check_device(name: str, argument: str, tensor: Tensor, model: str, of: Tensor) -> None:
    if tensor.device != of.device:
        raise ValueError(
            f"{name}: argument '{argument}' is on {tensor.device}, but '{model}' is on {of.device}."
            f" Move it with .to({str(of.device)!r})"
        )


# --- quantise -------------------------------------------------------------------------------------


def _reference_quantize(
    weight: Tensor, scheme: str, group_size: int, dtype: ScalarType | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    kind = SCHEMES[scheme]
    rows, columns = weight.shape
    groups = weight.detach().float().reshape(rows, columns // group_size, group_size)
    codes, scales, offsets = kind.define(groups, kind.scale_dtype or dtype or weight.dtype)
    if offsets is None:
        offsets = torch.empty(0, dtype=torch.uint8, device=weight.device)
    return words_of(codes.reshape(rows, columns), kind.bits), scales, offsets


def _weights_case(rows: int, columns: int, scheme: str, group_size: int) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        weight = torch.randn(rows, columns, generator=generator).to(dtype)
        keywords = {"scheme": scheme, "group_size": group_size, "dtype": dtype}
        return [weight.to(device)], keywords

    return Case(f"{rows}x{columns} {scheme} groups of {group_size}", make)


def _quantize_cost(
    weight: Tensor, scheme: str, group_size: int, dtype: ScalarType | None = None
) -> Cost:
    kind = SCHEMES[scheme]
    groups = weight.numel() // group_size
    scale_bytes = (kind.scale_dtype or dtype or weight.dtype).itemsize
    extra = {SYMMETRIC: 0, ZERO_POINT: 1, AFFINE: scale_bytes}[kind.kind]
    written = weight.numel() * kind.bits // 8 + groups * (scale_bytes + extra)
    return Cost(read=weight.nbytes, write=written)


def _checked_scheme(
    weight: Tensor, scheme: str, group_size: int, dtype: ScalarType | None
) -> tuple[Scheme, ScalarType]:
    """The scheme, and the dtype of its scales."""
    check_dtype("quantize", "weight", weight, FLOATS)
    check_size("quantize", "weight", weight)
    kind = scheme_named(scheme, "quantize")
    check_group_size("quantize", kind, group_size)
    if weight.dim() != 2:
        raise ValueError(
            f"quantize: argument 'weight' expects two dimensions, got shape {list(weight.shape)}"
        )
    if weight.shape[1] % group_size:
        raise ValueError(
            f"quantize: argument 'weight' has rows of {weight.shape[1]}, which are no whole groups"
            f" of {group_size}. Choose a group_size that divides it, of {kind.group_sizes}"
        )
    wanted = kind.scale_dtype or dtype or weight.dtype
    if wanted not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"quantize: argument 'dtype' expects {expected}, got {wanted}")
    return kind, wanted


def _empty_parts(
    weight: Tensor, kind: Scheme, group_size: int, dtype: ScalarType
) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = weight.shape
    words = weight.new_empty(rows, row_words(columns, kind.bits), dtype=torch.int32)
    scales = weight.new_empty(rows, columns // group_size, dtype=dtype)
    if kind.kind == SYMMETRIC:
        return words, scales, weight.new_empty(0, dtype=torch.uint8)
    return (
        words,
        scales,
        torch.empty_like(scales, dtype=torch.uint8 if kind.kind == ZERO_POINT else dtype),
    )


@operator(
    source=SOURCE,
    reference=_reference_quantize,
    cases=[
        _weights_case(0, 64, "int4", 64),
        _weights_case(3, 0, "int8", 32),
        _weights_case(1, 32, "int4", 32),
        _weights_case(31, 64, "int4_zero_point", 64),
        _weights_case(33, 128, "int8_zero_point", 32),
        _weights_case(7, 4096, "mlx_4bit", 128),
        _weights_case(5, 96, "mlx_8bit", 32),
        _weights_case(13, 320, "int8", 64),
        _weights_case(32, 96, "q8_0", 32),
        _weights_case(17, 64, "q4_0", 32),
    ],
    bench=[
        _weights_case(4096, 4096, "int4", 64),
        _weights_case(4096, 4096, "q4_0", 32),
        _weights_case(4096, 4096, "mlx_4bit", 64),
    ],
    cost=_quantize_cost,
    no_gradient="codes are integers; quantise what is trained already",
)
def _quantize(
    weight: Tensor, scheme: str, group_size: int, dtype: ScalarType | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    kind, dtype = _checked_scheme(weight, scheme, group_size, dtype)
    return _empty_parts(weight, kind, group_size, dtype)


@_quantize.run
def _(
    parts: tuple[Tensor, Tensor, Tensor],
    weight: Tensor,
    scheme: str,
    group_size: int,
    dtype: ScalarType | None = None,
) -> None:
    words, scales, offsets = parts
    kind = SCHEMES[scheme]
    if weight.numel() == 0:
        return
    if row_stride(weight, 1) is None:
        weight = weight.contiguous()
    variants.record("quantize", weight.dtype, "single_simdgroup", 1)
    choice = choose(
        operator="quantize",
        dtype=variants.DTYPE_NAMES[weight.dtype],
        shape_class="any",
        device=weight.device.type,
        strategy="single_simdgroup",
    )
    rows, columns = weight.shape
    suffix = f"{kind.bits}_{SUFFIXES[weight.dtype]}_{SUFFIXES[scales.dtype]}"
    size = min(words.shape[1], choice.group_size)
    _quantize.kernels.kernel(f"quantize_{kind.recipe}_{suffix}", weight.device)(
        weight,
        words,
        scales,
        offsets if offsets.numel() else scales,
        {"columns": columns, "group_size": group_size, "stride": row_stride(weight, 1) or 0},
        threads=(-(-words.shape[1] // size) * size, rows),  # whole threadgroups
        group_size=(size, 1),
    )


# --- dequantise -----------------------------------------------------------------------------------


def _reference_dequantize(
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bits: int,
    group_size: int,
    dtype: ScalarType | None = None,
) -> Tensor:
    """In float32 at least, rounded once at the end."""
    exact = torch.float64 if scales.dtype == torch.float64 else torch.float32
    others = offsets.to(exact) if offsets is not None and offsets.is_floating_point() else offsets
    weights = weights_of(words, scales.to(exact), others, bits, group_size)
    return weights if exact == torch.float64 else weights.to(dtype or scales.dtype)


def random_parts(
    rows: int,
    columns: int,
    scheme: str,
    group_size: int,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Optional]:
    """Words of random codes with scales that make weights of about one."""
    kind = SCHEMES[scheme]
    words = torch.randint(
        -(2**31), 2**31, (rows, row_words(columns, kind.bits)), generator=generator
    ).to(torch.int32)
    shape = (rows, columns // group_size)
    spread = 0.5 + torch.rand(shape, generator=generator)
    scales = (2 * spread / kind.levels).to(kind.scale_dtype or dtype)
    if kind.kind == SYMMETRIC:
        return words, scales, None
    if kind.kind == ZERO_POINT:
        zeros = torch.randint(0, kind.levels, shape, generator=generator)
        return words, scales, zeros.to(torch.uint8)
    return words, scales, (-spread).to(dtype)


def _parts_case(rows: int, columns: int, scheme: str, group_size: int) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        parts = random_parts(rows, columns, scheme, group_size, dtype, generator)
        moved = [part.to(device) if part is not None else None for part in parts]
        keywords = {"bits": SCHEMES[scheme].bits, "group_size": group_size, "dtype": dtype}
        return moved, keywords

    return Case(f"{rows}x{columns} {scheme} groups of {group_size}", make)


def _dequantize_cost(
    words: Tensor,
    scales: Tensor,
    offsets: Optional = None,
    dtype: ScalarType | None = None,
    group_size: int = 32,
    **_: Any,
) -> Cost:
    extra = offsets.nbytes if offsets is not None else 0
    weights = scales.numel() * group_size
    written = weights * (dtype or scales.dtype).itemsize
    return Cost(read=words.nbytes + scales.nbytes + extra, write=written, flops=2 * weights)


def _checked_dtype(scales: Tensor, dtype: ScalarType | None) -> ScalarType:
    wanted = dtype or scales.dtype
    if wanted not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"dequantize: argument 'dtype' expects {expected}, got {wanted}")
    return wanted


@operator(
    source=SOURCE,
    reference=_reference_dequantize,
    cases=[
        _parts_case(0, 64, "int4", 64),
        _parts_case(1, 32, "int8", 32),
        _parts_case(31, 64, "int4", 64),
        _parts_case(33, 128, "int8_zero_point", 32),
        _parts_case(7, 4096, "mlx_4bit", 128),
        _parts_case(5, 96, "mlx_8bit", 32),
        _parts_case(3, 160, "q8_0", 32),
        _parts_case(13, 320, "int4_zero_point", 64),
        _parts_case(17, 64, "q4_0", 32),
    ],
    bench=[_parts_case(4096, 4096, "int4", 64), _parts_case(4096, 4096, "mlx_8bit", 64)],
    cost=_dequantize_cost,
    no_gradient="quantised weights carry none; train in floating point",
)
def _dequantize(
    words: Tensor,
    scales: Tensor,
    offsets: Tensor | None,
    bits: int,
    group_size: int,
    dtype: ScalarType | None = None,
) -> Tensor:
    check_quantized("dequantize", words, scales, offsets, bits, group_size)
    dtype = _checked_dtype(scales, dtype)
    weights = scales.new_empty(scales.shape[0], scales.shape[1] * group_size, dtype=dtype)
    check_size("dequantize", "result", weights)
    return weights


@_dequantize.run
def _(
    weights: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bits: int,
    group_size: int,
    dtype: ScalarType | None = None,
) -> None:
    if weights.numel() == 0:
        return
    dtype, columns = weights.dtype, weights.shape[1]
    variants.record("dequantize", dtype, "single_simdgroup", 1)
    choice = choose(
        operator="dequantize",
        dtype=variants.DTYPE_NAMES[dtype],
        shape_class="any",
        device=words.device.type,
        strategy="single_simdgroup",
    )
    suffix = f"{kind_of(offsets)}_{bits}_{SUFFIXES[dtype]}_{SUFFIXES[scales.dtype]}"
    scales = scales.contiguous()
    size = min(words.shape[1], choice.group_size)
    _dequantize.kernels.kernel(f"dequantize_{suffix}", words.device)(
        words.contiguous(),
        scales,
        offsets.contiguous() if offsets is not None else scales,
        weights,
        {"columns": columns, "group_size": group_size, "stride": columns},
        threads=(-(-words.shape[1] // size) * size, words.shape[0]),  # whole threadgroups
        group_size=(size, 1),
    )


# --- the public functions -------------------------------------------------------------------------


def quantize(
    weight: Tensor,
    scheme: str,
    group_size: int | None = None,
    dtype: ScalarType | None = None,
) -> Quantized:
    """A matrix [out, in] in codes of a few bits; scales get `dtype`, or that of the matrix.

    Schemes: int4, int8 (symmetric), int4_zero_point, int8_zero_point, q4_0, q8_0 (ggml's, bit for
    bit), mlx_4bit, mlx_8bit (MLX's affine format, the same codes). Groups are 32, 64 (the default)
    or 128 neighbours of a row, 32 for ggml's, and a row must be whole groups.
    """
    kind = scheme_named(scheme, "quantize")
    size = kind.default_group_size if group_size is None else group_size
    words, scales, offsets = _quantize(weight.detach(), scheme, size, dtype)
    # A group with a NaN or an infinity has no scale: every weight of it would be lost.
    if not torch.compiler.is_compiling() and not bool(weight.detach().isfinite().all()):
        count = int((~weight.detach().isfinite()).sum())
        raise ValueError(
            f"quantize: argument 'weight' has {count} values that are NaN or infinite, which no"
            " scheme can hold"
        )
    return Quantized(words, scales, None if kind.kind == SYMMETRIC else offsets, kind, size)


def dequantize(quantized: Quantized, dtype: ScalarType | None = None) -> Tensor:
    """The matrix that codes stand for, in `dtype` or that of the scales."""
    result: Tensor = _dequantize(
        quantized.words,
        quantized.scales,
        quantized.offsets,
        quantized.scheme.bits,
        quantized.group_size,
        dtype,
    )
    return result
