"""A tiny transformer of our parts on the virtual device learns what one of torch's parts learns."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from anymetal import ops, optim

WORDS, WIDTH, HEADS, LENGTH, BATCH = 17, 32, 2, 12, 4
# All 200 in `make thorough`: a step takes 0.15 s of processor time.
STEPS = 200 if os.environ.get("ANYMETAL_TEST_ALL") == "1" else 20
Loss = Callable[[dict[str, torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]


def parameters(device: torch.device | str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    shapes = {
        "table": (WORDS, WIDTH),
        "places": (LENGTH, WIDTH),
        "qkv": (3 * WIDTH, WIDTH),
        "out": (WIDTH, WIDTH),
        "gate": (2 * WIDTH, WIDTH),
        "up": (2 * WIDTH, WIDTH),
        "down": (WIDTH, 2 * WIDTH),
        "head": (WORDS, WIDTH),
    }
    made = {n: torch.randn(s, generator=generator) / s[-1] ** 0.5 for n, s in shapes.items()}
    made |= {name: torch.ones(WIDTH) for name in ("first", "second", "last")}
    return {name: value.to(device).requires_grad_() for name, value in made.items()}


def heads_of(states: torch.Tensor) -> torch.Tensor:
    return states.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)


def ours(p: dict[str, torch.Tensor], tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    x = ops.embedding(tokens, p["table"]) + p["places"]
    q, k, v = ops.linear(ops.rms_norm(x, [WIDTH], p["first"]), p["qkv"]).chunk(3, -1)
    states = ops.scaled_dot_product_attention(heads_of(q), heads_of(k), heads_of(v), is_causal=True)
    x = ops.linear(states.transpose(1, 2).flatten(2), p["out"], residual=x)
    normed = ops.rms_norm(x, [WIDTH], p["second"])
    x = x + ops.swiglu_mlp(normed, p["gate"], p["up"], p["down"])
    return ops.linear_cross_entropy(ops.rms_norm(x, [WIDTH], p["last"]), p["head"], target)


def torchs(p: dict[str, torch.Tensor], tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    x = F.embedding(tokens, p["table"]) + p["places"]
    q, k, v = F.linear(F.rms_norm(x, [WIDTH], p["first"]), p["qkv"]).chunk(3, -1)
    states = F.scaled_dot_product_attention(heads_of(q), heads_of(k), heads_of(v), is_causal=True)
    x = x + F.linear(states.transpose(1, 2).flatten(2), p["out"])
    normed = F.rms_norm(x, [WIDTH], p["second"])
    x = x + F.linear(F.silu(F.linear(normed, p["gate"])) * F.linear(normed, p["up"]), p["down"])
    logits = F.linear(F.rms_norm(x, [WIDTH], p["last"]), p["head"])
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def batch(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Words that follow from the one before, and now and then any other."""
    words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
    for i in range(LENGTH):
        follows = torch.rand(BATCH, generator=generator) < 0.9
        words[:, i + 1] = torch.where(follows, (3 * words[:, i] + 1) % WORDS, words[:, i + 1])
    return words[:, :-1], words[:, 1:]


def trained(loss: Loss, optimizer: Any, device: torch.device | str) -> list[float]:
    held = parameters(device)
    step = optimizer(held.values(), lr=3e-3)
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(STEPS):
        found = loss(held, *(words.to(device) for words in batch(generator)))
        step.zero_grad()
        found.backward()  # type: ignore[no-untyped-call]
        step.step()
        losses.append(found.item())
    return losses


def test_tiny_transformer_ends_where_torchs_ends(mps: torch.device) -> None:
    mine = trained(ours, optim.AdamW, mps)
    theirs = trained(torchs, torch.optim.AdamW, "cpu")
    assert theirs[-1] < (0.5 if STEPS == 200 else 0.95) * theirs[0]
    assert abs(mine[-1] - theirs[-1]) < 1e-3, (mine[-1], theirs[-1])
    assert max(abs(a - b) for a, b in zip(mine, theirs, strict=True)) < 1e-3
