"""`@anymetal.autotune`: a function that launches kernels picks its best configuration by itself.

The first call with a new key tries every configuration on copies of its arguments; later calls, of
later processes too, take what was found. A changed kernel is tried again: the first call of a
process looks at the sources of the kernels it launches.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import torch

from anymetal.checker.context import active
from anymetal.evidence.configurations import (
    Autotuned,
    Configuration,
    Place,
    sweep_configurations,
)
from anymetal.evidence.judge import flat
from anymetal.launch.handing import Sources, handed_to, runner
from anymetal.store.cache import digest_of

P = ParamSpec("P")
R = TypeVar("R")
MOST_CONFIGURATIONS = 256


def autotune(
    *,
    configs: Sequence[Configuration] | None = None,
    space: Mapping[str, Sequence[Any]] | None = None,
    key: Sequence[str] = (),
    seconds: float = 0.05,
) -> Callable[[Callable[P, R]], Autotuner[P, R]]:
    """Choose keyword arguments of a function by measuring.

    `configs` lists them, the first being what is used where nothing is faster; `space` has the
    values of each, and all combinations are tried. `key` names parameters: a tensor counts by its
    dtype and shape, anything else by its value, and each key has its own best configuration.
    """
    if (configs is None) == (space is None):
        raise TypeError("autotune: pass configs or space, one of the two")
    if space is not None:
        values = [dict(zip(space, c, strict=True)) for c in itertools.product(*space.values())]
    else:
        values = [dict(one) for one in configs or ()]
    if not 1 <= len(values) <= MOST_CONFIGURATIONS:
        raise ValueError(
            f"autotune: {len(values)} configurations; there must be 1 to {MOST_CONFIGURATIONS}"
        )

    def decorate(function: Callable[P, R]) -> Autotuner[P, R]:
        return Autotuner(function, values, tuple(key), seconds)

    return decorate


class Autotuner(Generic[P, R]):
    """A function whose configuration is chosen by measuring."""

    def __init__(
        self,
        function: Callable[P, R],
        configurations: Sequence[Configuration],
        key: tuple[str, ...],
        seconds: float,
    ) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name: str = getattr(function, "__qualname__", repr(function))
        self._signature = inspect.signature(function)
        self._configurations, self._key, self._seconds = configurations, key, seconds
        self._check_names()
        self._known: dict[str, Configuration] = {}
        text = "".join(f"{sorted(one.items())!r}\n" for one in configurations)
        self._code = digest_of(_source(function), text)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self._key_of(args, kwargs)
        known = self._known.get(key)
        if known is not None:
            return self._function(*args, **{**known, **kwargs})
        if runner() is not None or active() is not None:
            # Counted, profiled or checked: no time to measure, and nothing to keep.
            kept = self._place(args, kwargs).read()
            chosen = kept.configuration if kept else self._configurations[0]
            return self._function(*args, **{**chosen, **kwargs})
        return self._first_call(key, args, kwargs)

    def tuned(self, *args: P.args, **kwargs: P.kwargs) -> Autotuned:
        """What was measured for such a call; measured now where nothing was."""
        place = self._place(args, kwargs)
        return place.read() or self._tune(place, args, kwargs)

    def _first_call(self, key: str, args: Any, kwargs: Any) -> R:
        place = self._place(args, kwargs)
        kept = place.read()
        if kept is None:
            kept = self._tune(place, args, kwargs)
        sources = Sources()
        with handed_to(sources):
            result = self._function(*args, **{**kept.configuration, **kwargs})
        digests = {name: digest_of(text) for name, text in sources.texts.items()}
        if digests == dict(kept.kernels):
            self._known[key] = kept.configuration
        else:  # its result is right, but it was measured with other kernels
            self._known[key] = self._tune(place, args, kwargs).configuration
        return result

    def _tune(self, place: Place, args: Any, kwargs: Any) -> Autotuned:
        def called(one: Configuration, given: tuple[Any, Any]) -> Any:
            return self._function(*given[0], **{**one, **given[1]})

        def results(one: Configuration) -> list[torch.Tensor]:
            given = _copied(args), _copied(kwargs)
            returned = flat(called(one, given))
            return returned or flat(list(given[0])) + flat(list(given[1].values()))

        copies = _copied(args), _copied(kwargs)
        trials, best = sweep_configurations(
            self._name,
            self._configurations,
            results,
            lambda one: called(one, copies),
            place.device,
            self._seconds,
        )
        sources = Sources()
        with handed_to(sources):
            called(trials[best].configuration, (_copied(args), _copied(kwargs)))
        return place.keep(trials, best, sources.texts)

    def _place(self, args: Any, kwargs: Any) -> Place:
        tensors = flat(list(args)) + flat(list(kwargs.values()))
        device = tensors[0].device if tensors else torch.device("cpu")
        return Place(self._name, self._key_of(args, kwargs), self._code, device)

    def _key_of(self, args: Any, kwargs: Any) -> str:
        bound = self._signature.bind_partial(*args, **kwargs)
        bound.apply_defaults()
        return ", ".join(f"{name}={_described(bound.arguments[name])}" for name in self._key)

    def _check_names(self) -> None:
        parameters = self._signature.parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name in self._key:
            if name not in parameters:
                raise ValueError(
                    f"autotune: key has {name!r}, but {self._name} takes {', '.join(parameters)}"
                )
        for one in self._configurations:
            for name in one:
                if name not in parameters and not takes_any:
                    raise ValueError(
                        f"autotune: a configuration sets {name!r}, but {self._name} takes"
                        f" {', '.join(parameters)}"
                    )


def _described(value: object) -> str:
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}[{'x'.join(map(str, value.shape))}]"
    return repr(value)


def _copied(values: Any) -> Any:
    """Arguments with tensors of their own: a configuration that writes must not meet another's."""
    if isinstance(values, torch.Tensor):
        return values.detach().clone(memory_format=torch.preserve_format)
    if isinstance(values, tuple | list):
        return type(values)(_copied(value) for value in values)
    if isinstance(values, dict):
        return {name: _copied(value) for name, value in values.items()}
    return values


def _source(function: Callable[..., Any]) -> str:
    """The function's text; its name where it has none, as at a prompt."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(getattr(function, "__qualname__", function))
