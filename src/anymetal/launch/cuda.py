"""Calls on `cuda` tensors: arguments become the kernel's block, and the launch is queued.

Nothing waits: the kernel runs on torch's current stream, behind what is queued there. Numbers,
structs and other small values travel in the block itself. Lists and larger structs are copied to
the device, and found there by their bytes at the next call (constants.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anymetal.checker.context import ActiveCheck
from anymetal.engines import choose
from anymetal.engines.compiler import AnyCompiler
from anymetal.engines.contract import PLAIN, Sizes
from anymetal.engines.cuda import driver
from anymetal.engines.cuda.executable import CudaExecutable, ReadyLaunch
from anymetal.engines.cuda.unaligned import least_alignment
from anymetal.errors import EngineError, LimitError
from anymetal.launch import constants, recorded
from anymetal.launch.bind import BUFFER_LIMIT, Binder, Casts, Frame
from anymetal.launch.call import Bound
from anymetal.launch.error_buffer import ErrorBuffer, check_soon
from anymetal.launch.shape import Extent
from anymetal.launch.structs import Fixed
from anymetal.nouns import ConstantValue

_NOT_IN_METAL = frozenset((torch.float64, torch.complex128))
_DENSE = torch.strided
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_LARGEST = 3.4e38  # beyond it a float becomes infinite: the slow way knows how
_INTEGER = struct.Struct("<q")
_FLOAT = struct.Struct("<f4x")
_KEPT_SHAPES = 4096
_NOTHING: Any = object()  # is no argument of any call

Quick = Callable[[tuple[Any, ...], "Extent | None", "Extent | None"], bool]


class _Block:
    """Memory for the arguments of one call at a time."""

    def __init__(self, executable: CudaExecutable) -> None:
        block = executable.block
        self.memory = ctypes.create_string_buffer(block.size)
        self.address = ctypes.addressof(self.memory)
        executable.forget(self.address)
        at = self.address + block.addresses_at
        self.addresses = (ctypes.c_uint64 * max(block.buffers, 1)).from_address(at)
        self.launches: dict[tuple[Any, Any, int, bool], ReadyLaunch] = {}
        self.forget()

    def forget(self) -> None:
        """Nothing that the short way has remembered holds any more: all is written again."""
        # Values of the last call that cannot change, and that stand in their places.
        self.values: list[Any] = [_NOTHING] * len(self.addresses)
        # Whether no constant that fits the block was a tensor in the last long call: then none is.
        self.by_value = True
        # The shape of the last call as it was given, its stream, and what queues it.
        self.threads: Any = _NOTHING
        self.group_size: Any = _NOTHING
        self.stream = 0
        self.put: Any = None
        self.function: Any = None

    def remember(self, threads: Any, group_size: Any, stream: int, ready: ReadyLaunch) -> None:
        """The shape that stands in the block, and what queues a launch of it."""
        self.threads, self.group_size, self.stream = threads, group_size, stream
        self.put, self.function = ready.put, ready.function


class _CudaBinder(Binder):
    """Takes tensors of `cuda` devices; what the host gives is turned into bytes as for the CPU."""

    def _check_tensor(self, frame: Frame, index: int, tensor: torch.Tensor) -> None:
        if not tensor.is_cuda and (tensor.dim() > 0 or not tensor.is_cpu):
            self.fail(
                f"{self.place(index)} is on device '{tensor.device}', and another tensor of the"
                " call on 'cuda'; pass all tensors on the same device"
            )
        if tensor.layout is not torch.strided:
            self.fail(
                f"{self.place(index)} has layout {tensor.layout}, but a kernel sees a dense"
                " buffer. Pass it with .to_dense()"
            )

    def data(
        self, frame: Frame, index: int, argument: Any, casts: Casts, keep: list[Any]
    ) -> tuple[int, int]:
        """Address and size of the bytes that the host gives for an argument."""
        before = len(keep)
        address = self._unusual(frame, index, argument, casts, keep)
        if isinstance(keep[-1] if len(keep) > before else None, ctypes.Array):
            return address, ctypes.sizeof(keep[-1])
        buffer = self.buffers.get(index)
        size = max(buffer.element_size if buffer else 0, 8)
        return address, min(size, 8) if isinstance(argument, torch.Tensor) else size


class CudaKernel(Bound[CudaExecutable, _CudaBinder]):
    """A kernel for the devices of one compute capability."""

    def __init__(self, executable: CudaExecutable) -> None:
        super().__init__(executable, _CudaBinder)
        block = executable.block
        self._buffers = block.buffers
        self._places = {
            index: block.values_at + block.values.index(index) * block.value_bytes
            for index in executable.small_values
        }
        self._constants = frozenset(i for i, a in self.binder.buffers.items() if a.is_const)
        large = [self.binder.buffers[i] for i in self._constants if i not in self._places]
        self._places_constants = bool(large)
        self._has_large_structs = any(one.fields or not one.is_pointer for one in large)
        # Bits that no address has where vectors are aligned, and those that none may have.
        self._unaligned = [0] * self._buffers
        self._forbidden = [0] * self._buffers
        for index, buffer in self.binder.buffers.items():
            self._unaligned[index] = executable.aligned[index] - 1
            self._forbidden[index] = least_alignment(buffer) - 1
        self._blocks: list[_Block] = []
        # The shapes of calls with whole numbers, which are most; and from how many arguments on a
        # call needs no further look at them.
        self._shapes: dict[tuple[Any, Any], tuple[Sizes, Sizes, None]] = {}
        self._enough = BUFFER_LIMIT + 1 if self.binder.threadgroup else self.binder.required
        self.is_quick = torch.cuda.device_count() == 1 and not executable.uses_log

    def quickly(
        self, args: tuple[Any, ...], threads: Extent | None, group_size: Extent | None
    ) -> bool:
        """A launch of tensors, numbers and structs on the machine's one device (`is_quick`) in few
        steps: what takes time in a small launch is Python. False, and nothing has happened, where
        there is more to look at: `call` does it, and knows what is wrong."""
        if not self._enough <= len(args) <= self._buffers:
            return False
        blocks = self._blocks
        try:
            block = blocks.pop()
        except IndexError:
            block = _Block(self.executable)
        try:
            addresses, values, places, index = block.addresses, block.values, self._places, 0
            unaligned = self._unaligned
            for argument in args:
                if argument is not values[index]:
                    kind = type(argument)
                    if kind is _Tensor or kind is _Parameter:
                        if (
                            not argument.is_cuda
                            or argument.dtype in _NOT_IN_METAL
                            or (index in places and block.by_value)
                        ):
                            return False
                        try:
                            address = argument.data_ptr()
                        except RuntimeError:  # other layouts than the dense one have no storage
                            return False
                        if address & unaligned[index]:
                            return False
                        addresses[index] = address
                        values[index] = _NOTHING
                    elif not self._put(block, index, argument):
                        return False
                index += 1  # noqa: SIM113  (`enumerate` takes 35 ns more, on an EPYC)
            stream = driver.current(0)
            if (
                threads is not block.threads
                or group_size is not block.group_size
                or stream != block.stream
            ) and not self._shape_block(block, threads, group_size, stream):
                return False
            put = block.put
            status = put()
            if status:
                block.function.again(status, put)
            return True
        finally:
            blocks.append(block)

    def _put(self, block: _Block, index: int, argument: Any) -> bool:
        """Writes a number or a struct to its place. What cannot change is remembered, and need not
        be written again."""
        place, kind = self._places.get(index), type(argument)
        if place is None:
            return self._put_large(block, index, argument)
        kept = argument
        block.values[index] = _NOTHING
        if kind is int:
            if not -(2**63) <= argument < 2**63:
                return False
            _INTEGER.pack_into(block.memory, place, argument)
        elif kind is float:
            if not abs(argument) < _LARGEST:
                return False
            _FLOAT.pack_into(block.memory, place, argument)
        else:
            layout = self.binder.layouts.get(index)  # the long way makes it, at a first call
            if layout is None or not layout.write(block.memory, place, argument):
                return False
            kept = argument if kind is Fixed else _NOTHING
        block.addresses[index] = 0
        block.values[index] = kept
        return True

    def _put_large(self, block: _Block, index: int, argument: Any) -> bool:
        """A struct that is too large for the block, where the device has its bytes already."""
        layout = self.binder.layouts.get(index)
        if layout is None or index not in self._constants:
            return False
        data = layout.usual(argument)
        known = None if data is None else constants.find(0, driver.current(0), data)
        if known is None:
            return False
        block.values[index] = _NOTHING
        block.addresses[index] = known
        return True

    def _shape_block(
        self, block: _Block, threads: Extent | None, group_size: Extent | None, stream: int
    ) -> bool:
        """Another shape or stream than the last call had with this block. False where the shape is
        unusual, or has no threads."""
        if not _is_usual(threads, group_size):
            return False
        ready = block.launches.get((threads, group_size, stream, block.by_value))
        if ready is None:
            grid, group, _ = self.settled(self._buffers, -1, threads, group_size, None, None)
            if 0 in grid:
                return False
            ready = self.executable.prepared(
                grid, group, block.address, stream, 0, {}, by_value=block.by_value
            )
            if len(block.launches) >= _KEPT_SHAPES:
                block.launches.clear()
            block.launches[threads, group_size, stream, block.by_value] = ready
        if self.executable.written.get(block.address) is not ready.words:
            self.executable.write_shape(block.address, ready)
        block.remember(threads, group_size, stream, ready)
        return True

    def short_way(self) -> Quick | None:
        """`quickly`, where the kernel has it."""
        if not self.is_quick:
            return None
        return self._quickly_alone if self._has_large_structs else self.quickly

    def _quickly_alone(
        self, args: tuple[Any, ...], threads: Extent | None, group_size: Extent | None
    ) -> bool:
        with constants.LOCK:
            return self.quickly(args, threads, group_size)

    def call(self, device: int, args: tuple[Any, ...], *more: Any) -> None:
        """Binds, checks and queues a launch; raises what it reports."""
        with constants.LOCK if self._places_constants else contextlib.nullcontext():
            errors = self._launch(device, args, *more)
        if errors is not None and recorded.is_recording():
            recorded.keep_errors(self.name, errors)
        elif errors is not None:
            mark = _unused_marks[device].pop() if _unused_marks[device] else driver.Mark()
            mark.set(driver.current(device))
            check_soon(functools.partial(_raise_reported, device, mark, errors, self.name))

    def _launch(
        self,
        device: int,
        args: tuple[Any, ...],
        threads: Extent | None,
        group_size: Extent | None,
        arg_casts: Casts,
        error_buf_idx: int | None,
        threadgroup_memory: Mapping[int, int] | None,
    ) -> torch.Tensor | None:
        """Returns the buffer for errors."""
        try:
            block = self._blocks.pop()
        except IndexError:  # other threads have them all
            block = _Block(self.executable)
        try:
            keep: list[Any] = []
            elements = self._bind(block, args, arg_casts, keep)
            errors = None
            if error_buf_idx is not None:
                errors = self._bind_error_buffer(block, error_buf_idx)
            shape = None
            if (
                type(threads) is type(group_size) is int
                and error_buf_idx is None
                and threadgroup_memory is None
                and len(args) >= self._enough
            ):
                shape = self._shapes.get((threads, group_size))
            grid, group, memory = shape or self.settled(
                len(args), elements, threads, group_size, error_buf_idx, threadgroup_memory
            )
            block.by_value = self.executable.has_values(block.address)
            if grid[0] and grid[1] and grid[2]:
                self.executable.launch(block.address, grid, group, device, memory)
        finally:
            # The driver has copied the block by now.
            self._blocks.append(block)
        return errors

    def shape(self, threads: Extent | None, group_size: Extent | None) -> tuple[Sizes, Sizes]:
        if not type(threads) is type(group_size) is int:
            return super().shape(threads, group_size)
        if len(self._shapes) >= _KEPT_SHAPES:
            self._shapes.clear()
        grid, group = super().shape(threads, group_size)
        self._shapes[threads, group_size] = grid, group, None
        return grid, group

    def _bind(self, block: _Block, args: tuple[Any, ...], casts: Casts, keep: list[Any]) -> int:
        """Fills the block; returns the first tensor's size, -1 without one."""
        block.forget()
        if len(args) > BUFFER_LIMIT:
            raise LimitError(
                f"{self.name}: {len(args)} arguments, but a kernel takes at most {BUFFER_LIMIT}"
                " buffers"
            )
        addresses, places, memory = block.addresses, self._places, block.memory
        count, elements = self._buffers, -1
        for index, argument in enumerate(args):
            if isinstance(argument, torch.Tensor):
                if elements < 0:
                    elements = argument.numel()
                if index >= count:
                    continue  # the kernel has no such parameter
                if argument.is_cuda:
                    if argument.dtype in _NOT_IN_METAL or argument.layout != _DENSE:
                        self._refuse(index, argument)
                    addresses[index] = address = argument.data_ptr()
                    if address & self._forbidden[index]:
                        self._refuse_address(index, argument)
                    continue
            elif index >= count:
                continue
            elif casts is None and index in places:
                kind = type(argument)
                if kind is int and -(2**63) <= argument < 2**63:
                    addresses[index] = 0
                    _INTEGER.pack_into(memory, places[index], argument)
                    continue
                if kind is float and abs(argument) < _LARGEST:
                    addresses[index] = 0
                    _FLOAT.pack_into(memory, places[index], argument)
                    continue
            self._bind_data(block, index, argument, casts, keep)
        return elements

    def _refuse(self, index: int, tensor: torch.Tensor) -> None:
        """Says what is wrong with a tensor, as for one of the CPU's."""
        self.binder._unusual_tensor(self.binder.take_frame(), index, tensor, [])

    def _refuse_address(self, index: int, tensor: torch.Tensor) -> None:
        buffer = self.binder.buffers[index]
        self.binder.fail(
            f"{self.binder.place(index)} is a tensor of {tensor.dtype} with storage_offset"
            f" {tensor.storage_offset()}, whose first element is not where a {buffer.type} can be"
            f" read: at a multiple of {self._forbidden[index] + 1} bytes. Pass it with .clone()"
        )

    def _bind_data(
        self, block: _Block, index: int, argument: Any, casts: Casts, keep: list[Any]
    ) -> None:
        """What the host gives: into the block, or to a place on the device."""
        frame = self.binder.take_frame()
        try:
            address, size = self.binder.data(frame, index, argument, casts, keep)
            if index in self._places:
                block.addresses[index] = 0
                place = block.address + self._places[index]
                ctypes.memmove(place, address, min(size, self.executable.block.value_bytes))
            else:
                data = ctypes.string_at(address, size)
                block.addresses[index] = self._on_device(index, data, keep)
        finally:
            self.binder.give_back(frame)

    def _on_device(self, index: int, data: bytes, keep: list[Any]) -> int:
        device = torch.cuda.current_device()
        stream, recording = driver.current(device), recorded.is_recording()
        if index in self._constants and (recording or len(data) <= constants.LARGEST):
            return constants.place(device, stream, data)
        if recording:
            self.binder.fail(
                f"{self.binder.place(index)} is written by the kernel: what a CUDA graph records"
                " takes a tensor there"
            )
        keep.append(_copied(data, stream, device))
        return int(keep[-1].data_ptr())

    def _bind_error_buffer(self, block: _Block, index: int) -> torch.Tensor:
        self.check_error_index(index)
        if recorded.is_recording():
            with driver.outside_recordings():
                errors = _new_errors()
        else:
            recorded.raise_reported()
            errors = _new_errors()
        if index < self._buffers:
            block.addresses[index] = errors.data_ptr()
        return errors


def _is_usual(threads: Any, group_size: Any) -> bool:
    """Whether a shape is whole numbers, more than 0, or tuples of them. Other numbers can be equal
    to them and are refused, so that their types are looked at before a known shape is."""
    if type(threads) is type(group_size) is int:
        return bool(threads > 0)
    if not type(threads) is type(group_size) is tuple:
        return False
    for size in threads + group_size:  # noqa: SIM110  (a generator takes twice the time)
        if type(size) is not int:
            return False
    return True


_unused_errors: list[torch.Tensor] = []
_unused_marks: defaultdict[int, list[driver.Mark]] = defaultdict(list)  # by device


def _new_errors() -> torch.Tensor:
    """An empty buffer for errors in the host's memory, which kernels write to as to their own: no
    copy is needed to read it. Such memory takes long to come by, and is kept."""
    if _unused_errors:
        return _unused_errors.pop()
    return torch.zeros(ctypes.sizeof(ErrorBuffer), dtype=torch.uint8, pin_memory=True)


def _raise_reported(device: int, mark: driver.Mark, errors: torch.Tensor, kernel: str) -> None:
    """What a kernel wrote, once it has ended; the buffer is empty afterwards. What is queued behind
    the kernel is not waited for."""
    mark.wait(kernel)
    _unused_marks[device].append(mark)
    found = ErrorBuffer.from_address(errors.data_ptr())
    if found.count:
        found = ErrorBuffer.from_buffer_copy(found)
        errors.zero_()
    _unused_errors.append(errors)
    found.raise_reported(kernel)


def _copied(data: bytes, stream: int, device: int) -> torch.Tensor:
    made = torch.empty(len(data), dtype=torch.uint8, device="cuda")
    driver.send(made.data_ptr(), data, stream, device)
    return made


class CudaKernels:
    """One kernel of a library on every `cuda` device."""

    def __init__(
        self, name: str, constants: Mapping[str, ConstantValue], compiler: AnyCompiler
    ) -> None:
        self._name = name
        self._constants = constants
        self._compiler = compiler
        self._by_device: dict[int, CudaKernel] = {}

    def call(
        self, device: int, check: ActiveCheck | None, args: tuple[Any, ...], *more: Any
    ) -> None:
        """Runs a call whose tensors are on a device."""
        if check is not None:
            raise EngineError(
                f"{self._name}: the checker watches kernels on the CPU; pass tensors with .cpu()"
            )
        kernel = self._by_device.get(device)
        if kernel is None:
            capability = torch.cuda.get_device_capability(device)
            engine = self._compiler.cuda_engine or choose.for_cuda(capability)
            kernel = self._by_device[device] = self.compiled(engine)
        if device == torch._C._cuda_getDevice():
            kernel.call(device, args, *more)
        else:
            with torch.cuda.device(device):
                kernel.call(device, args, *more)

    def quickly(self) -> Quick | None:
        """The short way of calls that follow one, where the kernel has one."""
        kernel = self._by_device.get(0)
        return kernel.short_way() if kernel is not None else None

    def compiled(self, engine: str) -> CudaKernel:
        executable = self._compiler.compile(self._name, self._constants, PLAIN, engine)
        assert isinstance(executable, CudaExecutable)
        return CudaKernel(executable)
