"""One operator, dtype and case go in; its results and gradients come out, three times.

The operator, torch's own in the same dtype, and the reference in float64 get the same inputs. The
numbers of a case depend on its name alone, so that every run and every engine sees the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.evidence.judge import Judgement, Tolerance, flat, judge, judge_ratios, worst
from anymetal.ops.declare import AnyOperator, Case
from anymetal.ops.declare.variants import DTYPE_NAMES

Function = Callable[..., Any]
Convert = Callable[[torch.Tensor], torch.Tensor]
Gradients = Sequence[torch.Tensor | None]


@dataclass(frozen=True)
class Exercise:
    """A call of an operator that can be made again and again with the same numbers."""

    operator: AnyOperator
    dtype: torch.dtype
    case: Case
    device: torch.device

    @property
    def dtype_name(self) -> str:
        return DTYPE_NAMES.get(self.dtype, str(self.dtype).removeprefix("torch."))

    @property
    def label(self) -> str:
        return f"{self.operator.name}/{self.dtype_name}, {self.case.name}"

    @property
    def torch_function(self) -> Function:
        """torch's own; where there is none, the reference in the dtype of the inputs."""
        return self.operator.baseline or self.operator.reference

    def inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """Fresh arguments, on the exercise's device."""
        seed = zlib.crc32(f"{self.operator.name} {self.case.name}".encode())
        generator = torch.Generator().manual_seed(seed)
        return self.case.make(self.dtype, self.device, generator)

    def judge_results(self) -> Judgement:
        """The operator's results beside torch's own, against float64."""
        with torch.no_grad():
            ours = self.call(self.operator, *self.inputs())
            theirs = self._of_torch(self.call)
            exact = self.call(self.operator.reference, *self.exact_inputs())
        return self.judged_results(ours, theirs, exact)

    def _of_torch(self, act: Callable[[Function, list[Any], dict[str, Any]], Any]) -> Any:
        """What torch's own gives; on the CPU where it has no kernel for the device."""
        try:
            return act(self.torch_function, *self.inputs())
        except RuntimeError:
            if self.device.type == "cpu":
                raise
            on_cpu = replace(self, device=torch.device("cpu"))
            return act(self.torch_function, *on_cpu.inputs())

    def judged_results(self, ours: Any, theirs: Any, exact: Any) -> Judgement:
        """Results by their errors; those of a factorisation by its ratios, and what is whole."""
        args, kwargs = self.inputs()
        if self.operator.ratios is None or args[0].numel() == 0:
            return judge(ours, theirs, exact, self.dtype)
        args = converted(args, torch.Tensor.cpu)
        found = [one.cpu() for one in flat(ours)]
        judgement = judge_ratios(
            self.operator.ratios(found, *args, **kwargs),
            self.operator.ratios([one.cpu() for one in flat(theirs)], *args, **kwargs),
        )
        whole = [[t for t in flat(tree) if not t.is_floating_point()] for tree in (ours, exact)]
        return worst([judgement, judge(whole[0], whole[1], whole[1], self.dtype)])

    def judge_gradients(self) -> Judgement:
        """The same for the gradients of every floating point argument."""
        ours = self.gradients(self.operator, *self.inputs())
        theirs = self._of_torch(self.gradients)
        exact = self.gradients(self.operator.reference, *self.exact_inputs())
        return self.judged_gradients(ours, theirs, exact)

    def judged_gradients(self, ours: Gradients, theirs: Gradients, exact: Gradients) -> Judgement:
        """Gradients by their errors; None counts where float64 has one."""
        missing = [i for i, (a, b) in enumerate(zip(ours, exact, strict=True)) if _lacks(a, b)]
        if missing:
            fault = f"no gradient for tensor argument {missing[0]}, which float64 has one for"
            return Judgement(float("inf"), 0.0, 0.0, fault=fault)
        kept = [i for i, g in enumerate(exact) if g is not None and ours[i] is not None]
        ours, theirs, exact = ([each[i] for i in kept] for each in (ours, theirs, exact))
        return judge(ours, theirs, exact, self.dtype, Tolerance(self.operator.gradient_errors))

    def gradients(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Gradients:
        """Gradients of the floating point arguments, for upstream gradients that never change."""
        args, kwargs, leaves = differentiable(args, kwargs)
        results = [r for r in flat(self.call(function, args, kwargs)) if r.requires_grad]
        if not results:
            return [None for _ in leaves]
        upstream = [upstream_like(result, self.dtype) for result in results]
        return list(torch.autograd.grad(results, leaves, upstream, allow_unused=True))

    def exact_inputs(self) -> tuple[list[Any], dict[str, Any]]:
        """The same numbers in float64, on the CPU: no GPU of Apple's has that type."""
        args, kwargs = self.inputs()
        return converted(args, exact_copy), {
            name: _convert(v, exact_copy) for name, v in kwargs.items()
        }

    def call(self, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """What a call gives, or what it wrote."""
        return self.operator.outcome(function, args, kwargs)


def differentiable(
    args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], list[torch.Tensor]]:
    """Arguments whose floating point tensors take gradients, and those tensors.

    The operator gets copies of them: one that mutates its arguments must not change a leaf.
    """
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1].clone()

    return converted(args, leaf), {n: _convert(v, leaf) for n, v in kwargs.items()}, leaves


def upstream_like(result: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A gradient that flows into a result: the same numbers in every dtype."""
    generator = torch.Generator().manual_seed(zlib.crc32(str(tuple(result.shape)).encode()))
    values = torch.randn(result.shape, generator=generator).to(dtype)
    return values.to(result.device, result.dtype)


def spread(cases: Sequence[Case], count: int) -> list[Case]:
    """A few of the cases, the last among them; all where `count` is 0.

    The first are the smallest, without elements or with one: they are left out first.
    """
    if not count or len(cases) <= count:
        return list(cases)
    last = len(cases) - 1
    return [cases[(i + 1) * last // count] for i in range(count)]


def converted(args: Sequence[Any], convert: Convert) -> list[Any]:
    return [_convert(argument, convert) for argument in args]


def _convert(value: Any, convert: Convert) -> Any:
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, list | tuple):
        return type(value)(_convert(item, convert) for item in value)
    return value


def exact_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers on the CPU, floating point ones in float64."""
    tensor = tensor.cpu()
    return tensor.double() if tensor.is_floating_point() else tensor


def _lacks(ours: torch.Tensor | None, exact: torch.Tensor | None) -> bool:
    return ours is None and exact is not None and bool((exact != 0).any())
