"""One kernel of a Metal file, tried with every group size; and the list of all that is kept."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anymetal.cli.checked_kernel import KernelCall, PreparedCall, prepared
from anymetal.cli.targets import own_target
from anymetal.errors import AnymetalError
from anymetal.evidence.configurations import (
    Autotuned,
    Configuration,
    Place,
    kept,
    sweep_configurations,
)
from anymetal.evidence.sweep import GROUP_SIZES
from anymetal.evidence.tables import new_table
from anymetal.policy import tuning_cache
from anymetal.store.cache import digest_of

_SIDES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def tune_kernel(
    console: Console,
    call: KernelCall,
    device: torch.device,
    seconds: float,
    again: bool,
    as_json: bool,
) -> bool:
    """Sweep the group sizes of one launch, and show all of them."""
    if not call.file.is_file():
        raise typer.BadParameter(f"no such file: {call.file}")
    try:
        ready = prepared(call)
        words = [*call.arguments, *call.constants, *call.threadgroup_memory]
        key = " ".join([*words, f"threads={call.threads or 'of the first tensor'}"])
        place = Place(ready.kernel.name, key, digest_of(ready.kernel.source_text), device)
        found = None if again else place.read()
        if found is None:
            found = _swept(call, ready, place, seconds)
    except (AnymetalError, RuntimeError, ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print(json.dumps(asdict(found), indent=2))
    else:
        console.print(trials_table(found))
    return True


def group_sizes(threads: tuple[int, ...], limit: int) -> list[Configuration]:
    """The shapes of threadgroups worth trying for a grid: whole simdgroups, no longer than it."""
    sizes: list[tuple[int, ...]]
    if len(threads) == 1:
        sizes = [(size,) for size in GROUP_SIZES if size <= limit]
    else:
        sizes = [
            (x, y, *(1,) * (len(threads) - 2))
            for x in _SIDES
            for y in _SIDES
            if 32 <= x * y <= limit and x <= 2 * threads[0] and y <= 2 * threads[1]
        ]
    return [{"group_size": list(size)} for size in sizes]


def trials_table(found: Autotuned) -> Table:
    """Every configuration with its time, or the reason why it has none."""
    shown = new_table("configuration", right=("µs",), last="")
    shown.columns[-1].no_wrap = False
    shown.title = f"{found.function}, {found.device}"
    for number, trial in enumerate(found.trials):
        best = number == found.best
        time = "-" if trial.microseconds is None else f"{trial.microseconds:.1f}"
        word = Text("best", "green") if best else Text(trial.failure or "", "red")
        shown.add_row(_configuration(trial.configuration), time, word)
    return shown


def show_kept(console: Console, as_json: bool) -> None:
    """What was tuned on this machine: operators, functions and kernels."""
    operators, own = tuning_cache.kept(), kept()
    if as_json:
        data = {
            "operators": [asdict(tuned) for tuned in operators],
            "own": [asdict(found) for found in own],
        }
        print(json.dumps(data, indent=2))
        return
    shown = new_table("what", "device", right=("µs",), last="best")
    for place in (1, -1):
        shown.columns[place].no_wrap = False
    for tuned in operators:
        key, best = tuned.key, tuned.best
        words = {} if best is None else {"group_size": best.group_size, **best.values}
        time = None if best is None else best.microseconds
        what = f"{key.operator} {key.strategy} {key.dtype} {key.shape_class}"
        shown.add_row(what, key.device, _time(time), _configuration(words))
    for found in own:
        trial = found.trials[found.best]
        what = f"{found.function} {found.key}"
        best_text = _configuration(trial.configuration)
        shown.add_row(what, found.device, _time(trial.microseconds), best_text)
    console.print(shown)


def _swept(call: KernelCall, ready: PreparedCall, place: Place, seconds: float) -> Autotuned:
    own = own_target(str(call.file), call, None, place.device)
    given = own.arguments()
    threads = ready.keywords.get("threads") or (_first_size(given),)

    def launch(one: Configuration, arguments: list[Any]) -> None:
        size = tuple(one["group_size"])
        ready.kernel(*arguments, **{**ready.keywords, "threads": threads, "group_size": size})

    def results(one: Configuration) -> list[torch.Tensor]:
        fresh = own.arguments()
        launch(one, fresh)
        return ready.written(fresh)

    options = group_sizes(threads, ready.kernel.max_threads_per_threadgroup)
    trials, best = sweep_configurations(
        *(own.name, options, results, lambda one: launch(one, given)), place.device, seconds
    )
    return place.keep(trials, best, {ready.kernel.name: ready.kernel.source_text})


def _first_size(arguments: list[Any]) -> int:
    tensors = [a for a in arguments if isinstance(a, torch.Tensor) and a.dim()]
    if not tensors:
        raise typer.BadParameter("pass --threads: there is no tensor whose size it could be")
    return math.prod(tensors[0].shape)


def _configuration(values: Configuration) -> str:
    return " ".join(
        f"{name}={'x'.join(map(str, v)) if isinstance(v, list) else v}"
        for name, v in values.items()
    )


def _time(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"
