"""The simdgroup engine against hand-written C and torch, one thread each: CPU time, which a busy
machine distorts less than the time on the clock.

python benchmarks/one_thread.py [KERNEL ...]
"""

from __future__ import annotations

import argparse
import time

import torch
from rich.console import Console
from rich.table import Table

from contenders import SIMDGROUP, Contender, hand_written, on_engine, torch_cpu
from workloads import MAKERS


def measure(contenders: dict[str, Contender], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time, the least of some rounds in which all take turns."""
    least = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, contender in contenders.items():
            before = time.process_time()
            contender.call()
            least[name] = min(least[name], 1e3 * (time.process_time() - before))
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(MAKERS))
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    table = Table(title="CPU time of one thread, milliseconds")
    for column in ("kernel", SIMDGROUP, "C by hand", "torch", "over C", "over torch"):
        table.add_column(column)
    for name in options.kernels or MAKERS:
        workload = MAKERS[name]()
        contenders = {
            SIMDGROUP: on_engine(workload, SIMDGROUP),
            "C": hand_written(workload),
            "torch": torch_cpu(workload),
        }
        ours, by_hand, torchs = measure(contenders, options.rounds).values()
        figures = (ours, by_hand, torchs, ours / by_hand, ours / torchs)
        decimals = (1, 1, 1, 2, 2)
        table.add_row(name, *(f"{x:.{d}f}" for x, d in zip(figures, decimals, strict=True)))
    Console().print(table)


if __name__ == "__main__":
    main()
