"""Calls of an operator and its gradient, and the library's rule for how wrong they may be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from anymetal.evidence.judge import judge as judged


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, which may be one or several."""
    return [value] if isinstance(value, torch.Tensor) else [t for t in value if t is not None]


def doubled(value: Any) -> Any:
    """Floating point tensors in float64, anything else as it is."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().cpu().double() if is_float else value


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def judge(result: Any, exact: Any, own: Any, where: str) -> None:
    """Fails unless `result` is about as near to `exact` as torch's `own` result."""
    mine, torchs = tensors_of(result), tensors_of(own)
    assert [tensor.dtype for tensor in mine] == [tensor.dtype for tensor in torchs], where
    dtype = next((t.dtype for t in mine if t.is_floating_point()), torch.float32)
    judgement = judged(mine, torchs, tensors_of(exact), dtype)
    assert judgement.passed, f"{where}: {judgement}"


def called(function: Callable[..., Any], args: list[Any], keywords: dict[str, Any]) -> Any:
    """A call, and for the same gradient in every dtype the gradients of its tensors behind it."""
    leaves = [arg.detach().clone().requires_grad_() if differentiable(arg) else arg for arg in args]
    keywords = {
        name: value.detach().clone().requires_grad_() if differentiable(value) else value
        for name, value in keywords.items()
    }
    outputs = [out for out in tensors_of(function(*leaves, **keywords)) if out.requires_grad]
    generator = torch.Generator().manual_seed(7)
    gradients = [
        torch.randn(out.shape, generator=generator).bfloat16().to(out.dtype).to(out.device)
        for out in outputs
    ]
    wanted = [x for x in itertools.chain(leaves, keywords.values()) if differentiable(x)]
    return torch.autograd.grad(outputs, wanted, gradients, allow_unused=True)
