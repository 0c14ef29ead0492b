"""Calls of an operator and its gradient, and the library's rule for how wrong they may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anymetal.evidence.judge import judge as judged
from anymetal.ops.declare import AnyOperator


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, which may be one or several."""
    return [value] if isinstance(value, torch.Tensor) else [t for t in value if t is not None]


def doubled(value: Any) -> Any:
    """Floating point tensors in float64, anything else as it is."""
    return converted(value, lambda tensor: tensor.detach().cpu().double())


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def converted(value: Any, convert: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A value with its floating point tensors converted, those of a list too."""
    if isinstance(value, list):
        return [converted(item, convert) for item in value]
    return convert(value) if differentiable(value) else value


def judge(result: Any, exact: Any, own: Any, where: str) -> None:
    """Fails unless `result` is about as near to `exact` as torch's `own` result."""
    mine, torchs = tensors_of(result), tensors_of(own)
    assert [tensor.dtype for tensor in mine] == [tensor.dtype for tensor in torchs], where
    dtype = next((t.dtype for t in mine if t.is_floating_point()), torch.float32)
    judgement = judged(mine, torchs, tensors_of(exact), dtype)
    assert judgement.passed, f"{where}: {judgement}"


def called(
    function: Callable[..., Any],
    args: list[Any],
    keywords: dict[str, Any],
    operator: AnyOperator | None = None,
) -> Any:
    """A call, and for the same gradient in every dtype the gradients of its tensors behind it.

    `operator` is what the call is one of: what it mutates are results.
    """
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1].clone() if operator is not None and operator.mutates else leaves[-1]

    args = converted(args, leaf)
    keywords = {name: converted(value, leaf) for name, value in keywords.items()}
    if operator is None:
        results = function(*args, **keywords)
    else:
        results = operator.outcome(function, args, keywords)
    outputs = [out for out in tensors_of(results) if out.requires_grad]
    generator = torch.Generator().manual_seed(7)
    gradients = [
        torch.randn(out.shape, generator=generator).bfloat16().to(out.dtype).to(out.device)
        for out in outputs
    ]
    return torch.autograd.grad(outputs, leaves, gradients, materialize_grads=True)
