"""A few rows of activations times quantised weights: which of three kernels, and its launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anymetal.errors import PolicyError
from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import AnyOperator, variants
from anymetal.ops.declare.kernel_file import SUFFIXES, kernel_file
from anymetal.ops.declare.layout import aligned
from anymetal.ops.quantised.quantize import kind_of
from anymetal.ops.quantised.schemes import WORD_BITS
from anymetal.policy.policy import Choice

MATVEC = kernel_file("quantised/matvec.metal")
MATVEC_MATRICES = kernel_file("quantised/matvec_matrices.metal")
MATVEC_ASKED = kernel_file("quantised/matvec_asked.metal")
_FOUR, _EIGHT = 4, 8

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class Weights:
    """The parts of a quantised matrix as arguments of an operator: dense, and checked."""

    words: Tensor
    scales: Tensor
    offsets: Optional
    bits: int
    group_size: int

    @property
    def rows(self) -> int:
        return self.words.shape[0]

    @property
    def columns(self) -> int:
        return self.scales.shape[1] * self.group_size

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """Three buffers; the last is not read where there are no offsets."""
        scales = self.scales.contiguous()
        offsets = self.offsets.contiguous() if self.offsets is not None else scales
        return self.words.contiguous(), scales, offsets

    def instance(self, x: Tensor) -> str:
        """The end of a kernel's name."""
        return f"{SUFFIXES[x.dtype]}_{SUFFIXES[self.scales.dtype]}"


def numbers_of(
    weights: Weights,
    count: int,
    stride: int,
    bias: Optional,
    activation: str | None,
    split: int = 1,
) -> dict[str, Any]:
    """`Numbers` of shared/packed.h."""
    return {
        "count": count,
        "rows": weights.rows,
        "columns": weights.columns,
        "group_size": weights.group_size,
        "activation": activation or "none",
        "has_bias": bias is not None,
        "split": split,
        "stride": stride,
    }


def matvec(
    operator: AnyOperator,
    choice: Choice,
    x: tuple[Tensor, int, int],
    weights: Weights,
    bias: Optional,
    activation: str | None,
    y: Tensor,
) -> None:
    rows, count, stride = x
    variants.record(operator.name, rows.dtype, "dots", WORD_BITS // weights.bits)
    in_eights = _in_eights(rows, stride, weights)
    if choice.values.get("asked_tiles", 0) and in_eights and _can_be_asked_for(weights):
        _asked(choice, x, weights, bias, activation, y)
        return
    if choice.values.get("matrix_group_size", 0) and in_eights:
        _by_matrices(choice, x, weights, bias, activation, y)
        return
    split = choice.values["split"]
    simdgroups = -(-weights.rows // MATVEC.constant("rows_of_simdgroup")) * split
    size = min(simdgroups * SIMDGROUP, choice.group_size)
    _check_split(choice, size, split)
    groups = -(-simdgroups * SIMDGROUP // size)
    kind = f"{kind_of(weights.offsets)}_{weights.bits}_{weights.group_size // SIMDGROUP}"
    arguments = weights.arguments
    wide = choice.values.get("width", 1) > 1 and _in_fours(rows, stride, weights, arguments)
    name = "matvec_wide" if wide else "matvec"
    kernel = MATVEC.kernel(f"{name}_{kind}_{weights.instance(rows)}", rows.device)
    numbers = numbers_of(weights, count, stride, bias, activation, split)
    _launch(kernel, rows, weights, bias, y, numbers, (groups, size))


def _by_matrices(
    choice: Choice,
    x: tuple[Tensor, int, int],
    weights: Weights,
    bias: Optional,
    activation: str | None,
    y: Tensor,
) -> None:
    """The simdgroups of a threadgroup share 16 rows of weights."""
    rows, count, stride = x
    most = MATVEC_MATRICES.constant("most_simdgroups") * SIMDGROUP
    size = min(choice.values["matrix_group_size"], most)
    groups = -(-weights.rows // MATVEC_MATRICES.constant("rows_of_threadgroup"))
    if groups * count > choice.values["matrix_groups"]:
        size = max(size // 2, SIMDGROUP)
    kind = f"{kind_of(weights.offsets)}_{weights.group_size // SIMDGROUP}"
    kernel = MATVEC_MATRICES.kernel(f"matvec_matrices_{kind}_{weights.instance(rows)}", rows.device)
    numbers = numbers_of(weights, count, stride, bias, activation)
    _launch(kernel, rows, weights, bias, y, numbers, (groups, size))


def _asked(
    choice: Choice,
    x: tuple[Tensor, int, int],
    weights: Weights,
    bias: Optional,
    activation: str | None,
    y: Tensor,
) -> None:
    """The simdgroups of a threadgroup share tiles of weights. Words are asked for ahead, the more
    blocks the fewer tiles."""
    rows, count, stride = x
    tiles, simdgroups = asked_shape(choice, weights.rows, count, weights.columns)
    groups = -(-weights.rows // (tiles * MATVEC_ASKED.constant("rows_of_tile")))
    size = simdgroups * SIMDGROUP
    kernel = MATVEC_ASKED.instance(
        "matvec_asked",
        SUFFIXES[rows.dtype],
        SUFFIXES[weights.scales.dtype],
        kind_of(weights.offsets),
        weights.group_size // SIMDGROUP,
        tiles,
        max(choice.values["asked_items"] // tiles, 1),
        simdgroups,
        activation is not None,
        device=rows.device,
    )
    numbers = numbers_of(weights, count, stride, bias, activation)
    _launch(kernel, rows, weights, bias, y, numbers, (groups, size))


def _launch(
    kernel: Any,
    rows: Tensor,
    weights: Weights,
    bias: Optional,
    y: Tensor,
    numbers: dict[str, Any],
    shape: tuple[int, int],
) -> None:
    """`shape`: threadgroups, all of them whole, and their threads."""
    groups, size = shape
    kernel(
        rows,
        *weights.arguments,
        bias.contiguous() if bias is not None else rows,
        y,
        numbers,
        threads=(groups * size, numbers["count"]),
        group_size=(size, 1),
    )


def asked_shape(choice: Choice, rows: int, count: int, columns: int) -> tuple[int, int]:
    """Tiles and simdgroups of a threadgroup, for `count` rows of activations: as few tiles as let
    all threadgroups run at the same time, or as many as may be. Where half as many threadgroups, of
    twice as many simdgroups, fill a device with long rows, fewer activations are prepared twice."""
    most, largest = choice.values["asked_groups"], choice.values["asked_tiles"]
    simdgroups, height = choice.values["asked_simdgroups"], MATVEC_ASKED.constant("rows_of_tile")
    largest = min(largest, 1 << (rows // height).bit_length() - 1)

    def groups(tiles: int) -> int:
        return -(-rows * count // (tiles * height))

    blocks = columns // (SIMDGROUP * _EIGHT)
    if most // 4 < groups(largest) <= most // 2 and blocks >= 4 * simdgroups:
        return largest, 2 * simdgroups
    tiles = 1
    while tiles * 2 <= largest and groups(tiles) > most:
        tiles *= 2
    return tiles, simdgroups


def _can_be_asked_for(weights: Weights) -> bool:
    """Whether `matvec_asked` can take them: at least a tile, two groups or four in a block."""
    rows_of_tile = MATVEC_ASKED.constant("rows_of_tile")
    return weights.group_size > SIMDGROUP and weights.rows >= rows_of_tile


def _in_eights(x: Tensor, stride: int, weights: Weights) -> bool:
    """Whether words and activations are such that `matvec_matrices` can read them: whole blocks of
    codes of 4 bits, and eight activations of 16 bits at once."""
    words, scales, _ = weights.arguments
    return (
        weights.bits == _FOUR
        and x.element_size() == torch.float16.itemsize
        and weights.columns % (SIMDGROUP * _EIGHT) == 0
        and stride % _EIGHT == 0
        and aligned(x, _EIGHT)
        and aligned(words, _FOUR)
        and aligned(scales, min(SIMDGROUP * _EIGHT // weights.group_size, _FOUR))
    )


def _in_fours(
    x: Tensor, stride: int, weights: Weights, arguments: tuple[Tensor, Tensor, Tensor]
) -> bool:
    """Whether words, scales and activations can be read four at once, as `matvec_wide` does."""
    whole_blocks = weights.columns % (SIMDGROUP * WORD_BITS // weights.bits) == 0
    words, scales, _ = arguments
    return (
        whole_blocks
        and stride % _FOUR == 0
        and all(aligned(tensor, _FOUR) for tensor in (x, words, scales))
    )


def _check_split(choice: Choice, size: int, split: int) -> None:
    most = MATVEC.constant("most_simdgroups")
    if size // SIMDGROUP % split or (split > 1 and size > most * SIMDGROUP):
        raise PolicyError(
            f"{choice.origin}: split is {split}, which must divide the {size // SIMDGROUP}"
            f" simdgroups of a threadgroup, at most {most}"
        )
