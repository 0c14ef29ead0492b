"""A training step with anymetal's optimizer and loss, next to the same steps with torch's own.

    python examples/training_step.py

Both start from the same weights and see the same data. After ten steps of AdamW with clipped
gradients the parameters must agree; the optimizer's state moves from one class to the other.
"""

from __future__ import annotations

import copy

import torch

from anymetal import ops, optim

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, ours: bool) -> list[float]:
    draw = torch.Generator().manual_seed(1)
    loss_of = ops.cross_entropy if ours else torch.nn.functional.cross_entropy
    clip = optim.clip_grad_norm_ if ours else torch.nn.utils.clip_grad_norm_
    losses = []
    for _ in range(10):
        x = torch.randn(32, 16, generator=draw).to(DEVICE)
        target = x[:, :5].argmax(1)
        optimizer.zero_grad()
        loss = loss_of(model(x), target, label_smoothing=0.1)
        loss.backward()
        clip(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 5))
    mine.to(DEVICE)
    theirs = copy.deepcopy(mine)
    optimizer = optim.AdamW(mine.parameters(), lr=1e-2)
    of_torch = torch.optim.AdamW(theirs.parameters(), lr=1e-2)

    losses = train(mine, optimizer, ours=True)
    wanted = train(theirs, of_torch, ours=False)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, torch {wanted[0]:.4f} -> {wanted[-1]:.4f}")
    if not losses[-1] < losses[0]:
        raise SystemExit("nothing was learnt")
    torch.testing.assert_close(losses, wanted, rtol=1e-4, atol=1e-5)
    for found, parameter in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found, parameter, rtol=1e-3, atol=1e-4)

    of_torch.load_state_dict(optimizer.state_dict())  # and back: optimizer.load_state_dict(...)
    print("the same parameters, and a state that torch's class loads")


if __name__ == "__main__":
    main()
