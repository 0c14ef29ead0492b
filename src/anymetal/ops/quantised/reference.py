"""Products with quantised weights in plain torch, and ways to call them.

The float matrix is made of the codes, so that torch's own product has the same weights.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakIdKeyDictionary

from anymetal.ops.declare import Case
from anymetal.ops.quantised.quantize import random_parts
from anymetal.ops.quantised.schemes import SCHEMES, weights_of

Tensor = torch.Tensor
Optional = torch.Tensor | None


def _activated(x: Tensor, activation: str | None) -> Tensor:
    if activation == "silu":
        return F.silu(x)
    if activation is None:
        return x
    return F.gelu(x, approximate="tanh" if activation == "gelu_tanh" else "none")


# The float matrix of a quantised one, which torch's own product is timed with: it is made once for
# the words and the scales that it belongs to.
_matrices: MutableMapping[Tensor, tuple[weakref.ref[Tensor], Tensor]] = WeakIdKeyDictionary()
_ROWS_AT_ONCE = 256  # float64 copies of a large matrix are larger than caches


def kept_matrix(
    codes: Tensor, scales: Tensor, dtype: torch.dtype, made: Callable[[], Tensor]
) -> Tensor:
    """The matrix of these codes and scales in `dtype`, made where it is not known."""
    known = _matrices.get(codes)
    if known is not None and known[0]() is scales and known[1].dtype == dtype:
        return known[1]
    matrix = made()
    _matrices[codes] = (weakref.ref(scales), matrix)
    return matrix


def _matrix(
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
) -> Tensor:
    return kept_matrix(
        words,
        scales,
        dtype,
        lambda: _unpacked_matrix(words, scales.detach(), offsets, bits, group_size, dtype),
    )


def _unpacked_matrix(
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bits: int,
    group_size: int,
    dtype: torch.dtype,
) -> Tensor:
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    rows, columns = scales.shape[0], scales.shape[1] * group_size
    matrix = torch.empty(rows, columns, dtype=dtype, device=scales.device)
    for start in range(0, rows, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        others = offsets[part].detach() if offsets is not None else None
        if others is not None and others.is_floating_point():
            others = others.to(exact)
        matrix[part] = weights_of(words[part], scales[part].to(exact), others, bits, group_size)
    return matrix


def linear_reference(
    input: Tensor,
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bias: Optional,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> Tensor:
    matrix = _matrix(words, scales, offsets, bits, group_size, input.dtype)
    return _activated(F.linear(input, matrix, bias), activation)


def linear_backward_reference(
    grad: Tensor,
    input: Optional,
    words: Tensor,
    scales: Tensor,
    offsets: Optional,
    bias: Optional,
    bits: int,
    group_size: int,
    activation: str | None = None,
) -> tuple[Tensor, Tensor]:
    shape = (*grad.shape[:-1], scales.shape[1] * group_size)
    with torch.enable_grad():
        x = (grad.new_zeros(shape) if input is None else input.detach()).requires_grad_()
        add = None if bias is None else bias.detach().requires_grad_()
        y = linear_reference(x, words, scales, offsets, add, bits, group_size, activation)
        wanted = [x] if add is None else [x, add]
        results = torch.autograd.grad(y, wanted, grad)
    return results[0], results[1] if add is not None else grad.new_empty(0)


# --- cases ----------------------------------------------------------------------------------------


def linear_case(
    batch: tuple[int, ...],
    rows: int,
    columns: int,
    scheme: str,
    group_size: int,
    *,
    activation: str | None = None,
    bias: bool = False,
    name: str = "",
) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        x = torch.randn(*batch, columns, generator=generator).to(dtype)
        parts = random_parts(rows, columns, scheme, group_size, dtype, generator)
        add = torch.randn(rows, generator=generator).to(dtype) if bias else None
        tensors = [t.to(device) if t is not None else None for t in (x, *parts, add)]
        keywords = {
            "bits": SCHEMES[scheme].bits,
            "group_size": group_size,
            "activation": activation,
        }
        return tensors, keywords

    words = [name or f"{'x'.join(map(str, (*batch, columns)))} by {rows}x{columns}", scheme]
    words += [f"groups of {group_size}", *(["bias"] if bias else [])]
    words += [activation] if activation is not None else []
    return Case(" ".join(words), make)


def linear_backward_case(forward: Case, with_input: bool) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        (x, words, *parts), keywords = forward.make(dtype, device, generator)
        grad = torch.randn(*x.shape[:-1], words.shape[0], generator=generator).to(dtype).to(device)
        return [grad, x if with_input else None, words, *parts], keywords

    return Case(forward.name, make)
