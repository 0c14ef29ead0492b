"""A call of one compiled kernel: its arguments are bound, its shape is checked, and it runs."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from anymetal.checker.context import ActiveCheck
from anymetal.engines import choose
from anymetal.engines.compiler import AnyCompiler
from anymetal.engines.contract import PLAIN, Executable, Sizes
from anymetal.errors import Unsuitable
from anymetal.launch.bind import BUFFER_LIMIT, Binder, Casts, Frame
from anymetal.launch.error_buffer import ErrorBuffer
from anymetal.launch.shape import Extent, grid_and_group
from anymetal.launch.virtual import Queue, command_queue
from anymetal.nouns import ConstantValue

_Tensor = torch.Tensor
X = TypeVar("X", bound=Executable)
B = TypeVar("B", bound=Binder)


def cuda_device(args: tuple[Any, ...]) -> int:
    """The `cuda` device of a call's first tensor; -1 where that is elsewhere."""
    for argument in args:
        if isinstance(argument, _Tensor):
            if argument.is_cuda:
                return argument.get_device()
            if argument.dim() > 0:
                return -1
        elif isinstance(argument, list | tuple) and argument:
            first = argument[0]
            if isinstance(first, torch.Tensor):
                return first.get_device() if first.is_cuda else -1
    return -1


class Bound(Generic[X, B]):
    """An executable and its binder: what a call does on every device."""

    def __init__(self, executable: X, binder: type[B]) -> None:
        self.executable = executable
        self.name: str = executable.metadata["name"]
        self.reason: str = executable.metadata["reason"]
        self.limit = executable.max_threads_per_threadgroup
        self.binder = binder(self.name, executable.arguments, executable.used_buffers)

    def settled(
        self,
        count: int,
        elements: int,
        threads: Extent | None,
        group_size: Extent | None,
        errors: int | None,
        lengths: Mapping[int, int] | None,
    ) -> tuple[Sizes, Sizes, dict[int, int] | None]:
        """Grid, threadgroup and threadgroup memory of a call with `count` bound arguments.

        The first tensor has `elements`, or is not there: -1. `errors` is the buffer for errors.
        """
        binder = self.binder
        if errors is not None or count < binder.required:
            binder.check_bound(count, also=errors)
        memory = None
        if binder.threadgroup or lengths:
            memory = binder.lengths(lengths, self.executable.static_threadgroup_memory_length)
        if threads is None and elements >= 0:
            threads = elements
        grid, group = self.shape(threads, group_size)
        return grid, group, memory

    def shape(self, threads: Extent | None, group_size: Extent | None) -> tuple[Sizes, Sizes]:
        return grid_and_group(self.name, threads, group_size, self.limit)

    def check_error_index(self, index: int) -> None:
        if not 0 <= index < BUFFER_LIMIT:
            self.binder.fail(f"error_buf_idx is {index}; buffers are 0 to {BUFFER_LIMIT - 1}")


class Ready(NamedTuple):
    """A launch on this machine's processors whose arguments are in a frame."""

    frame: Frame
    args: tuple[Any, ...]
    grid: Sizes
    group: Sizes
    memory: dict[int, int] | None
    check: ActiveCheck | None
    keep: list[Any]  # what the launch needs beside its arguments
    errors: ErrorBuffer | None
    queue: Queue | None  # of the virtual device, where the tensors are there


class BoundKernel(Bound[Executable, Binder], ABC):
    """An executable on this machine's processors, and how calls bind to it."""

    def __init__(self, executable: Executable) -> None:
        super().__init__(executable, Binder)

    @abstractmethod
    def run(
        self,
        frame: Frame,
        args: tuple[Any, ...],
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int] | None,
        check: ActiveCheck | None,
    ) -> None:
        """Runs a launch whose arguments are in the frame."""

    def call(
        self,
        check: ActiveCheck | None,
        args: tuple[Any, ...],
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Casts = None,
        error_buf_idx: int | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
    ) -> None:
        """Binds, checks and runs, or hands the launch to the virtual device's queue."""
        self.start(
            self.ready(
                *(check, args, threads, group_size, arg_casts, error_buf_idx, threadgroup_memory)
            )
        )

    def ready(
        self,
        check: ActiveCheck | None,
        args: tuple[Any, ...],
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Casts = None,
        error_buf_idx: int | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
    ) -> Ready:
        """A launch that is bound and checked, and nothing more."""
        frame = self.binder.take_frame()
        keep: list[Any] = []
        elements = self.binder.bind(frame, args, arg_casts, keep)
        errors = None
        frame.errors = error_buf_idx
        if error_buf_idx is not None:
            errors = self._bind_error_buffer(frame, error_buf_idx)
        grid, group, memory = self.settled(
            len(args), elements, threads, group_size, error_buf_idx, threadgroup_memory
        )
        queue = command_queue() if frame.on_device else None
        return Ready(frame, args, grid, group, memory, check, keep, errors, queue)

    def start(self, launch: Ready) -> None:
        queue = launch.queue
        if queue is not None and queue.asynchronous and all(launch.grid):
            queue.submit(lambda: self._run(launch))
        else:
            self._run(launch)

    def complete(self, launch: Ready) -> None:
        """Start it, and return when it has run: its counters are there then. What it raises is
        raised here, also where the virtual device's queue ran it."""
        queue, raised = launch.queue, list[Exception]()

        def work() -> None:
            try:
                self._run(launch)
            except Exception as error:
                raised.append(error)

        if queue is not None and queue.asynchronous:
            queue.submit(work)
            queue.wait()
        else:
            work()
        if raised:
            raise raised[0]

    def _run(self, launch: Ready) -> None:
        """The queue holds a launch, and with it arguments and `keep`, as long as it needs them."""
        try:
            if all(launch.grid):
                self.run(*launch[:6])
        finally:
            self.binder.give_back(launch.frame)
        if launch.errors is not None:
            self._raise_reported(launch.errors, launch.queue)

    def _raise_reported(self, errors: ErrorBuffer, queue: Queue | None) -> None:
        """Raise what the kernel reported: at once, or at the next synchronisation of the device."""
        if queue is None:
            errors.raise_reported(self.name)
            return
        message = errors.message(self.name)
        if message is not None:
            queue.report(message)

    def _bind_error_buffer(self, frame: Frame, index: int) -> ErrorBuffer:
        self.check_error_index(index)
        errors = ErrorBuffer()
        frame.addresses[index] = ctypes.addressof(errors)
        return errors


class PlainKernel(BoundKernel):
    """A kernel on its engine, and on another one for launches that the first cannot do."""

    def __init__(
        self,
        executable: Executable,
        constants: Mapping[str, ConstantValue],
        compiler: AnyCompiler,
        workers: int | None = None,
    ) -> None:
        super().__init__(executable)
        self._compiler = compiler
        self._constants = constants
        self._workers = workers
        self._spare: Executable | None = None

    def call(
        self,
        check: ActiveCheck | None,
        args: tuple[Any, ...],
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Casts = None,
        error_buf_idx: int | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
    ) -> None:
        """The short way for tensors in CPU memory: nothing is queued, and nothing is noted of a
        launch that is over when this returns."""
        if error_buf_idx is not None:
            super().call(
                *(check, args, threads, group_size, arg_casts, error_buf_idx, threadgroup_memory)
            )
            return
        binder = self.binder
        frame = binder.take_frame()
        keep: list[Any] = []
        frame.errors = memory = None
        elements = binder.bind(frame, args, arg_casts, keep)
        is_plain = threads is not None and not (binder.threadgroup or threadgroup_memory)
        if is_plain and len(args) >= binder.required:
            grid, group = grid_and_group(self.name, threads, group_size, self.limit)
        else:
            grid, group, memory = self.settled(
                len(args), elements, threads, group_size, None, threadgroup_memory
            )
        if frame.on_device:
            queue = command_queue()
            self.start(Ready(frame, args, grid, group, memory, check, keep, None, queue))
            return
        try:
            if all(grid):
                self.run_at(frame.address, grid, group, memory)
        finally:
            binder.give_back(frame)

    def run(
        self,
        frame: Frame,
        args: tuple[Any, ...],
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int] | None,
        check: ActiveCheck | None,
    ) -> None:
        self.run_at(frame.address, grid, group, memory)

    def run_at(self, table: int, grid: Sizes, group: Sizes, memory: dict[int, int] | None) -> None:
        """A launch whose buffers' addresses are in a table."""
        # Threadgroups run side by side on as many processors as torch uses.
        workers = self._workers or torch.get_num_threads()
        try:
            self.executable.launch(table, grid, group, workers, memory)
        except Unsuitable as error:  # nothing has run yet
            spare = self._spare or self._find_spare(group, error)
            spare.launch(table, grid, group, workers, memory)

    def _find_spare(self, group: Sizes, why: Unsuitable) -> Executable:
        engine = choose.instead(self.name, self.executable, why)
        self._spare = self._compiler.compile(self.name, self._constants, PLAIN, engine)
        self.reason = f"{engine} for threadgroups of {group}: {why}"
        return self._spare
