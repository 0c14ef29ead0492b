"""Launches inside a block go in; a profile of each kernel comes out."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from anymetal.engines.profiled import Observation
from anymetal.errors import EngineError, Unsuitable
from anymetal.launch.handing import handed_to, handed_to_nobody
from anymetal.launch.kernel import Kernel
from anymetal.launch.profiled_call import LaunchShape
from anymetal.profiler.lines import KernelProfile, kernel_profile

_Key = tuple[str, str, str]


class _Collected:
    """The launches of one kernel so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.observation: Observation | None = None
        self.shapes: list[LaunchShape] = []
        self.launches = 0
        self.buffer_bytes: dict[int, int] = {}
        self.unprofiled = ""

    def run(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.launches += 1
        try:
            observation, shape = self.kernel.observe(*args, **keywords)
        except (EngineError, Unsuitable) as error:
            self.unprofiled = str(error)
            with handed_to_nobody():
                self.kernel(*args, **keywords)
            return
        known = self.observation
        self.observation = observation if known is None else known + observation
        if shape is not None:
            self.shapes.append(shape)
        for index, argument in enumerate(args):
            if isinstance(argument, torch.Tensor) and argument.dim():
                size = argument.numel() * argument.element_size()
                self.buffer_bytes[index] = self.buffer_bytes.get(index, 0) + size

    def profile(self) -> KernelProfile:
        return kernel_profile(
            self.kernel,
            self.observation,
            tuple(self.shapes),
            self.launches,
            self.buffer_bytes,
            self.unprofiled,
        )


class Profile:
    """The kernels that a block launched, in order of their first launch."""

    def __init__(self) -> None:
        self._kernels: dict[_Key, _Collected] = {}
        self._lock = threading.Lock()

    def run(self, kernel: Kernel, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """One launch; the counters are shared, so they come one at a time."""
        key = (kernel.name, kernel.source_text, repr(sorted(kernel.constants.items())))
        with self._lock:
            self._kernels.setdefault(key, _Collected(kernel)).run(args, keywords)

    @property
    def kernels(self) -> tuple[KernelProfile, ...]:
        """Every kernel that was launched, in the order of their first launches."""
        return tuple(one.profile() for one in self._kernels.values())

    def __getitem__(self, name: str) -> KernelProfile:
        """The first kernel of a name."""
        for one in self._kernels.values():
            if one.kernel.name == name:
                return one.profile()
        raise KeyError(
            f"no kernel {name!r} was launched; there are {[k[0] for k in self._kernels]}"
        )

    def __str__(self) -> str:
        from anymetal.profiler.listing import listing  # noqa: PLC0415  (it needs this room)

        return "\n\n".join(listing(one) for one in self.kernels) or "no kernel was launched"


@contextlib.contextmanager
def profile() -> Iterator[Profile]:
    """Profile the kernels that are launched inside the block: `with anymetal.profile() as p:`.

    They run on one processor with counters in their code; results are the same.
    """
    found = Profile()
    with handed_to(found):
        yield found
