"""Fifty steps of training on mps and on the CPU, from the same weights, inputs and seed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

STEPS = 50


class SmallTransformer(nn.Module):
    """Two layers, causal, next-token loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embed(tokens), mask=mask, is_causal=True))


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32, 10),
    )


def train(
    model: nn.Module, device: str, inputs: torch.Tensor, targets: torch.Tensor
) -> list[float]:
    torch.manual_seed(1)
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    losses = []
    for step in range(STEPS):
        part = slice(step % 4 * 8, step % 4 * 8 + 8)
        logits = model(inputs[part].to(device))
        loss = nn.functional.cross_entropy(
            logits.flatten(0, -2), targets[part].to(device).flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", ["convnet", "transformer"])
def test_losses_are_those_of_the_cpu(kind: str) -> None:
    if kind == "convnet":
        model = convnet()
        inputs, targets = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))
    else:
        model = SmallTransformer()
        tokens = torch.randint(0, 32, (32, 13))
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
    ours = torch.tensor(train(model, "mps", inputs, targets))
    expected = torch.tensor(train(model, "cpu", inputs, targets))
    assert ours[-4:].mean() < 0.9 * ours[:4].mean()
    torch.testing.assert_close(ours, expected, rtol=2e-3, atol=2e-3)
