"""Tensors go in; batches of float32 matrices that the kernels walk by strides come out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from anymetal.launch.structs import Fixed
from anymetal.ops.declare.kernel_file import KernelFile
from anymetal.ops.declare.kernel_file import kernel_file as shared_kernel_file
from anymetal.ops.matmul.product import Epilogue, Launch, product_of
from anymetal.policy.policy import choose

SIMDGROUP = 32
# Columns of a panel of the blocked algorithms.
PANEL = 32
_FOLDER = Path(__file__).parent


def kernel_file(name: str) -> KernelFile:
    return shared_kernel_file(_FOLDER / name)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """[..., m, n] as float32 [batch, m, n]: a view where strides and dtype allow it."""
    if tensor.dim() == 3 and tensor.dtype == torch.float32:
        return tensor
    batch = math.prod(tensor.shape[:-2])
    return tensor.reshape(batch, *tensor.shape[-2:]).float()


def room_in(output: torch.Tensor) -> torch.Tensor:
    """Float32 [batch, m, n] to be filled: the output itself where it can be."""
    if output.dim() == 3 and output.dtype == torch.float32:
        return output
    shape = (math.prod(output.shape[:-2]), *output.shape[-2:])
    if output.dtype == torch.float32:
        return output.view(shape)
    return output.new_empty(shape, dtype=torch.float32)


def deliver(output: torch.Tensor, result: torch.Tensor) -> None:
    """The result is in the output, or is copied there."""
    if output is not result and output.data_ptr() != result.data_ptr():
        output.copy_(result.reshape(output.shape))


def layout(matrices: torch.Tensor) -> dict[str, int]:
    """The kernels' `Strides` of a batch of matrices, or of vectors."""
    return dict(zip(("matrix", "row", "column"), (*matrices.stride(), 0), strict=False))


def order(matrices: torch.Tensor, size: int) -> int:
    """The kernels' `Order` of a batch of small matrices: 1 by rows, 2 by columns, otherwise 0."""
    if matrices.shape[1:] != (size, size):
        return 0
    matrix, *inside = matrices.stride()
    if matrix != size * size:
        return 0
    return 1 if inside == [size, 1] else 2 if inside == [1, size] else 0


def padded(size: int, multiple: int = SIMDGROUP) -> int:
    return -(-size // multiple) * multiple


def columns_of_lanes(columns: int) -> int:
    """Lanes that a small matrix takes, one a column: 8, 16 or 32."""
    return next(size for size in (8, 16, SIMDGROUP) if size >= columns)


def threads_of(operator: str, device: torch.device) -> int:
    """Threads of a threadgroup that has a matrix or a panel, by the policy for an operator."""
    return choose(operator, "fp32", "any", device.type, "panels").group_size


class Plan(NamedTuple):
    """A launch over small matrices, but for its tensors."""

    kernel: str
    shape: Fixed
    threads: int


Planner = Callable[..., tuple[str, int, Mapping[str, Any]]]
_MOST_PLANS = 4096


def planned(make: Planner) -> Callable[..., Plan]:
    """Makes a plan once for tensors of the same shapes and strides, and the same options.

    `make(*tensors, **options)` gives the kernel's name, the lanes that a matrix of the first tensor
    takes and the kernel's struct. For the least matrices that is as long as the launch.
    """
    known: dict[Any, Plan] = {}

    @functools.wraps(make)
    def plan(*tensors: torch.Tensor, **options: bool) -> Plan:
        key = (*[(t.shape, t.stride()) for t in tensors], *options.values())
        found = known.get(key)
        if found is None:
            if len(known) >= _MOST_PLANS:
                known.clear()
            name, size, shape = make(*tensors, **options)
            threads = -(-tensors[0].shape[0] // (SIMDGROUP // size)) * SIMDGROUP
            found = known[key] = Plan(f"{name}_{size}", Fixed(shape), threads)
        return found

    return plan


def run_planned(kernels: KernelFile, plan: Plan, *tensors: torch.Tensor) -> None:
    """Runs a plan, a simdgroup a threadgroup."""
    kernel = kernels.kernel(plan.kernel, tensors[0].device)
    kernel(*tensors, plan.shape, threads=plan.threads, group_size=SIMDGROUP)


def multiply_into(
    output: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    alpha: float = 1.0,
    accumulate: bool = False,
) -> torch.Tensor:
    """output = alpha A B, or output += alpha A B, by simdgroup-matrix products."""
    epilogue = Epilogue(bias=output if accumulate else None, alpha=alpha)
    if output.numel():
        Launch("matmul", product_of(a, b, output, epilogue), epilogue).run()
    return output


def subtract_product(output: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """output -= A B: the trailing update of the blocked algorithms."""
    return multiply_into(output, a, b, alpha=-1.0, accumulate=True)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return multiply_into(a.new_empty(*a.shape[:-1], b.shape[-1]), a, b)


def positive_signs(vectors: torch.Tensor) -> torch.Tensor:
    """[..., 1, n] signs that make the largest component of each column positive."""
    if vectors.numel() == 0:
        return vectors.new_ones(*vectors.shape[:-2], 1, vectors.shape[-1])
    largest = vectors.abs().argmax(-2, keepdim=True)
    return torch.where(vectors.gather(-2, largest) < 0, -1.0, 1.0).to(vectors.dtype)
