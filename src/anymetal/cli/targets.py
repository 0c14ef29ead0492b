"""`FILE.py::function`, `FILE.metal` or `torch.softmax` become something to call."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import typer

from anymetal.cli.checked_kernel import KernelCall, prepared
from anymetal.cli.kernel_arguments import parse_arguments
from anymetal.cli.sources import is_kernel_file
from anymetal.evidence.own import Own

_SEPARATOR = "::"


def is_own(word: str) -> bool:
    """Whether a word names something of the user's, and no operator."""
    return _SEPARATOR in word or Path(word).suffix == ".py" or is_kernel_file(word)


def own_target(word: str, call: KernelCall, baseline: str | None, device: torch.device) -> Own:
    """What a command line names, with the arguments that it gives."""
    other = function_called(baseline) if baseline else None
    if is_kernel_file(word):
        if not Path(word).is_file():
            raise typer.BadParameter(f"no such file: {word}")
        return _kernel_target(replace(call, file=Path(word)), other, device)
    return Own(
        word.partition(_SEPARATOR)[2],
        function_called(word),
        lambda: _moved(parse_arguments(call.arguments, call.seed), device),
        baseline=other,
    )


def function_called(word: str) -> Callable[..., Any]:
    """`FILE.py::name`, or a dotted name of an importable module."""
    file, separator, name = word.partition(_SEPARATOR)
    if not separator and Path(word).suffix == ".py":
        raise typer.BadParameter(f"{word}: which function? Write {word}::NAME")
    if separator:
        holder: Any = _module(Path(file))
        place = file
    else:
        place, _, name = word.rpartition(".")
        try:
            holder = importlib.import_module(place)
        except (ImportError, ValueError):
            raise typer.BadParameter(f"{word}: expected FILE.py::NAME or module.name") from None
    for part in name.split("."):
        holder = getattr(holder, part, None)
    if not callable(holder):
        raise typer.BadParameter(f"{place} has no function {name!r}")
    function: Callable[..., Any] = holder
    return function


def _module(file: Path) -> Any:
    if not file.is_file():
        raise typer.BadParameter(f"no such file: {file}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As when the file is run: what lies beside it can be imported.
    sys.path.insert(0, str(file.absolute().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _kernel_target(
    call: KernelCall, baseline: Callable[..., Any] | None, device: torch.device
) -> Own:
    ready = prepared(call)
    return Own(
        ready.kernel.name,
        lambda *given: ready.kernel(*given, **ready.keywords),
        lambda: _moved(parse_arguments(call.arguments, call.seed), device),
        written=ready.written,
        baseline=baseline,
    )


def _moved(arguments: list[Any], device: torch.device) -> list[Any]:
    return [
        argument.to(device) if isinstance(argument, torch.Tensor) and argument.dim() else argument
        for argument in arguments
    ]
