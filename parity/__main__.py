"""`python -m parity`: judge our front end by what Apple's compiler made of the same sources.

    python -m parity                         all of it; hours
    python -m parity --shard 3/8             an eighth of every part
    python -m parity --part results --sample 400
    python -m parity --continue --seconds 600   what has no result yet, for ten minutes
    python -m parity --part results --family 'gemv.*' --engine coroutine
    python -m parity --part ways             code made soon against code made as always
    python -m parity --page                  docs/parity.md, of all results that are here
    python -m parity --page --part results   only this section of it

The exit status is 1 when a kernel is refused, has other arguments or gives other results.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parity import wheels
from parity.verdict import Verdict

Names = Callable[[], Sequence[str]]
Judge = Callable[[Iterable[str]], Iterator[Verdict]]
PARTS = ("tables", "results", "ways", "structure", "torch", "programs")
_OF_ENGINES = ("results", "ways")
_SAMPLED = {"ways": 200}  # of a shard, where nobody asks for another number: it is slow
RESULTS = wheels.FOLDER / "results"
_GOOD = ("equal", "NaN signs", "close")


def main() -> int:
    options = parse_arguments()
    os.environ.setdefault("ANYMETAL_CACHE_DIR", str(wheels.FOLDER / "cache"))
    logging.getLogger("anymetal.kernel").setLevel(logging.CRITICAL)  # MLX's powers tell much
    if options.page:
        from parity.page import write_page  # noqa: PLC0415  (torch is not needed before)

        print(f"wrote {write_page(RESULTS, options.part)}")
        return 0
    try:
        return judge(options)
    except wheels.NoWheel as error:
        print(f"parity: nothing was judged: {error}", file=sys.stderr)
        return 1 if os.environ.get("CI") else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="parity", description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part")
    parser.add_argument(
        "--shard", default="1/1", metavar="I/N", help="one of N parts of the kernels"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, always the same")
    parser.add_argument("--seconds", type=float, metavar="S", help="stop a part after this time")
    parser.add_argument(
        "--continue", action="store_true", dest="resume", help="only what has no result yet"
    )
    parser.add_argument(
        "--family", metavar="PATTERN", help="only MLX's kernels whose template has such a name"
    )
    parser.add_argument(
        "--engine",
        choices=("simdgroup", "coroutine"),
        help="results of this one only",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="write docs/parity.md, or the chosen parts of it, and stop",
    )
    return parser.parse_args()


def judge(options: argparse.Namespace) -> int:
    """Judges the parts that are asked for; what was found is kept as JSON."""
    failed = 0
    for part in options.part or PARTS:
        names, function = _judges(options.engine)[part]
        count = options.sample or _SAMPLED.get(part)
        chosen = shard(of_family(names(), options.family), options.shard, count)
        place = RESULTS / f"{part}-{options.shard.replace('/', '-of-')}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        if options.resume:
            engine = options.engine if part in _OF_ENGINES else None
            known = judged_on(engine, results_in(RESULTS, part))
            chosen = [name for name in chosen if name not in known]
        started, bad, done = time.monotonic(), 0, 0
        with place.open("a" if options.resume else "w") as file:
            for verdict in function(chosen):
                file.write(json.dumps(asdict(verdict)) + "\n")
                file.flush()
                done += 1
                if not is_good(verdict):
                    bad += 1
                    print(describe(verdict), flush=True)
                if options.seconds and time.monotonic() - started > options.seconds:
                    break
        print(f"{part}: {done} kernels, {bad} not as they should be", flush=True)
        failed += bad
    return 1 if failed else 0


def _judges(engine: str | None) -> dict[str, tuple[Names, Judge]]:
    import torch  # noqa: PLC0415  (a page is written without it)

    from parity import mlx, programs, pytorch, results, ways  # noqa: PLC0415  (they import torch)

    torch.set_num_threads(1)  # launches are small; who wants more cores runs several shards
    engines = results.ENGINES if engine is None else (engine,)

    def with_source() -> list[str]:
        return [name for name in mlx.kernels() if mlx.has_source(name)]

    def with_case() -> list[str]:
        return [name for name in pytorch.kernels() if pytorch.has_case(name)]

    return {
        "tables": (with_source, mlx.judge_tables),
        "results": (with_source, functools.partial(results.judge_results, engines=engines)),
        "ways": (with_source, functools.partial(ways.judge_ways, engines=engines)),
        "structure": (with_source, mlx.judge_structure),
        "torch": (with_case, pytorch.judge),
        "programs": (programs.kernels, programs.judge),
    }


def of_family(names: Sequence[str], pattern: str | None) -> Sequence[str]:
    """Those of MLX's kernels whose template's whole name fits the pattern."""
    if pattern is None:
        return names
    from parity import templates  # noqa: PLC0415

    found = {name: templates.template_of(name, templates.AnyType()) for name in names}
    wanted = re.compile(pattern)
    return [name for name, one in found.items() if one and wanted.fullmatch(one.function)]


def shard(names: Sequence[str], which: str, sample: int | None) -> list[str]:
    """The kernels of a shard: one of each family, then a second of each, and so on.

    Which is left to chance, but always the same.
    """
    number, count = (int(part) for part in which.split("/"))
    mixed = list(names)
    random.Random(0).shuffle(mixed)
    seen = Counter[str]()
    turns = []
    for name in mixed:
        turns.append(seen[_family(name)])
        seen[_family(name)] += 1
    ordered = [mixed[at] for at in sorted(range(len(mixed)), key=turns.__getitem__)]
    chosen = ordered[number - 1 :: count]
    return chosen if sample is None else chosen[:sample]


def _family(name: str) -> str:
    """A kernel's name without the types and sizes in it."""
    return re.sub(r"(u?int|b?float|half|complex|long|short|u?char|bool_?)?\d*(_t\b)?", "", name)


def is_good(verdict: Verdict) -> bool:
    words = [word for _, word in verdict.results]
    return not verdict.refused and not verdict.arguments and all(map(_is_good_word, words))


def _is_good_word(word: str) -> bool:
    return word in _GOOD or word.startswith(("engine: ", "undefined: "))


def describe(verdict: Verdict) -> str:
    words = [f"{where}: {word}" for where, word in verdict.results if not _is_good_word(word)]
    return f"{verdict.kernel}: {verdict.refused or verdict.arguments or '; '.join(words)}"


def results_in(folder: Path, part: str) -> dict[str, dict[str, Any]]:
    """What is kept of a part, by kernel: of all its shards, and of every engine the last."""
    rows: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob(f"{part}-*.jsonl")):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            before = rows.get(row["kernel"], {"results": []})
            words = {**dict(before["results"]), **dict(row["results"])}
            rows[row["kernel"]] = {**row, "results": [list(pair) for pair in words.items()]}
    return rows


def judged_on(engine: str | None, rows: Mapping[str, dict[str, Any]]) -> set[str]:
    """The kernels that need not be judged again: on this engine, where one is chosen."""
    return {
        name
        for name, row in rows.items()
        if engine is None or row["refused"] or engine in dict(row["results"])
    }


if __name__ == "__main__":
    sys.exit(main())
