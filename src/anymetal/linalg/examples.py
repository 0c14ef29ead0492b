"""Ways to call the operators, for tests, benchmarks and health."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from anymetal.ops.declare import Case, Cost

Matrix = Callable[[torch.Generator, Sequence[int]], Tensor]


def random(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    return torch.randn(tuple(shape), generator=generator)


def conditioned(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Far from singular, and no pivot near another: the truth in float64 has the same pivots."""
    matrix = random(generator, shape)
    count = min(shape[-2:])
    matrix.diagonal(dim1=-2, dim2=-1).add_(2.0 * (count + 1) ** 0.5)
    return matrix


def positive(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    matrix = random(generator, shape)
    return matrix @ matrix.mT + shape[-1] * torch.eye(shape[-1])


def symmetric(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Eigenvalues that lie apart, so that the vectors of float64 are those of float32."""
    size = shape[-1]
    vectors = torch.linalg.qr(random(generator, shape))[0]
    values = torch.arange(size) - size / 3
    matrix: Tensor = (vectors * values) @ vectors.mT
    return (matrix + matrix.mT) / 2


def spread(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Singular values that lie apart."""
    return _with_values(generator, shape, 1.0 + torch.arange(min(shape[-2:])))


def decaying(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Singular values that halve: a few directions hold nearly all of the matrix."""
    return _with_values(generator, shape, 0.5 ** torch.arange(min(shape[-2:])))


def _with_values(generator: torch.Generator, shape: Sequence[int], values: Tensor) -> Tensor:
    *batch, rows, columns = shape
    left = torch.linalg.qr(random(generator, (*batch, rows, len(values))))[0]
    right = torch.linalg.qr(random(generator, (*batch, columns, len(values))))[0]
    matrix: Tensor = (left * values) @ right.mT
    return matrix


def halving(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """Singular values that halve, with vectors near the axes."""
    matrix = random(generator, shape) / 32
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    diagonal += 0.5 ** torch.arange(diagonal.shape[-1])
    return matrix


def tolerance(generator: torch.Generator, shape: Sequence[int]) -> Tensor:
    """No value of `spread` and `symmetric` is near it, nor near this part of the largest one."""
    return torch.full(tuple(shape), 0.15)


def case(name: str, *matrices: tuple[Matrix, Sequence[int]], **keywords: Any) -> Case:
    """Matrices of these kinds and shapes as arguments, and keywords."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        made = [kind(generator, shape).to(dtype).to(device) for kind, shape in matrices]
        return list(made), dict(keywords)

    words = ["x".join(str(size) for size in shape) for _, shape in matrices]
    return Case(" ".join([name, *words, *(f"{k}={v}" for k, v in keywords.items())]).strip(), make)


def cost(flops: Callable[[int, int], float]) -> Callable[..., Cost]:
    """Each matrix read and the results written once; flops of the sizes of the first matrix."""

    def of(*tensors: Any, **_: Any) -> Cost:
        matrices = [t for t in tensors if isinstance(t, Tensor)]
        first = matrices[0]
        count = first.shape[:-2].numel()
        moved = sum(matrix.nbytes for matrix in matrices)
        return Cost(
            read=moved, write=matrices[-1].nbytes, flops=round(count * flops(*first.shape[-2:]))
        )

    return of
