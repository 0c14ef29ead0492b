"""Attention kernels: which one, instantiated for what, launched how.

The kernels are templates. An instance for a type, a width and the options of a call is made when
it is first needed: all of them together would be hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.errors import LimitError
from anymetal.launch.guarded import GuardedKernel
from anymetal.nouns import SIMDGROUP
from anymetal.ops.attention.arguments import (
    Call,
    dense_sinks,
    dense_slopes,
    full_mask,
    rows_in_memory,
)
from anymetal.ops.declare import AnyOperator, variants
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.pieces import piece_of
from anymetal.policy.policy import Choice, choose

# Rows of a matrix: what a simdgroup of the tiled kernels has.
MATRIX = 8
WIDTHS = (32, 64, 96, 128, 192, 256)
ROWS = (1, 2, 4, 8)
ACCESS_WIDTHS = (1, 2, 4, 8)
# Up to this width the sums of two matrices of queries fit into registers.
WIDEST_OF_TWO = 128
# Simdgroups of a decoding threadgroup, which leave their sums in its memory.
MOST_DECODING = 16
# Heads of which a decoding simdgroup reads several at once, eight elements a lane.
TEAM_WIDTHS = (64, 128)
_EIGHT = 8

Tensor = torch.Tensor
Optional = torch.Tensor | None


@dataclass(frozen=True)
class Problem:
    """A call in the form of the kernels: four dimensions each, dense rows, strides."""

    operator: AnyOperator
    call: Call
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Optional
    slopes: Tensor
    sinks: Tensor

    @property
    def head_width(self) -> int:
        """The width that kernels compute with."""
        widest = max(self.call.width, self.call.value_width)
        return next(width for width in WIDTHS if width >= widest)

    @property
    def ragged(self) -> bool:
        return {self.call.width, self.call.value_width} != {self.head_width}

    @property
    def options(self) -> list[str]:
        """Constants of shared/attention.h, of which a template argument is made."""
        call = self.call
        given = {
            "has_softcap": call.softcap,
            "has_slopes": call.alibi_slopes,
            "has_mask": call.attn_mask,
        }
        return [option for option, value in given.items() if value is not None]

    @property
    def type(self) -> str:
        return SUFFIXES[self.query.dtype]

    @property
    def mask_type(self) -> str:
        return self.type if self.mask is None else SUFFIXES.get(self.mask.dtype, "bool")

    @property
    def given_mask(self) -> Tensor:
        """Some tensor where there is no mask: it is not read."""
        return self.query if self.mask is None else self.mask

    def numbers(self, part: int = 0, parts: int = 0, **written: Tensor) -> dict[str, Any]:
        """`Numbers` of shared/attention.h; `written` are tensors besides those that are read."""
        call = self.call
        tensors = {"query": self.query, "key": self.key, "value": self.value, **written}
        mask = (0, 0, 0, 0) if self.mask is None else self.mask.stride()
        return {
            **dict.fromkeys(("result", "gradient", "value_result"), _NO_STRIDES),
            **{name: _strides(tensor) for name, tensor in tensors.items()},
            "mask": dict(zip(("sample", "head", "query", "key"), mask, strict=True)),
            "queries": call.queries,
            "keys": call.keys,
            "width": call.width,
            "value_width": call.value_width,
            "heads": call.heads,
            "shared_by": call.heads // call.key_heads,
            "part": part,
            "parts": parts,
            "scale": call.factor,
            "softcap": call.softcap or 1.0,
            "offset": call.offset,
            "before": call.before,
            "after": call.after,
            "has_sinks": call.sinks is not None,
        }

    def plain_instance(self, template: str) -> GuardedKernel:
        """A kernel that depends on the type of the elements alone."""
        kernels = self.operator.kernels
        return kernels.instance(template, self.type, device=self.query.device)

    def instance(
        self, template: str, count: int, *more: Any, options: Sequence[str] = ()
    ) -> GuardedKernel:
        """A kernel for `count` elements an access and the options of this call."""
        either = " | ".join([*self.options, *options]) or "0"
        return self.operator.kernels.instance(
            template, self.type, self.mask_type, self.head_width, self.ragged, count, either, *more,
            device=self.query.device,
        )  # fmt: skip

    def choice(self, shape_class: str, strategy: str) -> Choice:
        dtype, device = variants.DTYPE_NAMES[self.query.dtype], self.query.device.type
        return choose(self.operator.name, dtype, shape_class, device, strategy)

    def access_width(self, most: int, *tensors: Tensor, row_at_once: bool = False) -> int:
        """How many elements a lane may read at once: all rows must start at a multiple of them.

        A simdgroup reads several short rows at a time, unless each must be a row of its own.
        """
        most = min(most, 16 // self.query.element_size())
        count = max(size for size in ACCESS_WIDTHS if size <= max(most, 1))
        while count > 1 and not self._divides(count, tensors, row_at_once):
            count //= 2
        return count

    def _divides(self, count: int, tensors: tuple[Tensor, ...], row_at_once: bool) -> bool:
        step, width = SIMDGROUP * count, self.head_width
        if width % step and (row_at_once or step % width):
            return False
        sizes = [self.call.width, self.call.value_width]
        for tensor in tensors:
            sizes += [_start(tensor), *_walked_strides(tensor)]
        return not any(size % count for size in sizes)

    def record(self, strategy: str, count: int) -> None:
        variants.record(self.operator.name, self.query.dtype, strategy, count)


def problem_of(operator: AnyOperator, call: Call) -> Problem:
    blank = torch.empty(1, device=call.query.device)
    slopes, sinks = dense_slopes(call), dense_sinks(call)
    return Problem(
        operator,
        call,
        rows_in_memory(call.query),
        rows_in_memory(call.key),
        rows_in_memory(call.value),
        full_mask(call),
        blank if slopes is None else slopes,
        blank if sinks is None else sinks,
    )


_NO_STRIDES = {"sample": 0, "head": 0, "row": 0}


def _strides(tensor: Tensor) -> dict[str, int]:
    sample, head, row, _ = (tensor if tensor.dim() == 4 else rows_in_memory(tensor)).stride()
    return {"sample": sample, "head": head, "row": row}


def _start(tensor: Tensor) -> int:
    """Where a tensor begins, in elements; what data_ptr() gives on a GPU is no address."""
    size = tensor.element_size()
    return int(tensor.storage_offset()) if tensor.is_mps else tensor.data_ptr() // size


def _walked_strides(tensor: Tensor) -> list[int]:
    return [s for s, n in zip(tensor.stride()[:3], tensor.shape[:3], strict=True) if n > 1]


# --- forward --------------------------------------------------------------------------------------


def attend(operator: AnyOperator, call: Call, result: Tensor, logarithms: Tensor) -> None:
    """The result, and the logarithm of the sum of exponents of each query."""
    if result.numel() == 0 and logarithms.numel() == 0:
        return
    if call.keys == 0 and call.sinks is None:
        result.zero_()
        logarithms.fill_(-torch.inf)
        return
    problem = problem_of(operator, call)
    decode = problem.choice("any", "decode")
    if call.queries <= decode.values["max_queries"]:
        _decode(problem, decode, result, logarithms)
    else:
        _tiles(problem, problem.choice("any", "tiles"), result, logarithms)


def _tiles(problem: Problem, choice: Choice, result: Tensor, logarithms: Tensor) -> None:
    call = problem.call
    count = problem.access_width(choice.values["width"], problem.key, problem.value)
    problem.record("tiles", count)
    matrices = choice.values["matrices"] if problem.head_width <= WIDEST_OF_TWO else 1
    team = choice.group_size // SIMDGROUP if choice.values["ahead"] else 0
    kernel = problem.instance("attention_tiles", count, matrices, team)
    groups = _groups(call.queries, choice, matrices)
    kernel(
        *_forward_arguments(problem, result, logarithms),
        threads=(groups * choice.group_size, call.heads, call.samples),
        group_size=(choice.group_size, 1, 1),
    )


def _decode(problem: Problem, choice: Choice, result: Tensor, logarithms: Tensor) -> None:
    """A threadgroup a few rows, or several where they would be too few for the device."""
    call = problem.call
    rows = call.queries * (call.heads // call.key_heads)
    most = min(choice.values["rows"], rows, ROWS[-1])
    at_once = next(size for size in ROWS if size >= most)
    groups = -(-rows // at_once) * call.key_heads
    split = problem.choice("few_long_rows", "two_phase")
    partitioned = (
        groups * call.samples <= split.values["max_groups"]
        and call.keys >= split.values["min_keys"]
    )
    choice = split if partitioned else choice
    _check_decoding(problem, choice)
    part = piece_of(split, "keys_per_part", call.keys, groups * call.samples)
    part = -(-part // SIMDGROUP) * SIMDGROUP
    parts = -(-call.keys // part) if partitioned else 1
    read = (problem.query, problem.key, problem.value)
    count = problem.access_width(choice.values["width"], *read, row_at_once=True)
    if (
        choice.values["width"] == _EIGHT
        and problem.head_width in TEAM_WIDTHS
        and not problem.ragged
    ):
        count = max(count, problem.access_width(_EIGHT, *read))
    problem.record("two_phase" if partitioned else "decode", count)
    kernel = problem.instance("attention_decode", count, at_once, partitioned, MOST_DECODING)
    places = logarithms.numel() * parts if partitioned else 1
    sums = logarithms.new_empty(places, call.value_width if partitioned else 1)
    states = logarithms.new_empty(places, 2)
    kernel(
        *_forward_arguments(problem, result, logarithms, part), sums, states,
        threads=(parts * choice.group_size, groups, call.samples),
        group_size=(choice.group_size, 1, 1),
    )  # fmt: skip
    if partitioned:
        _reduce(problem, choice, result, logarithms, sums, states, parts)


def _check_decoding(problem: Problem, choice: Choice) -> None:
    if choice.group_size > MOST_DECODING * SIMDGROUP:
        raise LimitError(
            f"{problem.operator.name}: group_size {choice.group_size} ({choice.origin}) is more"
            f" than decoding has room for, {MOST_DECODING * SIMDGROUP} threads. Choose another in a"
            " policy file"
        )


def _reduce(
    problem: Problem,
    choice: Choice,
    result: Tensor,
    logarithms: Tensor,
    sums: Tensor,
    states: Tensor,
    parts: int,
) -> None:
    kernel = problem.plain_instance("attention_reduce")
    size = min(choice.group_size, -(-problem.call.value_width // SIMDGROUP) * SIMDGROUP)
    kernel(
        sums, states, result, logarithms, problem.sinks,
        problem.numbers(parts=parts, result=result),
        threads=logarithms.numel() * size,
        group_size=size,
    )  # fmt: skip


def _forward_arguments(
    problem: Problem, result: Tensor, logarithms: Tensor, part: int = 0
) -> tuple[Any, ...]:
    return (
        problem.query, problem.key, problem.value, result, logarithms, problem.given_mask,
        problem.slopes, problem.sinks, problem.numbers(part, result=result),
    )  # fmt: skip


def _groups(rows: int, choice: Choice, matrices: int = 1) -> int:
    return -(-rows // (choice.group_size // SIMDGROUP * MATRIX * matrices))


# --- backward -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """Of all arguments; tensors without elements for those that are not there."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor
    slopes: Tensor
    sinks: Tensor


def differentiate(
    operator: AnyOperator,
    call: Call,
    gradient: Tensor,
    result: Tensor,
    logarithms: Tensor,
    into: Gradients,
) -> None:
    """The gradients of a call's arguments, from that of its result."""
    problem = problem_of(operator, call)
    gradient, logarithms = rows_in_memory(gradient), logarithms.contiguous()
    blank = logarithms.new_empty(0)
    slopes = torch.empty_like(logarithms) if call.alibi_slopes is not None else blank
    scores = logarithms.new_empty(call.score_shape) if into.mask.numel() else blank
    deltas = torch.empty_like(logarithms)
    if deltas.numel():
        _deltas(problem, gradient, rows_in_memory(result), deltas)
    choice = problem.choice("any", "tiles")
    read = (problem.query, problem.key, problem.value, gradient)
    count = problem.access_width(choice.values["width"], *read)
    backward = Backward(problem, choice, gradient, logarithms, deltas, count)
    backward.to_query(into.query, slopes, scores)
    backward.to_key_and_value(into.key, into.value)
    _sum_up(call, into, slopes, scores, deltas, logarithms)


def _deltas(problem: Problem, gradient: Tensor, result: Tensor, deltas: Tensor) -> None:
    choice = problem.choice("any", "single_simdgroup")
    problem.record("single_simdgroup", 1)
    threads = deltas.numel() * SIMDGROUP
    problem.plain_instance("attention_delta")(
        gradient, result, deltas, problem.numbers(gradient=gradient, result=result),
        threads=threads, group_size=min(choice.group_size, threads),
    )  # fmt: skip


@dataclass(frozen=True)
class Backward:
    """The two sums of the gradient: over keys, and over queries."""

    problem: Problem
    choice: Choice
    gradient: Tensor
    logarithms: Tensor
    deltas: Tensor
    count: int

    def to_query(self, result: Tensor, slopes: Tensor, scores: Tensor) -> None:
        call = self.problem.call
        if result.numel() == 0 and slopes.numel() == 0 and scores.numel() == 0:
            return
        if call.keys == 0 or self.gradient.numel() == 0:
            for tensor in (result, slopes, scores):
                tensor.zero_()
            return
        options = ["wants_mask_gradient"] if scores.numel() else []
        self.problem.record("tiles", self.count)
        self.problem.instance("attention_query_gradient", self.count, options=options)(
            *self._read, result, _some(slopes, self.deltas), _some(scores, self.deltas),
            self.problem.numbers(gradient=self.gradient, result=result),
            **self._shape(call.queries, call.heads),
        )  # fmt: skip

    def to_key_and_value(self, key: Tensor, value: Tensor) -> None:
        call = self.problem.call
        if key.numel() == 0 and value.numel() == 0:
            return
        if self.gradient.numel() == 0:
            key.zero_()
            value.zero_()
            return
        self.problem.record("tiles", self.count)
        self.problem.instance("attention_key_gradient", self.count)(
            *self._read, key, value,
            self.problem.numbers(gradient=self.gradient, result=key, value_result=value),
            **self._shape(call.keys, call.key_heads),
        )  # fmt: skip

    @property
    def _read(self) -> tuple[Tensor, ...]:
        problem = self.problem
        return (
            problem.query, problem.key, problem.value, self.gradient, self.logarithms, self.deltas,
            problem.given_mask, problem.slopes,
        )  # fmt: skip

    def _shape(self, rows: int, heads: int) -> dict[str, Any]:
        size = self.choice.group_size
        threads = (_groups(rows, self.choice) * size, heads, self.problem.call.samples)
        return {"threads": threads, "group_size": (size, 1, 1)}


def _some(tensor: Tensor, otherwise: Tensor) -> Tensor:
    """A buffer in any case; it is not touched where the tensor has no elements."""
    return tensor if tensor.numel() else otherwise


def _sum_up(
    call: Call, into: Gradients, slopes: Tensor, scores: Tensor, deltas: Tensor, logarithms: Tensor
) -> None:
    """Gradients of mask, slopes and sinks: sums of what the kernels wrote."""
    if into.mask.numel():
        into.mask.copy_(scores.sum_to_size(into.mask.shape))
    if call.alibi_slopes is not None:
        into.slopes.copy_(slopes.sum(-1).sum_to_size(into.slopes.shape))
    if call.sinks is not None:
        shares = torch.exp(call.sinks.float()[:, None] - logarithms)
        into.sinks.copy_(-(shares * deltas).sum(-1).sum_to_size(into.sinks.shape))
