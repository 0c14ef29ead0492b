"""Operators go in, their health comes out in the same order, examined side by side.

Nearly all the time goes into compiling kernels, one operator's apart from another's. Processes and
not threads do it: most of a compilation is Python.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import torch

import anymetal.linalg
import anymetal.ops  # noqa: F401  (declares the operators, in every process)
from anymetal import device
from anymetal.evidence.health import Health, Plan, examine
from anymetal.ops.declare import OPERATORS, AnyOperator

# A process takes seconds to start; for fewer operators than this it would not pay.
LEAST_OPERATORS = 6


def examine_all(operators: Sequence[AnyOperator], plan: Plan) -> Iterator[Health]:
    """The health of each; a GPU is used by one process alone, the virtual one by all."""
    cores = os.cpu_count() or 1
    workers = min(cores, len(operators) // LEAST_OPERATORS + 1)
    is_virtual = plan.device.type == "mps" and device.is_enabled()
    if workers == 1 or not (plan.device.type == "cpu" or is_virtual):
        yield from (examine(operator, plan) for operator in operators)
        return
    # Not forked: torch and the engine may have threads, which a fork does not take along.
    context = multiprocessing.get_context("spawn")
    threads = max(1, cores // workers)
    with ProcessPoolExecutor(workers, context, _begin, (threads, is_virtual)) as pool:
        jobs = [pool.submit(_examine_named, names, plan) for names in _families(operators)]
        try:
            yield from itertools.chain.from_iterable(job.result() for job in jobs)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(threads: int, is_virtual: bool) -> None:
    gc.freeze()  # what was imported stays: the collector need not walk over it again and again
    torch.set_num_threads(threads)
    if is_virtual:
        device.enable()


def _examine_named(names: Sequence[str], plan: Plan) -> list[Health]:
    return [examine(OPERATORS[name], plan) for name in names]


def _families(operators: Sequence[AnyOperator]) -> list[list[str]]:
    """Names that share kernels in one list: an operator and its gradient."""
    groups = itertools.groupby(
        (operator.name for operator in operators),
        key=lambda name: name.removesuffix("_backward").removesuffix("_"),
    )
    return [list(names) for _, names in groups]
