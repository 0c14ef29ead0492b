"""Code that is made soon beside code that is made as always: the same bits of the same program?

Kernels are judged by programs that are only simplified, and by machine code that is not optimised.
Here both of a pair, from AIR and from source, run that way and the ordinary way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from anymetal.engines.compiler import Compiler
from anymetal.errors import AnymetalError
from anymetal.msl.compile_many import OneByOne
from parity import mlx
from parity.inputs import make_inputs
from parity.mlx import Noted, verdict_of
from parity.results import (
    ENGINES,
    Launched,
    compared,
    ordinary_pair,
    quick_pairs,
    same_constants,
    worst,
)
from parity.verdict import Verdict

_log = logging.getLogger("anymetal.parity")


def judge_ways(names: Iterable[str], engines: Sequence[str] = ENGINES) -> Iterator[Verdict]:
    """A word for each engine: how results of the two ways compare, of the worse of a pair.

    What cannot run in one of the ways says nothing here, and gets no verdict.
    """
    for group in mlx.batches(names):
        compiler = Compiler(mlx.source_of(group))
        for part in same_constants(group):
            found = {one.name: verdict_of(one) for one in part}
            for engine in engines:
                os.environ["ANYMETAL_ENGINE"] = engine
                for one, word in _compared_ways(part, compiler, engine):
                    words = (*found[one.name].results, (engine, word))
                    found[one.name] = replace(found[one.name], results=words)
            yield from (verdict for verdict in found.values() if verdict.results)


def _compared_ways(
    part: Sequence[Noted], compiler: Compiler, engine: str
) -> Iterator[tuple[Noted, str]]:
    try:
        quick = quick_pairs(part, compiler, engine)
    except (AnymetalError, OneByOne, RuntimeError) as error:
        _log.warning("%d kernels are never made soon: %s", len(part), str(error)[:300])
        return
    for one, pair in zip(part, quick, strict=True):
        try:
            ordinary = ordinary_pair(one, compiler)
        except AnymetalError as error:
            _log.warning("%s: %s", one.name, str(error)[:300])
            continue
        word = worst([_compared(one, both) for both in zip(pair, ordinary, strict=True)])
        if "cannot run on the" in word:  # longer in one of the ways than the engine takes
            _log.warning("%s: %s", one.name, word)
            continue
        yield one, word


def _compared(one: Noted, both: tuple[Launched, Launched]) -> str:
    tables = [noted.argument for noted in one.notes.parameters]
    return worst(
        [compared(both, launch, make_inputs(one.name, tables, launch)) for launch in one.launches]
    )
