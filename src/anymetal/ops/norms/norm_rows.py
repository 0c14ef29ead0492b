"""Rows go in, normalised rows and their gradients come out: which norm kernel runs, and its launch.

Every norm of the library is one over rows of neighbouring elements; they differ in whether a mean
is taken away, and in which weight belongs to an element.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import variants
from anymetal.ops.declare.declare import Operator
from anymetal.ops.declare.kernel_file import SUFFIXES, KernelFile, kernel_file
from anymetal.ops.declare.layout import aligned, group_shape, row_stride
from anymetal.policy.policy import Choice, choose

FORWARD_SOURCE = "norms/norm.metal"
BACKWARD_SOURCE = "norms/norm_backward.metal"
FORWARD = kernel_file(FORWARD_SOURCE)
BACKWARD = kernel_file(BACKWARD_SOURCE)

# A team of threads keeps a row in registers.
HELD_STRATEGIES = ("single_simdgroup", "single_group")

HAS_WEIGHT, HAS_BIAS, HAS_EXTRA = 1, 2, 4
KEPT_MOMENTS = 3

Optional = torch.Tensor | None


@functools.cache
def held_elements() -> int:
    """How many elements of a row a thread keeps, as the kernels say it."""
    found = re.search(r"held_elements = (\d+);", FORWARD.text)
    assert found is not None, "norm.metal names its held_elements"
    return int(found.group(1))


@dataclass(frozen=True)
class Rows:
    """A tensor whose rows are dense, and the distance between them."""

    tensor: torch.Tensor
    stride: int

    def divides(self, rows: int) -> bool:
        """Whether every row starts where a vector of four elements may."""
        return aligned(self.tensor) and (rows == 1 or self.stride % 4 == 0)


def rows_of(tensor: torch.Tensor, split: int) -> Rows:
    """A tensor as rows made of the dimensions from `split` on; copied if they are not dense."""
    stride = row_stride(tensor, split)
    if stride is None:
        tensor = tensor.contiguous()
        stride = row_stride(tensor, split)
    return Rows(tensor, stride or 0)


@dataclass(frozen=True)
class Plan:
    """A strategy with its launch; `chunks` is how many threadgroups share a row."""

    strategy: str
    choice: Choice
    rows: int
    chunks: int = 1
    chunk: int = 0

    @property
    def group_size(self) -> tuple[int, int]:
        if self.strategy == "single_simdgroup":
            return SIMDGROUP, min(self.choice.group_size // SIMDGROUP, self.rows)
        return self.choice.group_size, 1

    @property
    def threads(self) -> tuple[int, int]:
        return self.group_size[0] * self.chunks, self.rows


@dataclass(frozen=True)
class Gradient:
    """The gradient of x; each row's moments; sums of blocks of rows, where they were taken."""

    x: torch.Tensor
    kept: torch.Tensor
    sums: Optional
    blocks: int


@dataclass(frozen=True)
class Norm:
    """One call: the numbers that all its kernels get.

    `kind` is rms_norm or layer_norm. `spatial` is how many neighbouring elements share a weight, 0
    where each has its own; then rows are counted through `groups` of channels.
    """

    operator: Operator
    kind: str
    rows: int
    columns: int
    eps: float
    offset: float = 0.0
    spatial: int = 0
    groups: int = 1

    # --- which kernel -----------------------------------------------------------------------------

    def plan(self, tensor: torch.Tensor) -> Plan:
        """By the length of the rows and their number."""
        if self.columns <= SIMDGROUP * held_elements():
            return self._plan("single_simdgroup", "short_rows", tensor)
        single = self._plan("single_group", "medium_rows", tensor)
        if self.columns <= single.choice.group_size * held_elements():
            return single
        two_phase = self._plan("two_phase", "few_long_rows", tensor)
        if self.rows <= two_phase.choice.values["most_rows"] and two_phase.chunks > 1:
            return two_phase
        return self._plan("looped", "long_rows", tensor)

    def _plan(self, strategy: str, shape_class: str, tensor: torch.Tensor) -> Plan:
        choice = self.choice(strategy, shape_class, tensor)
        if strategy != "two_phase":
            return Plan(strategy, choice, self.rows)
        chunk = choice.values["chunk"]
        return Plan(strategy, choice, self.rows, -(-self.columns // chunk), chunk)

    def choice(self, strategy: str, shape_class: str, tensor: torch.Tensor) -> Choice:
        return choose(
            operator=self.operator.name,
            dtype=variants.DTYPE_NAMES[tensor.dtype],
            shape_class=shape_class,
            device=tensor.device.type,
            strategy=strategy,
        )

    def width(self, plan: Plan, rows: list[Rows], parameters: list[Optional]) -> int:
        """4 where rows, chunks and weights all divide into aligned vectors."""
        even = self.columns % 4 == 0 and self.spatial % 4 == 0 and plan.chunk % 4 == 0
        if self.spatial == 0:
            even = even and all(p is None or aligned(p) for p in parameters)
        return 4 if even and all(each.divides(self.rows) for each in rows) else 1

    def numbers(self, plan: Plan, flags: int) -> list[int]:
        return [self.columns, self.spatial, self.groups, flags, plan.chunk]

    # --- forward ----------------------------------------------------------------------------------

    def normalise(
        self, x: Rows, weight: Optional, bias: Optional, residual: Rows | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The normalised rows, and the sum that was normalised (x itself without a residual)."""
        y = Rows(_dense_like(x.tensor), self.columns)
        total = Rows(_dense_like(x.tensor), self.columns) if residual is not None else x
        if y.tensor.numel():
            self._normalise(x, residual, weight, bias, y, total)
        return y.tensor, total.tensor

    def _normalise(
        self,
        x: Rows,
        residual: Rows | None,
        weight: Optional,
        bias: Optional,
        y: Rows,
        total: Rows,
    ) -> None:
        plan = self.plan(x.tensor)
        width = self.width(plan, [x, residual or x, y, total], [weight, bias])
        variants.record(self.operator.name, x.tensor.dtype, plan.strategy, width)
        prefix = f"add_{self.kind}" if residual is not None else self.kind
        numbers = self.numbers(plan, _flags(weight, bias))
        other = residual or x
        written = total.tensor if residual is not None else y.tensor
        parameters = [x.tensor if p is None else p for p in (weight, bias)]
        strides = [x.stride, other.stride, y.stride]
        shape = {"threads": plan.threads, "group_size": plan.group_size}
        if plan.strategy != "two_phase":
            _kernel(FORWARD, f"{prefix}_{plan.strategy}", width, x.tensor)(
                x.tensor, other.tensor, *parameters, y.tensor, written,
                numbers, strides, [self.eps, self.offset], **shape,
            )  # fmt: skip
            return
        partials = _floats(x.tensor, self.rows * plan.chunks * 2)
        _kernel(FORWARD, f"{prefix}_partial", width, x.tensor)(
            x.tensor, other.tensor, partials, written, numbers, strides, **shape
        )
        _kernel(FORWARD, f"{self.kind}_finish", width, x.tensor)(
            total.tensor, partials, *parameters, y.tensor,
            numbers, [total.stride, y.stride], [self.eps, self.offset], **shape,
        )  # fmt: skip

    # --- gradients --------------------------------------------------------------------------------

    def gradient(
        self, grad: Rows, extra: Rows | None, x: Rows, weight: Optional, bias: bool, sums: bool
    ) -> Gradient:
        """The gradient of x (plus `extra`), and what those of the parameters are made of.

        With `sums`, kernels that hold a row also add up its share of the parameters' gradients.
        """
        plan = self.plan(x.tensor)
        block = 1
        if sums and plan.strategy in HELD_STRATEGIES:
            block = self.rows_of_block(x.tensor)
        blocks = -(-self.rows // block)
        found = Gradient(
            _dense_like(x.tensor),
            _floats(x.tensor, self.rows * KEPT_MOMENTS),
            _floats(x.tensor, (2 if bias else 1) * blocks * self.columns)
            if sums and plan.strategy in HELD_STRATEGIES
            else None,
            blocks,
        )
        if found.x.numel():
            self._gradient(plan, (grad, extra or grad, x), weight, found, block)
        return found

    def _gradient(
        self,
        plan: Plan,
        inputs: tuple[Rows, Rows, Rows],
        weight: Optional,
        found: Gradient,
        block: int,
    ) -> None:
        grad, extra, x = inputs
        dx = Rows(found.x, self.columns)
        width = self.width(plan, [*inputs, dx], [weight])
        variants.record(self.operator.name, x.tensor.dtype, plan.strategy, width)
        both = found.sums is not None and found.sums.numel() > found.blocks * self.columns
        flags = _flags(weight, found.sums if both else None)
        flags |= HAS_EXTRA if extra is not grad else 0
        numbers, floats = self.numbers(plan, flags), [self.eps, self.offset]
        scale = x.tensor if weight is None else weight
        prefix = f"{self.kind}_backward"
        strides = [grad.stride, extra.stride, x.stride, dx.stride]
        shape = {"threads": plan.threads, "group_size": plan.group_size}
        tensors = [grad.tensor, extra.tensor, x.tensor, scale]
        if plan.strategy in HELD_STRATEGIES:
            form = prefix if found.sums is None else f"{prefix}_sums"
            teams = replace(plan, rows=found.blocks)
            _kernel(BACKWARD, f"{form}_{plan.strategy}", width, x.tensor)(
                *tensors, dx.tensor, found.kept,
                found.kept if found.sums is None else found.sums,
                numbers, strides, floats, [block, self.rows],
                threads=teams.threads, group_size=teams.group_size,
            )  # fmt: skip
        elif plan.strategy == "looped":
            _kernel(BACKWARD, f"{prefix}_looped", width, x.tensor)(
                *tensors, dx.tensor, found.kept, numbers, strides, floats, **shape
            )
        else:
            partials, shares = (_floats(x.tensor, self.rows * plan.chunks * 2) for _ in range(2))
            _kernel(FORWARD, f"{self.kind}_partial", width, x.tensor)(
                x.tensor, x.tensor, partials, dx.tensor, numbers, [x.stride, x.stride, 0], **shape
            )
            _kernel(BACKWARD, f"{prefix}_partial", width, x.tensor)(
                grad.tensor, x.tensor, scale, partials, shares, found.kept,
                numbers, [grad.stride, x.stride], floats, **shape,
            )  # fmt: skip
            _kernel(BACKWARD, f"{prefix}_finish", width, x.tensor)(
                *tensors, shares, found.kept, dx.tensor, numbers, strides, floats, **shape
            )

    def rows_of_block(self, tensor: torch.Tensor) -> int:
        """Rows that are added up before their sum is written."""
        values = self.choice("columns", "any", tensor).values
        return max(values["rows_per_block"], -(-self.rows // values["most_blocks"]))

    def column_gradients(
        self, grad: Rows, x: Rows, found: Gradient, shape: torch.Size, bias: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of a weight and a bias an element: the sums of all blocks of rows."""
        if not x.tensor.numel():
            return _zeros(x.tensor, shape), _zeros(x.tensor, shape)
        if found.sums is not None:
            return self._sum_blocks(found.sums, x.tensor, found.blocks, shape, bias)
        choice = self.choice("columns", "any", x.tensor)
        block = self.rows_of_block(x.tensor)
        blocks = -(-self.rows // block)
        even = self.columns % 4 == 0 and grad.divides(self.rows) and x.divides(self.rows)
        width = 4 if even else 1
        variants.record(self.operator.name, x.tensor.dtype, "columns", width)
        sums = _floats(x.tensor, (2 if bias else 1) * blocks * self.columns)
        threads = (self.columns // width, blocks)
        _kernel(BACKWARD, "column_sums", width, x.tensor)(
            grad.tensor, x.tensor, found.kept, sums,
            [self.columns, self.rows, block, blocks, int(bias)], [grad.stride, x.stride],
            threads=threads, group_size=group_shape(threads, choice.group_size),
        )  # fmt: skip
        return self._sum_blocks(sums, x.tensor, blocks, shape, bias)

    def channel_gradients(
        self, grad: Rows, x: Rows, found: Gradient, channels: int, bias: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of a weight and a bias a channel; both tensors are dense."""
        shape = torch.Size([channels])
        if not x.tensor.numel():
            return _zeros(x.tensor, shape), _zeros(x.tensor, shape)
        samples = self.rows // self.groups
        plan = Plan(
            "single_simdgroup",
            self.choice("single_simdgroup", "short_rows", x.tensor),
            samples * channels,
        )
        even = self.spatial % 4 == 0 and aligned(grad.tensor) and aligned(x.tensor)
        sums = _floats(x.tensor, 2 * samples * channels)
        _kernel(BACKWARD, "channel_sums", 4 if even else 1, x.tensor)(
            grad.tensor, x.tensor, found.kept, sums,
            [self.spatial, channels, channels // self.groups, samples],
            threads=plan.threads, group_size=plan.group_size,
        )  # fmt: skip
        return self._sum_blocks(sums, x.tensor, samples, shape, bias)

    def _sum_blocks(
        self,
        sums: torch.Tensor,
        x: torch.Tensor,
        blocks: int,
        shape: torch.Size,
        bias: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        choice = self.choice("columns", "any", x)
        weight_gradient = torch.empty(shape, dtype=x.dtype, device=x.device)
        bias_gradient = torch.empty_like(weight_gradient) if bias else weight_gradient
        columns = weight_gradient.numel()
        threads = (columns, 2 if bias else 1)
        BACKWARD.kernel(f"parameter_sums_{SUFFIXES[x.dtype]}", x.device)(
            sums, weight_gradient, bias_gradient, [columns, blocks],
            threads=threads, group_size=group_shape(threads, choice.group_size),
        )  # fmt: skip
        return weight_gradient, bias_gradient


def _kernel(file: KernelFile, name: str, width: int, tensor: torch.Tensor) -> Any:
    form = "scalar" if width == 1 else f"vec{width}"
    return file.kernel(f"{name}_{form}_{SUFFIXES[tensor.dtype]}", tensor.device)


def _flags(weight: Optional, bias: Optional) -> int:
    return (HAS_WEIGHT if weight is not None else 0) | (HAS_BIAS if bias is not None else 0)


def _dense_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _floats(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.float32, device=tensor.device)


def _zeros(tensor: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
