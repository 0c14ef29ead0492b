"""A call of a profiled kernel: on one processor, and never on another engine unseen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from anymetal.checker.context import ActiveCheck
from anymetal.engines.contract import Sizes
from anymetal.engines.profiled import ProfiledExecutable
from anymetal.launch.bind import Frame
from anymetal.launch.call import BoundKernel

_LINE = 128  # bytes


@dataclass(frozen=True)
class LaunchShape:
    """The grid and the threadgroup of a launch, and bytes of threadgroup parameters by index."""

    grid: Sizes
    group: Sizes
    memory: dict[int, int]


class ProfiledKernel(BoundKernel):
    """Runs where its counters are; raises Unsuitable for a shape that cannot run there."""

    def __init__(self, profiled: ProfiledExecutable) -> None:
        super().__init__(profiled.executable)
        self._profiled = profiled
        self.shape_run: LaunchShape | None = None

    def run(
        self,
        frame: Frame,
        args: tuple[Any, ...],
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int] | None,
        check: ActiveCheck | None,
    ) -> None:
        starts = {
            index: argument.untyped_storage().data_ptr() % _LINE
            for index, argument in enumerate(args)
            if isinstance(argument, torch.Tensor) and argument.dim()
        }
        self._profiled.executable.prepare(grid, group, memory)
        self._profiled.set_starts(starts)
        self.executable.launch(frame.address, grid, group, 1, memory)
        self.shape_run = LaunchShape(grid, group, memory or {})
