"""A kernel call under the checker: its arguments as views of memory, and the checked run of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from anymetal.checker.checked import Dispatch, run_checked
from anymetal.checker.context import ActiveCheck
from anymetal.checker.inline_source import InlineSource
from anymetal.checker.program import Checked, CheckedProgram
from anymetal.checker.views import BufferView
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Sizes
from anymetal.launch.bind import Binder, Frame
from anymetal.launch.call import BoundKernel
from anymetal.launch.structs import is_named
from anymetal.nouns import Scalar


def compile_checked(
    compiler: Compiler, name: str, constants: Mapping[str, Scalar], numbers: bool, level: int
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
        dispatch = Dispatch(frame.address, grid, group, memory or {})
        views = list(_views(self.binder, frame, args))
        run_checked(self._checked, dispatch, views, check, self._inline)


def _views(binder: Binder, frame: Frame, args: tuple[Any, ...]) -> Iterator[BufferView]:
    for index, argument in enumerate(args):
        parameter = binder.buffers.get(index)
        name = parameter.name if parameter else f"buffer {index}"
        address = int(frame.addresses[index])
        if isinstance(argument, torch.Tensor):
            yield _tensor_view(index, name, address, argument)
            continue
        declared = parameter.element_size if parameter else 0
        if is_named(argument):
            yield BufferView(index, name, address, declared, declared, 1)
            continue
        size = max(_bytes_of(argument), declared if isinstance(argument, list | tuple) else 0)
        yield BufferView(index, name, address, size, size, 1)
        if isinstance(argument, list | tuple) and isinstance(argument[0], torch.Tensor):
            for number, tensor in enumerate(argument):
                yield _tensor_view(None, f"{name}[{number}]", tensor.data_ptr(), tensor)


def _tensor_view(index: int | None, name: str, address: int, tensor: torch.Tensor) -> BufferView:
    element = tensor.element_size()
    if address != tensor.data_ptr():  # passed by value
        return BufferView(index, name, address, element, element, element, None)
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    extent = reach * element if tensor.numel() else 0
    storage = tensor.untyped_storage()
    size = storage.data_ptr() + storage.nbytes() - address
    return BufferView(index, name, address, extent, max(size, extent), element, tensor)


def _bytes_of(argument: Any) -> int:
    """Bytes that torch hands over for a number or a list of numbers."""
    if isinstance(argument, list | tuple):
        return len(argument) * (4 if isinstance(argument[0], float) else 8)
    return 4 if isinstance(argument, float) else 8
