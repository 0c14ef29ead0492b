"""Rows of a norm go in; normalised rows, or their gradients, come out.

rms_norm, layer_norm and group_norm are the same kernels: they differ in what a row is, in whether a
mean is taken away, and in which weight belongs to an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import AnyOperator, variants
from anymetal.ops.declare.elementwise import choice_for, form
from anymetal.ops.declare.kernel_file import SUFFIXES, KernelFile, kernel_file
from anymetal.ops.declare.layout import aligned, group_shape, row_stride
from anymetal.ops.declare.rows import HELD, Plan, plan_rows, team_of

FORWARD = kernel_file("norms/norm.metal")
BACKWARD = kernel_file("norms/norm_backward.metal")
ASKED = kernel_file("norms/norm_asked_backward.metal")

# Of the teams that take rows by turns. An H200 takes 0.6% less where 3 of 264 are left idle so that
# none has a row more than others, and up to 1% more where 4 of 132 are.
_FEWEST_BUSY = 63 / 64
_BLOCKS_EACH = 8  # that a thread adds up, where threads share the blocks of a column
_OTHER_BYTES = 1536  # of a core's memory that a threadgroup takes, beside what it asks for

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class Sizes:
    """The struct `Sizes` of shared/moments.h, by its names."""

    rows: int
    columns: int
    eps: float
    offset: float = 0.0
    spatial: int = 0  # neighbouring elements that share a weight; 0 where each has its own
    groups: int = 1
    chunk: int = 0
    block: int = 1
    blocks: int = 0
    has_weight: bool = False
    has_bias: bool = False
    has_other: bool = False
    x: int = 0
    other: int = 0
    y: int = 0
    gradient: int = 0
    x_gradient: int = 0


@dataclass(frozen=True)
class DenseRows:
    """A tensor whose rows are dense, and the distance between them."""

    tensor: Tensor
    stride: int

    def divides(self, rows: int, width: int) -> bool:
        """Whether every row starts where a vector of `width` elements may."""
        return aligned(self.tensor, width) and (rows == 1 or self.stride % width == 0)


def rows_of(tensor: Tensor, split: int) -> DenseRows:
    """A tensor as rows made of the dimensions from `split` on; copied if they are not dense."""
    stride = row_stride(tensor, split)
    if stride is None:
        tensor = tensor.contiguous()
        stride = row_stride(tensor, split)
    return DenseRows(tensor, stride or 0)


@dataclass(frozen=True)
class Gradient:
    """Each row's moments; sums of blocks of rows, where they were taken, and whether halves of
    eight columns lie apart in these."""

    kept: Tensor
    sums: Optional
    sizes: Sizes
    halves: bool = False


@dataclass(frozen=True)
class Norm:
    """One call. `kind` is rms_norm, layer_norm or group_norm."""

    operator: AnyOperator
    kind: str
    sizes: Sizes

    def plan(self, tensor: Tensor) -> Plan:
        """The rung of the ladder for rows of a tensor of this dtype and device."""
        rows, columns = self.sizes.rows, self.sizes.columns
        plan = plan_rows(self.operator, tensor, rows, columns, lambda choice: choice.values["held"])
        values, most = plan.choice.values, plan.choice.group_size
        if plan.strategy != "single_group" or "least_held" not in values:
            return plan
        held = values["least_held"]
        while held < values["held"] and team_of(columns, held) > most:
            held *= 2
        choice = replace(plan.choice, values={**values, "held": held})
        return replace(plan, choice=choice, team=team_of(columns, held))

    def _width(
        self, widest: int, plan: Plan, rows: list[DenseRows], parameters: list[Optional]
    ) -> int:
        """8 or 4 where rows, chunks and weights all divide into aligned vectors of so many."""
        for width in (8, 4):
            lengths = (self.sizes.columns, self.sizes.spatial, plan.chunk)
            even = width <= widest and not any(length % width for length in lengths)
            if self.sizes.spatial == 0:
                even = even and all(p is None or aligned(p, width) for p in parameters)
            if even and all(each.divides(self.sizes.rows, width) for each in rows):
                return width
        return 1

    def _is_whole(
        self, plan: Plan, rows: list[DenseRows], width: int, weight: Optional, bias: Optional
    ) -> bool:
        """Whether the policy has kernels for whole rows, and these are: one behind the other, all
        threads with as many elements, and parameters as usual."""
        if not plan.choice.values.get("whole") or width != 16 // rows[0].tensor.element_size():
            return False
        usual = weight is not None and (bias is not None) == (self.kind == "layer_norm")
        fills = self.sizes.columns == plan.choice.values["held"] * plan.team
        return usual and fills and self._follow(rows)

    def _follow(self, rows: list[DenseRows]) -> bool:
        """Whether rows lie one behind the other, and weights are as they are stored."""
        dense = all(self.sizes.rows == 1 or each.stride == self.sizes.columns for each in rows)
        return dense and self.kind != "group_norm" and self.sizes.offset == 0.0

    # --- forward ----------------------------------------------------------------------------------

    def normalise(
        self,
        y: Tensor,
        total: Optional,
        x: DenseRows,
        residual: DenseRows | None,
        weight: Optional,
        bias: Optional,
    ) -> None:
        """Fills y, and where there is a residual `total`, the sum that is normalised."""
        if not y.numel():
            return
        plan, columns = self.plan(x.tensor), self.sizes.columns
        written = y if total is None else total
        other = residual or x
        dense = [DenseRows(tensor, columns) for tensor in (y, written)]
        width = self._width(plan.widest, plan, [x, other, *dense], [weight, bias])
        variants.record(self.operator.name, x.tensor.dtype, plan.strategy, width)
        prefix = self.kind if residual is None else f"add_{self.kind}"
        sizes = replace(
            self.sizes,
            chunk=plan.chunk,
            has_weight=weight is not None,
            has_bias=bias is not None,
            x=x.stride,
            other=other.stride,
            y=columns,
        )
        parameters = [x.tensor if p is None else p for p in (weight, bias)]
        if residual is None and self._is_whole(plan, [x], width, weight, bias):
            _kernel(FORWARD, f"{self.kind}_whole_{plan.choice.values['held']}", width, x.tensor)(
                x.tensor, *parameters, y, sizes, **plan.shape
            )
            return
        if plan.strategy != "two_phase":
            _kernel(FORWARD, f"{prefix}_{plan.kernel}", width, x.tensor)(
                x.tensor, other.tensor, *parameters, y, written, sizes, **plan.shape
            )
            return
        partials = _floats(x.tensor, self.sizes.rows * plan.chunks * 2)
        _kernel(FORWARD, f"{prefix}_partial", width, x.tensor)(
            x.tensor, other.tensor, partials, written, sizes, **plan.shape
        )
        if total is not None:
            x = DenseRows(total, columns)
        _kernel(FORWARD, f"{self.kind}_finish", width, x.tensor)(
            x.tensor, partials, *parameters, y, replace(sizes, x=x.stride), **plan.shape
        )

    # --- gradients --------------------------------------------------------------------------------

    def gradient(
        self,
        dx: Tensor,
        grad: DenseRows,
        extra: DenseRows | None,
        x: DenseRows,
        weight: Optional,
        *,
        has_bias: bool,
        sums: bool,
    ) -> Gradient:
        """Fills the gradient of x (plus `extra`); gives what those of the parameters are made of.

        With `sums`, kernels that hold a row also add up its share of the parameters' gradients.
        """
        plan = self.plan(x.tensor)
        sums = sums and plan.strategy in HELD
        inputs = (grad, extra or grad, x)
        rows = [*inputs, DenseRows(dx, self.sizes.columns)]
        blocks = self._plan_of_blocks(plan, rows, weight, has_bias=has_bias) if sums else None
        team = (blocks or plan).team
        block, count = self._blocks(x.tensor, team, by_turns=blocks is not None) if sums else (1, 0)
        sizes = replace(
            self.sizes,
            chunk=plan.chunk,
            block=block,
            blocks=count or self.sizes.rows,
            has_weight=weight is not None,
            has_bias=has_bias,
            has_other=extra is not None,
            gradient=grad.stride,
            other=(extra or grad).stride,
            x=x.stride,
            x_gradient=self.sizes.columns,
        )
        places = (2 if has_bias else 1) * sizes.blocks * sizes.columns
        found = Gradient(
            _floats(x.tensor, sizes.rows * BACKWARD.constant("kept_moments")),
            _floats(x.tensor, places) if sums else None,
            sizes,
        )
        if dx.numel() and blocks is not None:
            return self._gradient_in_blocks(blocks, dx, inputs, weight, found)
        if dx.numel():
            self._gradient(plan, dx, inputs, weight, found)
        return found

    def _plan_of_blocks(
        self, plan: Plan, rows: list[DenseRows], weight: Optional, *, has_bias: bool
    ) -> Plan | None:
        """A team for the kernels that take blocks of rows; None where the policy wants none, or
        rows do not divide into accesses of 16 bytes."""
        values, columns = plan.choice.values, self.sizes.columns
        if plan.strategy != "single_group" or not columns <= values.get("block_columns", 0):
            return None
        if self.kind == "group_norm" or (has_bias and self.kind != "layer_norm"):
            return None
        widest = 16 // rows[0].tensor.element_size()
        if self._width(widest, plan, rows, [weight]) != widest:
            return None
        team = team_of(columns, _held_of_blocks(plan))
        return replace(plan, team=team) if team <= BACKWARD.constant("most_block_threads") else None

    def _gradient_in_blocks(
        self,
        plan: Plan,
        dx: Tensor,
        inputs: tuple[DenseRows, DenseRows, DenseRows],
        weight: Optional,
        found: Gradient,
    ) -> Gradient:
        grad, extra, x = (each.tensor for each in inputs)
        width, values, sizes = 16 // x.element_size(), plan.choice.values, found.sizes
        variants.record(self.operator.name, x.dtype, plan.strategy, width)
        held = _held_of_blocks(plan)
        whole = weight is not None and not sizes.has_other and self._follow([inputs[0], inputs[2]])
        whole = whole and sizes.columns == held * plan.team
        words = f"{self.kind}_backward_{'sums' if sizes.has_bias else 'weight_sums'}"
        shape = replace(plan, rows=sizes.blocks).shape
        if whole and self._asks_ahead(plan, x):
            name = f"{words}_asked_{held}_{_asking_threads(plan.team)}_{SUFFIXES[x.dtype]}"
            ASKED.kernel(name, x.device)(grad, x, weight, dx, found.sums, sizes, **shape)
            return replace(found, halves=width == 8)
        pairs = whole and sizes.rows % 2 == 0 and held == values.get("pairs_held")
        name = f"{words}_blocks_{held}{'_pairs' if pairs else '_whole' if whole else ''}"
        _kernel(BACKWARD, name, width, x)(
            grad, extra, x, x if weight is None else weight, dx, found.sums, sizes, **shape
        )
        return found

    def _asks_ahead(self, plan: Plan, tensor: Tensor) -> bool:
        """Whether the gradients of whole rows are those of rows that are asked for ahead."""
        least = plan.choice.values.get("asked_columns")
        if least is None or self.sizes.columns < least:
            return False
        values = choice_for(self.operator, tensor, "columns").values
        teams, size = _teams_of_core(values, plan.team), ASKED.constant("asked_bytes")
        return _has_room(tensor, size * _held_of_blocks(plan), plan.team, teams, values)

    def _gradient(
        self,
        plan: Plan,
        dx: Tensor,
        inputs: tuple[DenseRows, DenseRows, DenseRows],
        weight: Optional,
        found: Gradient,
    ) -> None:
        grad, extra, x = (each.tensor for each in inputs)
        sizes = found.sizes
        width = self._width(4, plan, [*inputs, DenseRows(dx, sizes.columns)], [weight])
        variants.record(self.operator.name, x.dtype, plan.strategy, width)
        prefix, tensors = f"{self.kind}_backward", [grad, extra, x, x if weight is None else weight]
        if plan.strategy in HELD:
            words = prefix if found.sums is None else f"{prefix}_sums"
            words = f"{words}_{plan.kernel}"
            sums = found.kept if found.sums is None else found.sums
            _kernel(BACKWARD, words, width, x)(
                *tensors, dx, found.kept, sums, sizes, **replace(plan, rows=sizes.blocks).shape
            )
        elif plan.strategy == "looped":
            _kernel(BACKWARD, f"{prefix}_looped", width, x)(
                *tensors, dx, found.kept, sizes, **plan.shape
            )
        else:
            partials, shares = (_floats(x, sizes.rows * plan.chunks * 2) for _ in range(2))
            _kernel(FORWARD, f"{self.kind}_partial", width, x)(
                x, x, partials, dx, replace(sizes, other=sizes.x), **plan.shape
            )
            _kernel(BACKWARD, f"{prefix}_partial", width, x)(
                grad, x, tensors[-1], partials, shares, found.kept, sizes, **plan.shape
            )
            _kernel(BACKWARD, f"{prefix}_finish", width, x)(
                *tensors, shares, found.kept, dx, sizes, **plan.shape
            )

    def _blocks(self, tensor: Tensor, team: int = 0, *, by_turns: bool = False) -> tuple[int, int]:
        """Rows that are added up before their sum is written, and how many such sums there are.
        With `cores`, no more than teams that are in flight at once, core_threads threads a core,
        but one a core. Teams that take rows by turns have as many each, if few are left idle."""
        values, rows = choice_for(self.operator, tensor, "columns").values, self.sizes.rows
        most = values["max_blocks"]
        if team and "cores" in values:
            most = values["cores"] * _teams_of_core(values, team)
        block = max(values["rows_per_block"], -(-rows // most))
        if by_turns:
            return block, by_equal_turns(rows, min(most, -(-rows // values["rows_per_block"])))
        return block, -(-rows // block)

    def column_gradients(
        self, results: list[Tensor], grad: DenseRows, x: DenseRows, found: Gradient
    ) -> None:
        """Fills the gradients of a weight and a bias an element: sums of all blocks of rows."""
        if found.sums is not None:
            self._sum_blocks(results, found.sums, found.sizes.blocks, halves=found.halves)
            return
        block, count = self._blocks(x.tensor)
        sizes = replace(found.sizes, block=block, blocks=count)
        divides = grad.divides(sizes.rows, 4) and x.divides(sizes.rows, 4)
        width = 4 if sizes.columns % 4 == 0 and divides else 1
        variants.record(self.operator.name, x.tensor.dtype, "columns", width)
        sums = _floats(x.tensor, len(results) * sizes.blocks * sizes.columns)
        threads = (sizes.columns // width, sizes.blocks)
        group_size = choice_for(self.operator, x.tensor, "columns").group_size
        _kernel(BACKWARD, "column_sums", width, x.tensor)(
            grad.tensor, x.tensor, found.kept, sums, sizes,
            threads=threads, group_size=group_shape(threads, group_size),
        )  # fmt: skip
        self._sum_blocks(results, sums, sizes.blocks)

    def channel_gradients(
        self, results: list[Tensor], grad: DenseRows, x: DenseRows, found: Gradient
    ) -> None:
        """Fills the gradients of a weight and a bias a channel; both tensors are dense."""
        samples, channels = self.sizes.rows // self.sizes.groups, results[0].numel()
        short = choice_for(self.operator, x.tensor, "single_simdgroup", "short_rows")
        plan = Plan("single_simdgroup", short, samples * channels, self.sizes.spatial, 32)
        even = self.sizes.spatial % 4 == 0 and aligned(grad.tensor) and aligned(x.tensor)
        sums = _floats(x.tensor, 2 * samples * channels)
        _kernel(BACKWARD, "channel_sums", 4 if even else 1, x.tensor)(
            grad.tensor, x.tensor, found.kept, sums, found.sizes, **plan.shape
        )
        self._sum_blocks(results, sums, samples)

    def _sum_blocks(
        self, results: list[Tensor], sums: Tensor, blocks: int, *, halves: bool = False
    ) -> None:
        weight = results[0]
        choice = choice_for(self.operator, weight, "columns")
        threads = (weight.numel(), len(results))
        name, shape = "parameter_sums", group_shape(threads, choice.group_size)
        share = min(choice.values.get("sharing", 1), max(blocks // _BLOCKS_EACH, 1))
        if share > 1 and weight.numel() % 2 == 0:
            name, shape = f"shared_{name}", (SIMDGROUP, share)
            pairs = -(-weight.numel() // (2 * SIMDGROUP)) * SIMDGROUP  # whole threadgroups
            threads = (pairs, len(results) * share)
        BACKWARD.kernel(f"{name}_{SUFFIXES[weight.dtype]}", weight.device)(
            sums, weight, results[-1],
            {"columns": weight.numel(), "blocks": blocks, "halves": halves},
            threads=threads, group_size=shape,
        )  # fmt: skip


def by_equal_turns(rows: int, teams: int) -> int:
    """How many of some teams take rows by turns: all, or so few that none takes a row more."""
    turns = -(-rows // max(teams, 1))
    even = -(-rows // max(turns, 1))
    return even if even >= teams * _FEWEST_BUSY else teams


def _held_of_blocks(plan: Plan) -> int:
    """Elements of a thread in the kernels that take blocks of rows: more where rows are long."""
    values = plan.choice.values
    return values["long_held"] if plan.columns > values["long_columns"] else values["block_held"]


def _asking_threads(team: int) -> int:
    """The most threads of a kernel that asks ahead, which has room for so many."""
    return 256 if team <= 256 else 512


def _teams_of_core(values: Mapping[str, int], team: int) -> int:
    return max(values["core_threads"] // team, 1)


def _has_room(tensor: Tensor, asked: int, team: int, teams: int, values: Mapping[str, int]) -> bool:
    """Whether a core has threadgroup memory, beyond Metal's too, for so many teams whose threads
    ask for so many bytes each: the policy's core_memory, or less where the device has less."""
    most = values.get("core_memory", 0)
    if tensor.is_cuda:
        found = torch.cuda.get_device_properties(tensor.device)
        most = min(most, found.shared_memory_per_multiprocessor)
    return teams * (asked * _asking_threads(team) + _OTHER_BYTES) <= most


def _kernel(file: KernelFile, name: str, width: int, tensor: Tensor) -> Any:
    return file.kernel(f"{name}_{form(width)}_{SUFFIXES[tensor.dtype]}", tensor.device)


def _floats(tensor: Tensor, count: int) -> Tensor:
    return torch.empty(count, dtype=torch.float32, device=tensor.device)
