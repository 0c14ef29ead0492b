"""Kernels as vector code: how long each is, and which ones fall back to the reference engine.

    python -m tests.engines.lengths                   the operators' and conformance's kernels
    python -m tests.engines.lengths mlx mlx-26        all that is in MLX's two metallibs; hours
    python -m tests.engines.lengths mlx --families    the largest of those whose names differ in
                                                      types and numbers alone; a quarter of an hour
    python -m tests.engines.lengths mlx --longer-than 12000   its large kernels, in bytes of bitcode
    python -m tests.engines.lengths mlx --sample 100  a hundred of them, always the same
    python -m tests.engines.lengths mlx --shard 1/4   a quarter of them
    python -m tests.engines.lengths --all             every kernel is listed, not the long ones only

A kernel is written for each shape of threadgroups that it is launched with, and for the shape that
is looked at before any launch; MLX's as `parity/launches` says. Machine code is not made. The exit
status is 1 where one falls back for its length, or an operator's kernel for any reason.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.progress import track
from tests.engines.kernel_sets import SETS, Wanted

from anymetal.engines.collector import collector_paused
from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine, write
from anymetal.errors import AnymetalError, Unsuitable
from anymetal.ir import Module
from anymetal.passes.simdgroup.rules import GroupShape
from anymetal.passes.simdgroup.vectorise import TooLong


@dataclass(frozen=True)
class Row:
    """One kernel for one shape of threadgroups; `why` it falls back, if it does."""

    kernel: str
    shape: GroupShape
    instructions: int = 0
    is_long: bool = False
    why: str = ""
    for_length: bool = False

    def __str__(self) -> str:
        form = self.why or ("long" if self.is_long else "")
        shape = f"{self.shape.row}{'' if self.shape.complete else ' cut'}"
        return f"{self.instructions:7,} {shape:7} {self.kernel} {form}".rstrip()


@dataclass
class Found:
    """The kernels of one set: what was written, and what is no kernel for any engine here."""

    rows: list[Row] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    most: float = 0  # instructions for each byte of what came compiled

    @property
    def fallen(self) -> list[Row]:
        return [row for row in self.rows if row.why]

    @property
    def too_long(self) -> list[Row]:
        return [row for row in self.rows if row.for_length]

    def refusals(self) -> Iterator[str]:
        for reason, count in Counter(self.refused.values()).most_common():
            yield f"{count} refused: {reason}"

    def summary(self, title: str) -> str:
        kernels = len({row.kernel for row in self.rows})
        longest = max((row.instructions for row in self.rows), default=0)
        return (
            f"{title}: {len(self.rows):,} forms of {kernels:,} kernels, "
            f"{sum(row.is_long for row in self.rows):,} in the long form, the longest has "
            f"{longest:,} instructions{self._ratio()}; {len(self.too_long)} fall back for their "
            f"length, {len(self.fallen) - len(self.too_long)} for another reason"
        )

    def _ratio(self) -> str:
        return f" (at most {self.most:.1f} for a byte of bitcode)" if self.most else ""


def written(wanted: Iterable[Wanted], report: Callable[[Row], None] = lambda row: None) -> Found:
    found = Found()
    for one in wanted:
        with collector_paused():
            try:
                rows = list(rows_of(one))
            except AnymetalError as error:
                found.refused[one.name] = str(error).strip().splitlines()[0][:120]
                continue
        found.rows += rows
        for row in rows:
            report(row)
            found.most = max(found.most, row.instructions / one.size if one.size else 0)
    return found


def rows_of(wanted: Wanted) -> Iterator[Row]:
    """A kernel for all shapes that it is launched with."""
    ir, metadata = SimdgroupEngine().prepared(wanted.program(), patient=False)
    for shape in wanted.shapes:
        row = partial(Row, wanted.name, shape)
        try:
            code = write(ir, shape, metadata["heaviest"])
        except Unsuitable as error:
            yield row(why=str(error), for_length=str(error) == str(TooLong()))
            continue
        yield row(length(code.module), code.result.is_long)


def length(module: Module) -> int:
    return sum(1 for function in module.functions for _ in function.instructions())


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    failed = False
    for name in options.sets:
        wanted = [one for one in SETS[name]() if one.size >= options.longer_than]
        if options.families:
            wanted = largest(wanted)
        wanted = chosen(wanted, options.shard, options.sample)
        found = written(track(wanted, name), partial(tell, every=options.all))
        print(*found.refusals(), found.summary(name), sep="\n", flush=True)
        failed |= bool(found.too_long or (name == "operators" and found.fallen))
    return 1 if failed else 0


def tell(row: Row, *, every: bool) -> None:
    if every or row.why or row.is_long:
        print(row, flush=True)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.engines.lengths", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--all", action="store_true", help="list every kernel")
    parser.add_argument("--longer-than", type=int, default=0, metavar="BYTES", help="of bitcode")
    parser.add_argument("--families", action="store_true", help="the largest of each family alone")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many, always the same")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="one of N parts of a set")
    options = parser.parse_args(arguments)
    options.sets = options.sets or ["operators", "conformance"]
    if unknown := set(options.sets) - SETS.keys():
        parser.error(f"no such set: {', '.join(sorted(unknown))} (there are {', '.join(SETS)})")
    return options


def largest(wanted: list[Wanted]) -> list[Wanted]:
    """The largest kernel of each family; of some that are as large, the first."""
    found: dict[str, Wanted] = {}
    for one in wanted:
        best = found.setdefault(one.family, one)
        if one.size > best.size:
            found[one.family] = one
    return list(found.values())


def chosen(wanted: list[Wanted], shard: str, sample: int | None) -> list[Wanted]:
    """A part of a set, every n-th kernel, and of that some."""
    number, _, count = shard.partition("/")
    part = wanted[int(number) - 1 :: int(count)]
    if sample is not None and sample < len(part):
        part = random.Random(0).sample(part, sample)
    return part


if __name__ == "__main__":
    raise SystemExit(main())
