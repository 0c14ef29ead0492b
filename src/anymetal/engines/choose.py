"""The only file that chooses an engine.

`ANYMETAL_ENGINE` names one, and then a kernel that it cannot run is an error; or it is `auto`: the
first engine that can run the kernel. Why that is not the first of all is logged, and kept with the
executable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anymetal import settings
from anymetal.engines import registry
from anymetal.engines.contract import Compiled, E, Engine, Instrumentation
from anymetal.errors import EngineError, Unsuitable
from anymetal.nouns import Target

AUTO = "auto"
REFERENCE = registry.ENGINES[-1].name  # runs every kernel
_log = logging.getLogger("anymetal.engines")


@dataclass(frozen=True)
class Choice:
    """The engines to try, in order, and why it is not all of them."""

    name: str
    engines: tuple[Engine, ...]
    reason: str = ""


def choice(instrumentation: Instrumentation[Any], name: str = "") -> Choice:
    """The engines for a kernel: the one called `name`, or what instrumentation and setting say."""
    if instrumentation.engine:
        name, reason = instrumentation.engine, f"{instrumentation.name} kernels run there"
    elif name:
        reason = "asked for"
    else:
        name = wanted()
        reason = f"{settings.ENGINE.variable}={name}"
    if name == AUTO:
        return Choice(AUTO, registry.ENGINES)
    return Choice(name, (registry.engine_called(name),), reason)


def wanted() -> str:
    """The name in the setting: an engine's, or auto."""
    return settings.ENGINE.one_of(AUTO, *(engine.name for engine in registry.ENGINES))


def for_cuda(capability: tuple[int, int]) -> str:
    """The engine for `cuda` devices of a compute capability."""
    for least, engine in registry.CUDA_ENGINES.items():
        if capability >= least:
            return engine.name
    have = ".".join(str(number) for number in capability)
    *_, (major, minor) = registry.CUDA_ENGINES
    raise EngineError(f"a cuda device of compute capability {have}; {major}.{minor} is needed")


def checking_target() -> Target:
    """What a source is compiled for to see whether it compiles."""
    return registry.ENGINES[0].target


def first_able(kernel: str, chosen: Choice, build: Callable[[Engine, bool], E]) -> E:
    """What `build(engine, patient)` makes for the first engine that can run the kernel."""
    reason = chosen.reason
    *others, last = chosen.engines
    for engine in others:
        try:
            return _explained(build(engine, False), reason)
        except Unsuitable as error:
            reason = reason or str(error)
    try:
        return _explained(build(last, not others), reason)
    except Unsuitable as error:
        raise _excluded(kernel, last.name, error) from None


def log_fallback(kernel: str, chosen: Choice, executable: Compiled) -> None:
    """Says where a kernel runs that the first choice could not run."""
    name, reason = executable.metadata["engine"], executable.metadata["reason"]
    if name != chosen.engines[0].name:
        _log.info("kernel '%s' runs on the %s engine: %s", kernel, name, reason)


def instead(kernel: str, executable: Compiled, why: Unsuitable) -> str:
    """The engine for a launch whose shape the chosen engine cannot do."""
    refused = executable.metadata["engine"]
    names = [engine.name for engine in registry.ENGINES]
    following = names[names.index(refused) + 1 :]
    if wanted() != AUTO or not following:
        raise _excluded(kernel, refused, why) from None
    _log.info("kernel '%s': a launch runs on the %s engine: %s", kernel, following[0], why)
    return following[0]


def _explained(executable: E, reason: str) -> E:
    executable.metadata["reason"] = reason
    return executable


def _excluded(kernel: str, engine: str, why: Unsuitable) -> EngineError:
    names = [other.name for other in registry.ENGINES]
    others = ", ".join(name for name in names if name != engine)
    instead = f"with {settings.ENGINE.variable}={AUTO} it runs on another one ({others})"
    if engine not in names:
        instead = "with its tensors passed by .cpu() it runs there"
    return EngineError(f"kernel '{kernel}' cannot run on the {engine} engine: {why}; {instead}")
