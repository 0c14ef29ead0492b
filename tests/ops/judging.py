"""How far a result may be from float64: twice as far as torch's own, above a floor a dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

# Relative to the largest value: a few roundings of float32, one of the narrow types.
FLOORS = {torch.float32: 1e-6, torch.float16: 1.0e-3, torch.bfloat16: 8.0e-3}


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a result, which may be one or several."""
    return [value] if isinstance(value, torch.Tensor) else [t for t in value if t is not None]


def doubled(value: Any) -> Any:
    """Floating point tensors in float64, anything else as it is."""
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.detach().cpu().double() if is_float else value


def differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error; infinite where NaNs or infinities are not those of the exact result."""
    expected = exact.to(result.dtype)
    special = ~torch.isfinite(expected)
    if not torch.equal(result[special].nan_to_num(123.0), expected[special].nan_to_num(123.0)):
        return float("inf")
    if torch.isfinite(result).logical_not().logical_and(~special).any():
        return float("inf")
    if special.all():
        return 0.0
    return float((result.double() - exact)[~special].abs().max())


def judge(result: Any, exact: Any, own: Any, where: str) -> None:
    """Fails unless `result` is about as near to `exact` as torch's `own` result."""
    triples = zip(tensors_of(result), tensors_of(exact), tensors_of(own), strict=True)
    for index, (result_tensor, right, own_tensor) in enumerate(triples):
        mine, torchs = result_tensor.detach().cpu(), own_tensor.detach().cpu()
        assert mine.shape == right.shape, f"{where}, result {index}: shape {tuple(mine.shape)}"
        assert mine.dtype == torchs.dtype, f"{where}, result {index}: dtype {mine.dtype}"
        if mine.numel() == 0:
            continue
        scale = float(right[torch.isfinite(right)].abs().amax()) if right.isfinite().any() else 0
        limit = max(2 * error(torchs, right), FLOORS[mine.dtype] * scale)
        found = error(mine, right)
        assert found <= limit, f"{where}, result {index}: error {found:.3g}, limit {limit:.3g}"


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
        torch.randn(out.shape, generator=generator).to(torch.bfloat16).to(out) for out in outputs
    ]
    wanted = [x for x in itertools.chain(leaves, keywords.values()) if differentiable(x)]
    return torch.autograd.grad(outputs, wanted, gradients, allow_unused=True)
