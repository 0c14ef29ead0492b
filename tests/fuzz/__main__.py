"""The long form: many kernels on every engine, failures shrunk and written down.

    python -m tests.fuzz --count 2000 --seed 1 [--engines coroutine simdgroup] [--small] [--keep]

Run it from the repository's root. The seed of a kernel is printed when it fails; with `--count 1`
it comes back. The exit status is 1 when anything failed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.syntax import Syntax

ROOT = Path(__file__).parent.parent.parent
os.environ.setdefault("ANYMETAL_CACHE_DIR", str(ROOT / ".anymetal" / "fuzz-cache"))

from . import regression  # noqa: E402  (the cache is chosen first)
from .driver import REFERENCE, Difference, engine_names  # noqa: E402
from .generate import generate  # noqa: E402
from .model import Expected  # noqa: E402
from .shrink import shrink  # noqa: E402
from .tree import Kernel  # noqa: E402
from .worker import Worker  # noqa: E402

FAILURES = ROOT / ".anymetal" / "fuzz"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=2000, help="kernels (default 2000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one (default 0)")
    parser.add_argument("--small", action="store_true", help="small kernels, as in the tests")
    parser.add_argument(
        "--engines",
        nargs="+",
        default=engine_names(),
        help="names of engines; checked: the checker",
    )
    parser.add_argument("--most", type=int, default=10, help="failures after which it stops")
    parser.add_argument(
        "--shrink-seconds", type=float, default=120, help="at most this long a failure; 0: not"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write failures to tests/fuzz/regressions"
    )
    return parser.parse_args(arguments)


def same_failure(worker: Worker, first: Sequence[Difference], kernel: Kernel) -> bool:
    """Whether the kernel fails on the same engine and in the same way, not in any way.

    Where only a fast engine failed, the reference engine must still be right: else the kernel has
    become one of which it is open what it computes.
    """
    found = {d.engine: d.kind for d in worker.check(kernel, [first[0].engine])}
    if found.get(first[0].engine) != first[0].kind:
        return False
    if REFERENCE in {difference.engine for difference in first}:
        return True
    return not worker.check(kernel, [REFERENCE])


def smaller(
    worker: Worker, kernel: Kernel, first: Sequence[Difference], options: argparse.Namespace
) -> Kernel:
    if not options.shrink_seconds:
        return kernel

    def fails(candidate: Kernel, expected: Expected) -> bool:
        return same_failure(worker, first, candidate)

    return shrink(kernel, fails, options.shrink_seconds)


def report(
    console: Console, kernel: Kernel, found: list[Difference], path: Path, name: str
) -> None:
    console.print(f"seed {kernel.seed}: {path}", style="bold red", markup=False)
    for difference in found:
        console.print(f"  {difference}", markup=False, highlight=False)
    console.print(Syntax(regression.text_of(kernel, name), "cpp", background_color="default"))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console()
    console.print(
        f"seeds {options.seed} to {options.seed + options.count - 1} on "
        f"{', '.join(options.engines)} and the model"
    )
    failures = 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Worker() as worker, Progress(*columns, console=console) as progress:
        task = progress.add_task("kernels", total=options.count)
        for seed in range(options.seed, options.seed + options.count):
            kernel, _ = generate(seed, options.small)
            found = worker.check(kernel, options.engines)
            if found:
                failures += 1
                small = smaller(worker, kernel, found, options)
                name = f"seed{seed}_{found[0].engine}"
                folder = regression.FOLDER if options.keep else FAILURES
                path = regression.keep(small, name, folder)
                report(console, small, worker.check(small, options.engines), path, name)
            progress.advance(task)
            progress.update(task, description=f"kernels, {failures} failed")
            done = seed - options.seed + 1
            if done % 100 == 0 and not console.is_terminal:
                console.print(f"{done} of {options.count}, {failures} failed")
            if failures >= options.most:
                console.print(f"stopped after {failures} failures")
                break
    for engine, count in worker.refusals.items():
        console.print(f"{engine} left {count} kernels to the reference engine")
    console.print(f"{failures} failed", style="red" if failures else "green")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
