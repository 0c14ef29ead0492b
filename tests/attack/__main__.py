"""`python -m tests.attack`: every part, or those named; the exit status is 1 when one fails."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from .cases import FOLDER, Hostile, hostile_files
from .damage import attack_damage
from .flat import attack_flat
from .serve import WAYS
from .sources import generated
from .worker import Worker


def attack_hostile(only: str, apart: bool) -> Iterator[tuple[str, str]]:
    """Each case and what is wrong with it, on every engine and under the checker."""
    with Worker(apart=apart) as worker:
        for case in (*hostile_files(), *generated()):
            if only in case.name:
                yield case.name, "; ".join(filter(None, judged(worker, case)))


def judged(worker: Worker, case: Hostile) -> Iterator[str]:
    for way in WAYS:
        if (case.checked if way == "checked" else case.plain) == "skipped":
            continue
        yield case.wrong(way, worker.ask(case, way))


def attack_files(folder: str) -> Callable[[str, bool], Iterator[tuple[str, str]]]:
    def attack(only: str, apart: bool) -> Iterator[tuple[str, str]]:
        with Worker(apart=apart) as worker:
            for path in sorted((FOLDER / folder).glob("*.metal")):
                if only in path.stem:
                    answer = worker.ask(path, "checked")
                    yield path.stem, "" if answer == "as expected" else answer

    return attack


PARTS: dict[str, Callable[[str, bool], Iterator[tuple[str, str]]]] = {
    "hostile": attack_hostile,
    "planted": attack_files("planted"),
    "correct": attack_files("correct"),
    "damage": lambda only, _: attack_damage(only),
    "flat": lambda only, _: attack_flat(only),
}


# What runs beside what, on two cores.
SIDES = (("hostile", "planted", "correct"), ("damage", "flat"))


def run_side_by_side(options: argparse.Namespace) -> int:
    """All parts, in two processes; the exit status is 1 when one fails."""
    rest = ["--only", options.only, *(["--apart"] if options.apart else [])]
    commands = ([sys.executable, "-m", "tests.attack", *parts, *rest] for parts in SIDES)
    running = [subprocess.Popen(command) for command in commands]
    statuses = [process.wait() for process in running]
    return 1 if any(statuses) else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this in their name")
    parser.add_argument("--apart", action="store_true", help="a process for every case")
    options = parser.parse_args()
    if not options.parts:
        return run_side_by_side(options)
    failed = 0
    for part in options.parts:
        start, count, wrong = time.monotonic(), 0, 0
        for name, fault in PARTS[part](options.only, options.apart):
            count += 1
            if fault:
                wrong += 1
                print(f"{part}/{name}: {fault}", flush=True)
        seconds = time.monotonic() - start
        print(f"{part}: {count - wrong} of {count} as promised, {seconds:.0f} s", flush=True)
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
