"""softmax and log_softmax over any dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from anymetal.ops.declare import variants
from anymetal.ops.declare.cases import random_case
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.declare import FLOATS, Case, Cost, Operator
from anymetal.ops.declare.kernel_file import SUFFIXES
from anymetal.ops.declare.layout import aligned, memory_order, row_stride
from anymetal.policy.policy import Choice, choose

SOURCE = "softmax/softmax.metal"
SIMDGROUP = 32
# Elements a thread takes in one step.
STEP = 4
Function = Callable[..., Any]
ScalarType = torch.dtype

_LAST = ((0, 5), (3, 1), (2, 31), (3, 32), (2, 3, 33), (2, 251), (3, 2000), (2, 4099), (1, 20000))
_OTHER = (((33, 5), 0), ((2, 31, 3), 1), ((3, 0, 2), 1), ((1000, 2), 0))


@dataclass(frozen=True)
class Rows:
    """Rows along a dimension: `length` elements `inner` apart, `outer` times, in three tensors."""

    tensors: tuple[torch.Tensor, ...]
    outer: int
    length: int
    inner: int
    strides: tuple[int, ...]

    def width(self) -> int:
        """4 where every row of every tensor divides into aligned vectors, otherwise 1."""
        even = self.outer == 1 or all(stride % 4 == 0 for stride in self.strides)
        whole = self.length % 4 == 0 and even
        return 4 if whole and all(aligned(tensor) for tensor in self.tensors) else 1


def rows_along(dim: int, *tensors: torch.Tensor) -> Rows:
    """Tensors of one shape as rows along `dim`, in the memory order of the last one, a dense one.

    The others are copied where their rows cannot be walked in equal steps.
    """
    order = memory_order(tensors[-1])
    at = order.index(dim) if order else 0
    ordered = [t.permute(order) if order else t.reshape(1) for t in tensors]
    shape = ordered[-1].shape
    inner = math.prod(shape[at + 1 :])
    split = at if inner == 1 else 0
    fitting = [t if row_stride(t, split) is not None else t.contiguous() for t in ordered]
    return Rows(
        tuple(fitting),
        math.prod(shape[:at]),
        shape[at],
        inner,
        tuple(row_stride(t, split) or 0 for t in fitting),
    )


# --- which kernel ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """One of the operators, about to run over rows."""

    operator: Operator
    rows: Rows

    def run(self) -> None:
        if self.rows.outer == 0 or self.rows.length == 0 or self.rows.inner == 0:
            return
        if self.rows.inner > 1:
            self._columns()
            return
        length = self.rows.length
        short = self._choice("short_rows", "single_simdgroup")
        if length <= SIMDGROUP * STEP * short.values["steps"]:
            self._single_simdgroup(short)
            return
        medium = self._choice("medium_rows", "single_group")
        if length <= medium.group_size * STEP * medium.values["steps"]:
            self._single_group(medium)
            return
        few = self._choice("few_long_rows", "two_phase")
        if self.rows.outer <= few.values["max_rows"] and length >= few.values["min_columns"]:
            self._two_phase(few)
            return
        self._looped(self._choice("long_rows", "looped"))

    def _choice(self, shape_class: str, strategy: str) -> Choice:
        first = self.rows.tensors[0]
        return choose(
            operator=self.operator.name,
            dtype=variants.DTYPE_NAMES[first.dtype],
            shape_class=shape_class,
            device=first.device.type,
            strategy=strategy,
        )

    def _kernel(self, strategy: str, written: bool = True) -> Callable[..., None]:
        first, result = self.rows.tensors[0], self.rows.tensors[-1]
        words = [self.operator.name, strategy, SUFFIXES[first.dtype]]
        words += [SUFFIXES[result.dtype]] if written else []
        return self.operator.kernels.kernel("_".join(words), first.device)

    def _record(self, strategy: str, width: int) -> str:
        """Notes the variant; returns the form that the kernel's name ends in."""
        variants.record(self.operator.name, self.rows.tensors[0].dtype, strategy, width)
        return "scalar" if width == 1 else "vec4"

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return (*self.rows.tensors, self.rows.length, list(self.rows.strides))

    def _single_simdgroup(self, choice: Choice) -> None:
        form = self._record("single_simdgroup", self.rows.width())
        kernel = self._kernel(f"single_simdgroup_{choice.values['steps']}_{form}")
        threads = self.rows.outer * SIMDGROUP
        kernel(*self._arguments, threads=threads, group_size=min(threads, choice.group_size))

    def _single_group(self, choice: Choice) -> None:
        form = self._record("single_group", self.rows.width())
        kernel = self._kernel(f"single_group_{choice.values['steps']}_{form}")
        needed = -(-self.rows.length // (STEP * choice.values["steps"]))
        size = min(choice.group_size, -(-needed // SIMDGROUP) * SIMDGROUP)
        kernel(*self._arguments, threads=self.rows.outer * size, group_size=size)

    def _looped(self, choice: Choice) -> None:
        form = self._record("looped", self.rows.width())
        threads = self.rows.outer * choice.group_size
        kernel = self._kernel(f"looped_{form}")
        kernel(*self._arguments, threads=threads, group_size=choice.group_size)

    def _two_phase(self, choice: Choice) -> None:
        form = self._record("two_phase", self.rows.width())
        part = -(-choice.values["columns_per_part"] // STEP) * STEP  # parts start at whole vectors
        parts = -(-self.rows.length // part)
        first, second, _ = self.rows.tensors
        states = torch.empty(self.rows.outer, parts, 2, device=first.device)
        shape = {
            "threads": (parts * choice.group_size, self.rows.outer),
            "group_size": (choice.group_size, 1),
        }
        reduce = self._kernel(f"two_phase_reduce_{form}", written=False)
        reduce(first, second, states, *self._arguments[3:], part, **shape)
        self._kernel(f"two_phase_write_{form}")(*self._arguments, part, states, **shape)

    def _columns(self) -> None:
        choice = self._choice("strided", "columns")
        self._record("columns", 1)
        rows = self.rows
        wide = min(choice.values["columns_per_group"], 1 << (rows.inner - 1).bit_length())
        high = min(choice.group_size // wide, 1 << (rows.length - 1).bit_length())
        self._kernel("columns")(
            *rows.tensors,
            rows.length,
            rows.inner,
            threads=(-(-rows.inner // wide) * wide, high, rows.outer),
            group_size=(wide, high, 1),
        )


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Softmax:
    """softmax or log_softmax, declared as an operator and its gradient."""

    name: str
    reference: Function
    reference_backward: Function

    def declare(self) -> Operator:
        forward = Operator(
            f"{self.name}(Tensor input, int dim, ScalarType? dtype=None) -> Tensor",
            SOURCE,
            self.reference,
            cases=_cases(1),
            cost=lambda input, **_: Cost(read=input.nbytes, write=input.nbytes),
        )
        backward = Operator(
            f"{self.name}_backward(Tensor grad, Tensor output, int dim, ScalarType input_dtype)"
            " -> Tensor",
            SOURCE,
            self.reference_backward,
            cases=[_backward_case(*shape_and_dim) for shape_and_dim in _OTHER],
            cost=lambda grad, output, **_: Cost(read=2 * grad.nbytes, write=grad.nbytes),
            differentiable=False,
        )
        self._implement(forward)
        self._implement_backward(backward)
        self._differentiate(forward, backward)
        return forward

    def _implement(self, operator: Operator) -> None:
        @operator.forward
        def _(input: torch.Tensor, dim: int, dtype: ScalarType | None = None) -> torch.Tensor:
            dim, wanted = _checked(self.name, input, dim, dtype)
            if wanted not in (input.dtype, torch.float32):
                input = input.to(wanted)  # rounded before the operation, as torch does
            output = torch.empty_like(input, dtype=wanted)
            Launch(operator, rows_along(dim, input, input, output)).run()
            return output

        @operator.fake
        def _(input: torch.Tensor, dim: int, dtype: ScalarType | None = None) -> torch.Tensor:
            _, wanted = _checked(self.name, input, dim, dtype)
            return torch.empty_like(input, dtype=wanted)

    def _implement_backward(self, operator: Operator) -> None:
        @operator.forward
        def _(
            grad: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: ScalarType
        ) -> torch.Tensor:
            dim, _ = _checked(operator.name, output, dim, input_dtype, "output")
            check_like(operator.name, "grad", grad, "output", output)
            check_shape(operator.name, "grad", grad, output.shape, "that of 'output'")
            direct = output.dtype in (input_dtype, torch.float32)
            kind = input_dtype if direct else output.dtype
            result = torch.empty_like(output, dtype=kind)
            Launch(operator, rows_along(dim, grad, output, result)).run()
            return result.to(input_dtype)

        @operator.fake
        def _(
            grad: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: ScalarType
        ) -> torch.Tensor:
            return torch.empty_like(output, dtype=input_dtype)

    def _differentiate(self, forward: Operator, backward: Operator) -> None:
        def keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
            ctx.save_for_backward(output)
            ctx.dim = inputs[1]
            ctx.input_dtype = inputs[0].dtype

        def gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
            return backward(grad, *ctx.saved_tensors, ctx.dim, ctx.input_dtype), None, None

        forward.gradient(keep, gradient)
        backward.without_gradient(f"{self.name} can be differentiated once")


def _checked(
    name: str,
    tensor: torch.Tensor,
    dim: int,
    dtype: ScalarType | None,
    argument: str = "input",
) -> tuple[int, ScalarType]:
    """The dimension counted from the first, and the dtype of the result."""
    check_dtype(name, argument, tensor, FLOATS)
    check_size(name, argument, tensor)
    dimensions = max(tensor.dim(), 1)
    if not -dimensions <= dim < dimensions:
        raise IndexError(
            f"{name}: argument 'dim' expects {-dimensions} to {dimensions - 1} for shape"
            f" {list(tensor.shape)}, got {dim}"
        )
    if dtype is not None and dtype not in FLOATS:
        expected = ", ".join(str(known) for known in FLOATS)
        raise TypeError(f"{name}: argument 'dtype' expects {expected}, got {dtype}")
    return dim % dimensions, dtype or tensor.dtype


def _cases(tensors: int) -> list[Case]:
    last = [random_case(*[shape] * tensors, scale=3.0, dim=-1) for shape in _LAST]
    return last + [random_case(*[shape] * tensors, scale=3.0, dim=dim) for shape, dim in _OTHER]


def _backward_case(shape: tuple[int, ...], dim: int) -> Case:
    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        grad, x = (torch.randn(shape, generator=generator) for _ in range(2))
        output = torch.softmax(x, dim)
        keywords = {"dim": dim, "input_dtype": dtype}
        return [t.to(dtype).to(device) for t in (grad, output)], keywords

    return Case(f"{'x'.join(map(str, shape))} dim={dim}", make)


def _softmax_backward(
    grad: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: ScalarType
) -> torch.Tensor:
    del input_dtype
    return output * (grad - (grad * output).sum(dim, keepdim=True))


def _log_softmax_backward(
    grad: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: ScalarType
) -> torch.Tensor:
    del input_dtype
    return grad - output.exp() * grad.sum(dim, keepdim=True)


_softmax = Softmax("softmax", torch.softmax, _softmax_backward).declare()
_log_softmax = Softmax("log_softmax", torch.log_softmax, _log_softmax_backward).declare()


def softmax(input: torch.Tensor, dim: int, dtype: ScalarType | None = None) -> torch.Tensor:
    """exp(x) over its sum along `dim`, as torch.softmax; `dtype` is that of the result."""
    result: torch.Tensor = _softmax(input, dim, dtype)
    return result


def log_softmax(input: torch.Tensor, dim: int, dtype: ScalarType | None = None) -> torch.Tensor:
    """The logarithm of softmax along `dim`, as torch.log_softmax; `dtype` is the result's."""
    result: torch.Tensor = _log_softmax(input, dim, dtype)
    return result
