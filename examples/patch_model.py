"""End to end: put a norm of our own into a model, train and infer with it, time it, take it out.

    python examples/patch_model.py

The model is a small transformer of torch.nn modules. Its norms are replaced one by one through the
modules that hold them, and put back afterwards: the model ends as it began.
"""

from __future__ import annotations

import statistics
import time

import torch

from anymetal import ops

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(width, eps=1e-6)
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class FastNorm(torch.nn.Module):
    """The same weight (the same object: an optimizer keeps working), our kernel."""

    def __init__(self, norm: torch.nn.RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x, self.weight, eps=self.eps)


def patch(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str, torch.nn.Module]]:
    """Replace every RMSNorm; what is returned takes it back."""
    replaced = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.RMSNorm)
    ]
    for parent, name, child in replaced:
        setattr(parent, name, FastNorm(child))
    return replaced


def train(model: torch.nn.Module, steps: int = 5) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(3)
    losses = []
    for _ in range(steps):
        x = torch.randn(8, 16, 64, generator=draw).to(DEVICE)
        loss = (model(x) - x.roll(1, -1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def milliseconds(model: torch.nn.Module, x: torch.Tensor, rounds: int = 20) -> float:
    times = []
    for _ in range(rounds):
        if DEVICE == "mps":
            torch.mps.synchronize()
        start = time.perf_counter()
        with torch.no_grad():
            model(x)
        if DEVICE == "mps":
            torch.mps.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[5:])  # the first rounds compile and fill caches


def main() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(64), Block(64)).to(DEVICE)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(4, 16, 64, device=DEVICE)
    modules = list(model.modules())
    with torch.no_grad():
        before, time_before = model(x), milliseconds(model, x)
    losses_before = train(model)

    model.load_state_dict(start)
    replaced = patch(model)
    if len(replaced) != 2:
        raise SystemExit(f"{len(replaced)} norms were replaced, there are 2")
    with torch.no_grad():
        torch.testing.assert_close(model(x), before, rtol=1e-5, atol=1e-5)
    print(
        f"the same output; {time_before:.3f} ms with torch, {milliseconds(model, x):.3f} with ours"
    )
    losses = train(model)
    torch.testing.assert_close(losses, losses_before, rtol=1e-4, atol=1e-5)
    print("the same losses:", " ".join(f"{loss:.4f}" for loss in losses))

    for parent, name, child in replaced:
        setattr(parent, name, child)
    if [id(module) for module in model.modules()] != [id(module) for module in modules]:
        raise SystemExit("the model does not have its modules back")
    print("taken back: every module is the object that it was")


if __name__ == "__main__":
    main()
