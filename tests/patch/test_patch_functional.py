"""A program that calls torch's functions itself, with ours behind them and back."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anymetal import overrides, patch


def block(x: Tensor, weight: Tensor) -> Tensor:
    """A piece of a diffusion model, written without modules."""
    hidden = F.silu(F.group_norm(x, 4, weight, weight))
    tokens = F.layer_norm(hidden.flatten(2).mT, (8,))
    mixed = F.scaled_dot_product_attention(tokens[:, None], tokens[:, None], tokens[:, None])
    result: Tensor = F.gelu(mixed) * torch.softmax(mixed, -1)
    return result


def test_functions_come_and_go() -> None:
    overrides.reset()
    x, weight = torch.randn(2, 8, 3, 3), torch.rand(8)
    expected, functions = block(x, weight), (F.silu, F.gelu, torch.softmax, F.linear)
    handle = patch.functional(devices=("cpu",))
    assert F.linear is functions[-1]
    torch.testing.assert_close(block(x, weight), expected, rtol=1e-4, atol=1e-5)
    assert handle.count == len(overrides.active()) > 8
    assert "activations: ours, for float32" in handle.report()
    again = patch.functional(devices=("cpu",))
    assert again.count == 0
    assert "replaced already" in again.report()
    handle.undo()
    again.undo()
    assert (F.silu, F.gelu, torch.softmax, F.linear) == functions
    assert overrides.active() == {}
    taken = {name for name, calls in overrides.report().functions.items() if calls.taken}
    assert taken == {
        *(f"torch.nn.functional.{name}" for name in ("silu", "gelu", "group_norm", "layer_norm")),
        "torch.nn.functional.scaled_dot_product_attention",
        "torch.softmax",
    }
    overrides.reset()


def test_calls_on_the_cpu_stay_torchs_unless_asked_for() -> None:
    overrides.reset()
    handle = patch.functional("activations")
    try:
        F.silu(torch.ones(3))
    finally:
        handle.undo()
    assert overrides.report().functions["torch.nn.functional.silu"].passed == {"device cpu": 1}
    overrides.reset()
    with pytest.raises(ValueError, match="unknown group 'all of it'"):
        patch.functional("all of it")
