"""A kernel call under the checker: its arguments as views of memory, and the checked run of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from anymetal.checker.checked import run_checked
from anymetal.checker.context import ActiveCheck
from anymetal.checker.element_types import scalar_of_number
from anymetal.checker.inline_source import InlineSource
from anymetal.checker.launch_state import Dispatch
from anymetal.checker.program import Checked, CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Sizes
from anymetal.launch.bind import Binder, Frame
from anymetal.launch.call import BoundKernel
from anymetal.launch.error_buffer import ErrorBuffer
from anymetal.launch.structs import as_mapping, integers, is_named
from anymetal.nouns import Argument, ConstantValue


def compile_checked(
    compiler: Compiler, name: str, constants: Mapping[str, ConstantValue], numbers: bool, level: int
) -> CheckedKernel:
    """The kernel with the checker's instrumentation."""
    checked = compiler.compile(name, constants, Checked(numbers, level))
    call = compiler.handed_over
    return CheckedKernel(checked, InlineSource(compiler.source.text, call) if call else None)


class CheckedKernel(BoundKernel):
    """A kernel whose calls are checked; what is found goes to the check's report."""

    def __init__(self, checked: CheckedProgram, inline: InlineSource | None) -> None:
        super().__init__(checked.executable)
        self._checked = checked
        self._inline = inline

    def run(
        self,
        frame: Frame,
        args: tuple[Any, ...],
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int] | None,
        check: ActiveCheck | None,
    ) -> None:
        assert check is not None
        views = list(_views(self.binder, frame, args))
        self.run_on(frame.address, grid, group, memory or {}, views, check)

    def run_on(
        self,
        table: int,
        grid: Sizes,
        group: Sizes,
        memory: dict[int, int],
        views: Sequence[BufferView],
        check: ActiveCheck,
    ) -> None:
        """A launch on memory that is described already; its addresses are in a table."""
        dispatch = Dispatch(table, grid, group, memory, torch.get_num_threads())
        run_checked(self._checked, dispatch, views, check, self._inline)


def _views(binder: Binder, frame: Frame, args: tuple[Any, ...]) -> Iterator[BufferView]:
    if frame.errors in binder.buffers:
        yield _view_of_errors(binder.buffers[frame.errors], frame)
    for index, argument in enumerate(args):
        if index == frame.errors:
            continue
        view = _view(binder, frame, index, argument)
        yield view
        if isinstance(argument, list | tuple) and isinstance(argument[0], torch.Tensor):
            for number, tensor in enumerate(argument):
                name = f"{view.name}[{number}]"
                yield _tensor_view(None, name, tensor.data_ptr(), tensor, view.declared)


def _view_of_errors(declared: Argument, frame: Frame) -> BufferView:
    assert declared.index is not None
    size, address = ctypes.sizeof(ErrorBuffer), int(frame.addresses[declared.index])
    return BufferView(declared.index, declared.name, address, size, size, size, declared=declared)


def _view(binder: Binder, frame: Frame, index: int, argument: Any) -> BufferView:
    declared = binder.buffers.get(index)
    name = declared.name if declared else f"buffer {index}"
    address = int(frame.addresses[index])
    if isinstance(argument, torch.Tensor):
        return _tensor_view(index, name, address, argument, declared)
    least = declared.element_size if declared else 0
    if is_named(argument):
        words = tuple(integers(as_mapping(argument)))
        return BufferView(index, name, address, least, least, 1, words=words, declared=declared)
    cast = binder.cast_of(index, frame.casts)
    items = argument if isinstance(argument, list | tuple) else [argument]
    each = 8 if isinstance(items[0], torch.Tensor) else scalar_of_number(items[0], cast).size
    size = max(each * len(items), least if items is argument else 0)
    return BufferView(
        index, name, address, size, size, each, value=argument, cast=cast, declared=declared
    )


def _tensor_view(
    index: int | None, name: str, address: int, tensor: torch.Tensor, declared: Argument | None
) -> BufferView:
    element = tensor.element_size()
    if address != tensor.data_ptr() and tensor.dim() == 0:  # passed by value
        return BufferView(
            index, name, address, element, element, element, value=tensor, declared=declared
        )
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    extent = reach * element if tensor.numel() else 0
    storage = tensor.untyped_storage()
    size = storage.data_ptr() + storage.nbytes() - address
    return BufferView(
        index, name, address, extent, max(size, extent), element, tensor, declared=declared
    )
