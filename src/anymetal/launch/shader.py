"""What `compile_shader` returns: a library of kernels that are called like functions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from anymetal import settings
from anymetal.checker.context import ActiveCheck, active, report_limit
from anymetal.engines.cpu.simdgroups import NotVectorisable
from anymetal.engines.cpu.threads import CoroutineExecutable
from anymetal.errors import LimitError
from anymetal.launch.bind import BUFFER_LIMIT, Binder, Casts, Extent, Frame, Sizes, extent
from anymetal.launch.counts import Counts, compile_counting
from anymetal.launch.error_buffer import ErrorBuffer
from anymetal.launch.virtual import Queue, command_queue
from anymetal.launch.workshop import Workshop
from anymetal.nouns import Argument, Scalar, Source


def compile_shader(
    source: str,
    *,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    fast_math: bool | None = None,
    name: str = "<shader>",
) -> ShaderLibrary:
    """Compile Metal source; the kernels in it become attributes of the result.

    Takes what `torch.mps.compile_shader` takes, and on top of it directories to look for headers
    in, macros, fast math (the default is PYTORCH_MPS_FAST_MATH) and the name that messages use for
    the source. Raises SyntaxError with the author's lines when the source does not compile.
    """
    if not isinstance(source, str):
        raise TypeError(f"compile_shader takes the source as a str, not {type(source).__name__}")
    return ShaderLibrary(
        Source(
            text=source,
            name=name,
            include_dirs=tuple(Path(place).absolute() for place in include_dirs),
            defines=tuple((key, _macro(value)) for key, value in (defines or {}).items()),
            fast_math=settings.FAST_MATH.text() == "1" if fast_math is None else fast_math,
        )
    )


@contextlib.contextmanager
def limits_reported(kernel: str) -> Iterator[None]:
    """A limit that is exceeded is a finding of the check that is on, besides being an error."""
    try:
        yield
    except LimitError as error:
        check = active()
        if check is not None:
            report_limit(check, kernel, error)
        raise


class ShaderLibrary:
    """The kernels of one source, as attributes. `dir()` lists their names."""

    def __init__(self, source: Source) -> None:
        self._workshop = Workshop(source)
        self._kernels: dict[tuple[str, tuple[tuple[str, Scalar, type], ...]], Kernel] = {}

    def __getattr__(self, name: str) -> Kernel:
        # Double underscores are reserved in Metal too: these are Python asking what we can do.
        if name.startswith("__") or name in ("_workshop", "_kernels"):
            raise AttributeError(name)
        return self.specialize(name)

    def __dir__(self) -> list[str]:
        return list(self._workshop.outline.kernels)

    def __repr__(self) -> str:
        return f"<anymetal shader library: {', '.join(self._workshop.outline.kernels)}>"

    def specialize(self, name: str, constants: Mapping[int | str, Scalar] | None = None) -> Kernel:
        """The kernel `name` with function constants set, by their index or name."""
        if name not in self._workshop.outline.kernels:
            raise RuntimeError(self._unknown(name))
        values = self._named(name, constants or {})
        key = (name, tuple((other, value, type(value)) for other, value in sorted(values.items())))
        kernel = self._kernels.get(key)
        if kernel is None:
            with limits_reported(name):
                executable = self._workshop.compile(name, values)
            kernel = Kernel(name, executable, values, self._workshop)
            # Two threads may get here at once; both then use the kernel that came first.
            kernel = self._kernels.setdefault(key, kernel)
        return kernel

    def _unknown(self, name: str) -> str:
        known = ", ".join(self._workshop.outline.kernels) or "none"
        return f"Failed to create function state object for: {name}. The source has: {known}"

    def _named(self, kernel: str, constants: Mapping[int | str, Scalar]) -> dict[str, Scalar]:
        """Function constants by name, checked against the source's declarations."""
        declared = {name: kind for name, _, kind in self._workshop.outline.constants}
        by_index = {index: name for name, index, _ in self._workshop.outline.constants}
        values: dict[str, Scalar] = {}
        for key, value in constants.items():
            name = by_index.get(key) if isinstance(key, int) else key
            if name is None or name not in declared:
                known = ", ".join(f"{name} ({index})" for index, name in by_index.items())
                raise ValueError(
                    f"{kernel}: the source has no function constant {key!r}; it has"
                    f" {known or 'none'}"
                )
            values[name] = _constant(kernel, name, declared[name], value)
        return values


class Kernel:
    """One kernel, ready to be called: positional argument i is `[[buffer(i)]]`."""

    def __init__(
        self,
        name: str,
        executable: CoroutineExecutable,
        constants: Mapping[str, Scalar],
        workshop: Workshop,
        workers: int | None = None,
    ) -> None:
        self.name = name
        self._fixed_workers = workers
        self._workshop = workshop
        self.constants = dict(constants)
        self._executable = executable
        self._spare: CoroutineExecutable | None = None  # for launches the first one cannot do
        self._limit = executable.max_threads_per_threadgroup
        self._binder = Binder(name, executable.arguments, executable.used_buffers)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Every parameter with its type, address space and place."""
        return self._executable.arguments

    @property
    def max_threads_per_threadgroup(self) -> int:
        """How many threads a threadgroup of this kernel can have."""
        return self._limit

    @property
    def thread_execution_width(self) -> int:
        """How many threads a simdgroup has."""
        return self._executable.thread_execution_width

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that the kernel itself declares."""
        return self._executable.static_threadgroup_memory_length

    def __repr__(self) -> str:
        constants = "".join(f", {name}={value}" for name, value in self.constants.items())
        return f"<anymetal kernel {self.name}{constants}>"

    def __call__(
        self,
        *args: Any,
        threads: Extent | None = None,
        group_size: Extent | None = None,
        arg_casts: Casts = None,
        error_buf_idx: int | None = None,
        threadgroup_memory: Mapping[int, int] | None = None,
    ) -> None:
        """Run the kernel over `threads` threads in threadgroups of `group_size`, and wait.

        With tensors of the virtual mps device it may be queued, and errors it reports wait for the
        next synchronisation, as on a Mac.
        """
        binder = self._binder
        frame = binder.take_frame()
        check = active()
        queue = None
        queued = False
        try:
            keep: list[Any] = []
            elements = binder.bind(frame, args, arg_casts, keep)
            if threads is None and elements >= 0:
                threads = elements
            errors = None
            if error_buf_idx is not None:
                errors = self._bind_error_buffer(frame, len(args), error_buf_idx)
            elif len(args) < binder.required:
                binder.check_bound(len(args))
            memory = None
            if binder.threadgroup or threadgroup_memory:
                memory = binder.lengths(threadgroup_memory, self.static_thread_group_memory_length)
            grid, group = self._shape(threads, group_size)
            if frame.on_device:
                queue = command_queue()
            if queue is None or not queue.asynchronous:
                self._run(frame, args, grid, group, memory, check)
            else:
                launch = (frame, args, grid, group, memory, check)
                queue.submit(lambda: self._run_queued(launch, keep, errors, queue))
                queued = True
        except LimitError as error:
            if check is not None:
                report_limit(check, self.name, error)
            raise
        finally:
            if not queued:
                binder.give_back(frame)
        if errors is not None and not queued:
            self._raise_reported(errors, queue)

    def _run(
        self,
        frame: Frame,
        args: tuple[Any, ...],
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int] | None,
        check: ActiveCheck | None,
    ) -> None:
        if not (grid[0] and grid[1] and grid[2]):
            return
        if check is None:
            self._launch(frame, grid, group, memory)
            return
        from anymetal.launch.checked_call import call_checked  # noqa: PLC0415

        checked = self._workshop.compile_checked(self.name, self.constants, check.nan)
        excerpts = self._workshop.excerpt
        call_checked(checked, self._binder, frame, args, grid, group, memory, check, excerpts)

    @property
    def _workers(self) -> int:
        """Threadgroups run side by side on as many processors as torch uses."""
        return self._fixed_workers or torch.get_num_threads()

    def _launch(
        self, frame: Frame, grid: Sizes, group: Sizes, memory: dict[int, int] | None
    ) -> None:
        try:
            self._executable.launch(frame.address, grid, group, self._workers, memory)
        except NotVectorisable as error:  # nothing has run yet
            if self._spare is None:
                self._spare = self._workshop.reference(self.name, self.constants, error)
            self._spare.launch(frame.address, grid, group, self._workers, memory)

    def _run_queued(
        self, launch: Any, keep: list[Any], errors: ErrorBuffer | None, queue: Queue
    ) -> None:
        """What the queue calls; it holds the arguments, and `keep`, as long as it needs them."""
        try:
            self._run(*launch)
        finally:
            self._binder.give_back(launch[0])
        if errors is not None:
            self._raise_reported(errors, queue)

    def _raise_reported(self, errors: ErrorBuffer, queue: Queue | None) -> None:
        """Raise what the kernel reported: at once, or at the next synchronisation of the device."""
        if queue is None:
            errors.raise_reported(self.name)
            return
        message = errors.message(self.name)
        if message is not None:
            queue.report(message)

    def count(self, *args: Any, **keywords: Any) -> Counts:
        """Run the kernel like a call, on one processor, and count what its threads do."""
        program = compile_counting(self._workshop, self.name, self.constants)
        Kernel(self.name, program.executable, self.constants, self._workshop, workers=1)(
            *args, **keywords
        )
        return program.take()

    def _shape(self, threads: Extent | None, group_size: Extent | None) -> tuple[Sizes, Sizes]:
        """The grid and the threadgroup, each in three dimensions."""
        if threads is None:
            self._binder.fail(
                "Number of threads is undefined or has wrong dimension: pass threads=, or a tensor"
                " whose size it can be"
            )
        grid, dimensions = extent(self.name, threads, "threads")
        if group_size is None:
            return grid, (min(grid[0], self._limit) if dimensions == 1 else self._limit, 1, 1)
        group, group_dimensions = extent(self.name, group_size, "group_size")
        if group_dimensions != dimensions:
            self._binder.fail(
                f"threads {threads!r} and group_size {group_size!r} must have the same number of"
                " dimensions"
            )
        size = group[0] * group[1] * group[2]
        if size > self._limit:
            raise LimitError(
                f"{self.name}: Threadgroup size exceeds {self._limit} limit: group_size"
                f" {group_size!r} is {size} threads"
            )
        if size == 0:
            raise ValueError(f"{self.name}: group_size {group_size!r} has no threads")
        return grid, group

    def _bind_error_buffer(self, frame: Frame, count: int, index: int) -> ErrorBuffer:
        if not 0 <= index < BUFFER_LIMIT:
            self._binder.fail(f"error_buf_idx is {index}; buffers are 0 to {BUFFER_LIMIT - 1}")
        errors = ErrorBuffer()
        frame.addresses[index] = ctypes.addressof(errors)
        self._binder.check_bound(count, also=index)
        return errors


def _macro(value: object) -> str:
    """A macro's text: True and False read as they do in C."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _constant(kernel: str, name: str, kind: str, value: object) -> Scalar:
    """A function constant's value, checked against its declared type."""
    wanted = _python_type(kind)
    if isinstance(value, wanted) or (wanted is float and isinstance(value, int)):
        return wanted(value)
    raise TypeError(f"{kernel}: function constant '{name}' is a {kind}, but its value is {value!r}")


@functools.cache
def _python_type(kind: str) -> type[bool] | type[int] | type[float]:
    if kind == "bool":
        return bool
    return float if kind in ("float", "half", "bfloat") else int
