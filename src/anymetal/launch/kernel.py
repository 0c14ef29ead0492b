"""One kernel of a library: plain, checked or counted, each compiled when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anymetal import settings
from anymetal.checker.context import ActiveCheck, active, report_refused
from anymetal.checker.context import entered as checks
from anymetal.checker.views import BufferView
from anymetal.engines.compiler import AnyCompiler, Compiler
from anymetal.engines.contract import PLAIN, Sizes
from anymetal.engines.counted import COUNTED, CountedExecutable, Counts
from anymetal.engines.profiled import PROFILED, Observation, ProfiledExecutable
from anymetal.errors import BundleError, LimitError, MissingArgument
from anymetal.launch.bind import Casts
from anymetal.launch.call import BoundKernel, PlainKernel, cuda_device
from anymetal.launch.handing import entered as runners
from anymetal.launch.handing import runner
from anymetal.launch.profiled_call import LaunchShape, ProfiledKernel
from anymetal.launch.shape import Extent
from anymetal.nouns import Argument, ConstantValue

if TYPE_CHECKING:
    from anymetal.launch.checked_call import CheckedKernel
    from anymetal.launch.cuda import CudaKernel, CudaKernels, Quick


# A buffer by its index (None where it is reached by address alone), address, and bytes: those of
# the tensor, and those up to the end of its memory.
Addressed = tuple["int | None", int, int, int]
Lengths = dict[int, int]


class Kernel:
    """One kernel, ready to be called: positional argument i is `[[buffer(i)]]`."""

    def __init__(
        self, name: str, constants: Mapping[str, ConstantValue], compiler: AnyCompiler
    ) -> None:
        self.name = name
        self.constants = dict(constants)
        self._compiler = compiler
        self._checked: dict[tuple[bool, int], CheckedKernel] = {}
        self._quickly: Quick | None = None  # for `cuda` tensors, after a call of the long way
        # Compiled now, so that errors are met here: what a call would run.
        check = active()
        self._known: BoundKernel | CudaKernel
        if compiler.only_cuda:
            self._known = self._cuda.compiled(compiler.cuda_engine)
        else:
            self._known = self._plain if check is None else self._checked_for(check)

    @cached_property
    def _plain(self) -> PlainKernel:
        executable = self._compiler.compile(self.name, self.constants, PLAIN)
        return PlainKernel(executable, self.constants, self._compiler)

    @cached_property
    def _cuda(self) -> CudaKernels:
        from anymetal.launch.cuda import CudaKernels  # noqa: PLC0415  (few calls need it)

        return CudaKernels(self.name, self.constants, self._compiler)

    @cached_property
    def _counted(self) -> CountedExecutable:
        return self._compiler.compile(self.name, self.constants, COUNTED)

    @cached_property
    def _profiled(self) -> ProfiledExecutable:
        return self._compiler.compile(self.name, self.constants, PROFILED)

    def _checked_for(self, check: ActiveCheck) -> CheckedKernel:
        from anymetal.launch.checked_call import compile_checked  # noqa: PLC0415

        if not isinstance(self._compiler, Compiler):
            raise BundleError(f"kernel '{self.name}' comes from a bundle, and cannot be checked")
        level = settings.CHECK_LEVEL.value() if check.level is None else check.level
        key = (check.nan, level)
        if key not in self._checked:
            self._checked[key] = compile_checked(self._compiler, self.name, self.constants, *key)
        return self._checked[key]

    @property
    def source_text(self) -> str:
        """The Metal source it comes from, or its disassembly; empty for kernels of a bundle."""
        return self._compiler.text_of(self.name)

    @property
    def source_name(self) -> str:
        """What messages call its source."""
        return self._compiler.source.name

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Every parameter with its type, address space and place."""
        return self._known.executable.arguments

    @property
    def max_threads_per_threadgroup(self) -> int:
        """How many threads a threadgroup of this kernel can have."""
        return self._known.limit

    @property
    def thread_execution_width(self) -> int:
        """How many threads a simdgroup has."""
        return self._known.executable.thread_execution_width

    @property
    def static_thread_group_memory_length(self) -> int:
        """Bytes of threadgroup memory that the kernel itself declares."""
        return self._known.executable.static_threadgroup_memory_length

    @property
    def engine(self) -> str:
        """The engine that runs this kernel."""
        return str(self._known.executable.metadata["engine"])

    @property
    def engine_reason(self) -> str:
        """Why it is that engine; empty where it is the first choice."""
        return self._known.reason

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
        next synchronisation, as on a Mac. With `cuda` tensors it is queued on the current stream.
        """
        quickly = self._quickly
        if (
            quickly is not None
            and arg_casts is None
            and error_buf_idx is None
            and threadgroup_memory is None
            and not runners
            and not checks
            and quickly(args, threads, group_size)
        ):
            return
        other = runner()
        if other is not None and cuda_device(args) < 0:
            given = {
                "threads": threads,
                "group_size": group_size,
                "arg_casts": arg_casts,
                "error_buf_idx": error_buf_idx,
                "threadgroup_memory": threadgroup_memory,
            }
            other.run(self, args, {n: value for n, value in given.items() if value is not None})
            return
        check = active()
        if check is not None:
            check = check.called_here()
        try:
            device = cuda_device(args)
            if device >= 0:
                self._cuda.call(
                    *(device, check, args, threads, group_size),
                    *(arg_casts, error_buf_idx, threadgroup_memory),
                )
                self._quickly = self._cuda.quickly()
                return
            kernel: BoundKernel = self._plain if check is None else self._checked_for(check)
            kernel.call(
                check, args, threads, group_size, arg_casts, error_buf_idx, threadgroup_memory
            )
        except (LimitError, MissingArgument) as error:
            if check is not None:
                report_refused(check, self.name, error)
            raise

    def at_addresses(
        self, table: int, buffers: Sequence[Addressed], grid: Sizes, group: Sizes, memory: Lengths
    ) -> None:
        """Run the kernel on memory that somebody else has bound: a Metal encoder's.

        `table` is the address of 31 addresses; `buffers` says what lies there, for the checker.
        """
        check = active()
        if check is None:
            self._plain.run_at(table, grid, group, memory)
            return
        checked = self._checked_for(check)
        views = [
            BufferView(
                *(index, self._buffer_name(index), address, extent, size),
                self._element_size(index),
                declared=checked.binder.buffers.get(index) if index is not None else None,
            )
            for index, address, extent, size in buffers
        ]
        checked.run_on(table, grid, group, memory, views, check.called_here())

    @property
    def used_buffers(self) -> frozenset[int]:
        """The indices of the buffers that its code touches."""
        return self._known.executable.used_buffers

    def _buffer_name(self, index: int | None) -> str:
        declared = self._known.binder.buffers.get(-1 if index is None else index)
        return declared.name if declared else f"buffer {index}"

    def _element_size(self, index: int | None) -> int:
        declared = self._known.binder.buffers.get(-1 if index is None else index)
        return declared.element_size if declared else 1

    def in_turn(self, launches: Sequence[tuple[tuple[Any, ...], Extent]], group_size: int) -> None:
        """Launches with these arguments and threads, one after the other.

        On processors all are bound before the first runs: a launch over much memory leaves nothing
        of what binding needs in the caches, and every one would begin with waiting for it.
        """
        watched = active() is not None or runner() is not None
        if watched or any(cuda_device(args) >= 0 for args, _ in launches):
            for args, threads in launches:
                self(*args, threads=threads, group_size=group_size)
            return
        ready = [self._plain.ready(None, args, threads, group_size) for args, threads in launches]
        for launch in ready:
            self._plain.start(launch)

    def count(self, *args: Any, **keywords: Any) -> Counts:
        """Run the kernel like a call, on one processor, and count what its threads do."""
        counted = self._counted
        kernel = PlainKernel(counted.executable, self.constants, self._compiler, workers=1)
        kernel.complete(kernel.ready(None, args, **keywords))
        return counted.take()

    def observe(self, *args: Any, **keywords: Any) -> tuple[Observation, LaunchShape | None]:
        """Run the kernel like a call, on one processor; what its simdgroups did, line by line.

        The shape is None where the grid has no threads. Raises EngineError or Unsuitable, before
        anything runs, for a kernel or a shape that the vector engine cannot run.
        """
        profiled = self._profiled
        kernel = ProfiledKernel(profiled)
        kernel.complete(kernel.ready(None, args, **keywords))
        return profiled.take(), kernel.shape_run
