"""Modules: state_dicts go both ways between torch's and ours, and results are the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from anymetal import ops
from anymetal.ops import modules

Make = Callable[[], nn.Module]

# Ours, torch's, the shape of an input.
PAIRS: dict[str, tuple[Make, Make, tuple[int, ...]]] = {
    "RMSNorm": (lambda: modules.RMSNorm(8), lambda: nn.RMSNorm(8), (3, 8)),
    "RMSNorm eps": (
        lambda: modules.RMSNorm((2, 4), eps=1e-3),
        lambda: nn.RMSNorm((2, 4), eps=1e-3),
        (3, 2, 4),
    ),
    "LayerNorm": (lambda: modules.LayerNorm(8), lambda: nn.LayerNorm(8), (3, 8)),
    "LayerNorm without bias": (
        lambda: modules.LayerNorm(8, bias=False),
        lambda: nn.LayerNorm(8, bias=False),
        (3, 8),
    ),
    "LayerNorm plain": (
        lambda: modules.LayerNorm(8, elementwise_affine=False),
        lambda: nn.LayerNorm(8, elementwise_affine=False),
        (3, 8),
    ),
    "GroupNorm": (lambda: modules.GroupNorm(2, 4), lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "SiLU": (modules.SiLU, nn.SiLU, (3, 8)),
    "GELU": (lambda: modules.GELU("tanh"), lambda: nn.GELU("tanh"), (3, 8)),
    "Sigmoid": (modules.Sigmoid, nn.Sigmoid, (3, 8)),
    "Softmax": (lambda: modules.Softmax(-1), lambda: nn.Softmax(-1), (3, 8)),
    "LogSoftmax": (lambda: modules.LogSoftmax(1), lambda: nn.LogSoftmax(1), (3, 8)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_state_dict_loads_from_torchs_and_back(name: str) -> None:
    ours, torchs, shape = PAIRS[name]
    mine, own = ours(), torchs()
    for parameter in own.parameters():
        nn.init.normal_(parameter)
    mine.load_state_dict(own.state_dict())
    torchs().load_state_dict(mine.state_dict())
    assert isinstance(mine, type(own))
    x = torch.randn(shape)
    torch.testing.assert_close(mine(x), own(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["RMSNorm", "LayerNorm", "GroupNorm"])
def test_parameters_learn(name: str) -> None:
    ours, torchs, shape = PAIRS[name]
    mine, own, x = ours(), torchs(), torch.randn(shape)
    for module in (mine, own):
        module(x).square().sum().backward()
    for learned, expected in zip(mine.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(learned.grad, expected.grad, rtol=1e-4, atol=1e-5)


def test_gemmas_weights_start_at_zero() -> None:
    module = modules.RMSNorm(8, eps=1e-6, weight_offset=1.0)
    assert not module.weight.any()
    x = torch.randn(3, 8)
    torch.testing.assert_close(module(x), nn.RMSNorm(8, eps=1e-6)(x))
    assert "weight_offset=1.0" in repr(module)


def test_fused_norms_give_the_sum_too() -> None:
    x, residual = torch.randn(3, 8), torch.randn(3, 8)
    for fused, plain in (
        (modules.AddRMSNorm(8), modules.RMSNorm(8)),
        (modules.AddLayerNorm(8), modules.LayerNorm(8)),
    ):
        plain.load_state_dict(fused.state_dict())
        y, total = fused(x, residual)
        assert torch.equal(total, x + residual)
        assert torch.equal(y, plain(x + residual))


def test_gated_modules() -> None:
    gate, up = torch.randn(3, 8), torch.randn(3, 8)
    both = torch.cat((gate, up), -1)
    assert torch.equal(modules.SwiGLU()(gate, up), ops.swiglu(gate, up))
    assert torch.equal(modules.SwiGLU()(both), ops.swiglu(gate, up))
    geglu = modules.GeGLU("tanh")
    assert torch.equal(geglu(gate, up), ops.geglu(gate, up, approximate="tanh"))
    assert repr(geglu) == "GeGLU(approximate='tanh')"


def test_activations_with_a_bias() -> None:
    x = torch.randn(3, 8)
    for module, function in ((modules.BiasSiLU(8), nn.SiLU()), (modules.BiasGELU(8), nn.GELU())):
        nn.init.normal_(module.bias)
        torch.testing.assert_close(module(x), function(x + module.bias))
    torch.testing.assert_close(modules.ReLUSquared()(x), x.relu().square())


def test_silu_in_place() -> None:
    x = torch.randn(3, 8)
    expected = nn.SiLU()(x)
    assert modules.SiLU(inplace=True)(x) is x
    torch.testing.assert_close(x, expected)


def test_softmax_needs_a_dimension() -> None:
    with pytest.raises(ValueError, match=r"Softmax: argument 'dim' expects a dimension, got None"):
        modules.Softmax()(torch.randn(3, 8))


def test_rotary_embedding_has_no_state() -> None:
    module = modules.RotaryEmbedding(base=500.0, rotary_dim=8, interleaved=True)
    assert not module.state_dict()
    q, k = torch.randn(1, 4, 3, 16), torch.randn(1, 2, 3, 16)
    mine = module(q, k, offset=2)
    expected = ops.rope(q, k, base=500.0, rotary_dim=8, interleaved=True, offset=2)
    assert all(torch.equal(a, b) for a, b in zip(mine, expected, strict=True))
    assert torch.equal(module(q), ops.rope(q, base=500.0, rotary_dim=8, interleaved=True))


def test_a_block_of_modules_compiles_as_one_graph() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = modules.RMSNorm(16)
            self.wide = nn.Linear(16, 32)
            self.gated = modules.SwiGLU()
            self.last = modules.AddLayerNorm(16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.last(self.gated(self.wide(self.norm(x))), x)[0]
            return y

    block, x = Block(), torch.randn(4, 16)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), block(x))
    compiled(x).sum().backward()
    assert block.norm.weight.grad is not None
    torch._dynamo.reset()
