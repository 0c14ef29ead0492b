"""What the virtual mps device costs: the same small calls on mps and on cpu, from one run.

The tensors are small on purpose: what is measured is the way through the device, not the work.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import anymetal.device
from anymetal.evidence.timing import Times
from anymetal.evidence.timing import measure as measure_times

LIMIT = 2.0
"""The device may cost at most this many times the CPU, by the shortest time of each."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One call, made for a device."""

    name: str
    make: Callable[[str], Call]
    rounds: int = 1
    """How many times the usual number of rounds: long calls are timed one by one."""


@dataclass(frozen=True)
class Cost:
    """Times of one case on both devices, in microseconds."""

    name: str
    cpu: Times
    mps: Times

    @property
    def factor(self) -> float:
        return self.mps.minimum / self.cpu.minimum

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "cpu_us": asdict(self.cpu),
            "mps_us": asdict(self.mps),
            "factor": self.factor,
            "limit": LIMIT,
        }


def add(device: str) -> Call:
    x, y = torch.ones(16, device=device), torch.ones(16, device=device)
    return lambda: x + y


def add_in_place(device: str) -> Call:
    x, y = torch.zeros(16, device=device), torch.ones(16, device=device)
    return lambda: x.add_(y)


def view(device: str) -> Call:
    x = torch.ones(16, device=device)
    return lambda: x.view(4, 4)


def empty(device: str) -> Call:
    place = torch.device(device)
    return lambda: torch.empty(16, device=place)


def item(device: str) -> Call:
    x = torch.ones(16, device=device)
    return lambda: x[0].item()


def training_step(device: str) -> Call:
    """A perceptron with one hidden layer, a batch of 32, Adam."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 64).to(device)
    target = torch.randint(0, 10, (32,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    return step


CASES = (
    Case("add", add),
    Case("add_", add_in_place),
    Case("view", view),
    Case("empty", empty),
    Case("x[0].item()", item),
    Case("training step", training_step, rounds=20),
)


def measure(case: Case, rounds: int) -> Cost:
    """Both devices take turns, so that a noisy moment hits both."""
    calls = {device: case.make(device) for device in ("cpu", "mps")}
    times = measure_times(calls, rounds=rounds * case.rounds, seconds=20)
    return Cost(case.name, times["cpu"], times["mps"])


def show(costs: list[Cost]) -> None:
    print(f"{'':16}{'cpu µs':>10}{'mps µs':>10}{'factor':>9}   at most {LIMIT:g}")
    for cost in costs:
        verdict = "" if cost.factor <= LIMIT else "   over"
        print(
            f"{cost.name:16}{cost.cpu.minimum:10.2f}{cost.mps.minimum:10.2f}"
            f"{cost.factor:8.2f}x{verdict}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    anymetal.device.enable()
    # One thread: a second one only adds noise to calls this small.
    torch.set_num_threads(1)
    costs = [measure(case, options.rounds) for case in CASES]
    show(costs)
    if options.json:
        data = {
            "torch": torch.__version__,
            "machine": platform.processor() or platform.machine(),
            "costs": [cost.to_json() for cost in costs],
        }
        options.json.write_text(json.dumps(data, indent=2) + "\n")
    return 0 if all(cost.factor <= LIMIT for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
