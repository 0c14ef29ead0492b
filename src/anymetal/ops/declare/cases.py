"""Ways to call an operator, for tests, benchmarks and health: shapes go in, a Case comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare.operator import Case

# Elements of a tensor that is timed: a launch is all, in the caches, past them.
ELEMENTS = (1 << 12, 1 << 17, 1 << 21)
# Rows of the widths that models have.
ROWS = ((8, 512), (32, 4096), (256, 8192))


def random_case(*shapes: Sequence[int], scale: float = 2.0, **keywords: Any) -> Case:
    """Normally distributed tensors of these shapes as arguments; numbers and names as keywords."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        args = [scale * torch.randn(tuple(shape), generator=generator) for shape in shapes]
        return [arg.to(dtype).to(device) for arg in args], dict(keywords)

    words = ["x".join(str(size) for size in shape) or "scalar" for shape in shapes]
    words += [f"{name}={value}" for name, value in keywords.items()]
    return Case(" ".join(words), make)


def element_cases(tensors: int, **keywords: Any) -> list[Case]:
    """Operators over elements are timed with these."""
    return [random_case(*[(size,)] * tensors, **keywords) for size in ELEMENTS]
