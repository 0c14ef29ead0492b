"""Python arguments go in, the addresses a kernel reads come out. Every check of a call is here.

A launch of a small kernel takes some ten microseconds, so the common arguments (a dense CPU tensor,
a float, an int) are told apart by their exact type in one loop; all others take the slow path.
"""

from __future__ import annotations

import ctypes
import mmap
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import torch

from anymetal.errors import LimitError, MissingArgument
from anymetal.launch.structs import Layout, is_named
from anymetal.launch.virtual import is_enabled
from anymetal.nouns import Argument

BUFFER_LIMIT = 31
THREADGROUP_MEMORY_LIMIT = 32 * 1024

Casts: TypeAlias = "str | Mapping[int, str] | None"

_SLOT_BYTES = 16
_INT64 = range(-(1 << 63), 1 << 63)
_INTEGER_CASTS = {"int32": 0xFFFFFFFF, "int16": 0xFFFF, "int8": 0xFF, "uint8": 0xFF}
_CASTS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
}
_ON_A_MAC = (
    ", or compile the source with torch.mps.compile_shader, which runs it on the GPU;"
    " anymetal.with_constants writes function constants into the source"
)
# Metal has no 64-bit floats, so a tensor of them cannot exist on an Apple GPU.
_NOT_IN_METAL = {torch.float64: torch.float32, torch.complex128: torch.complex64}
# Where a tensor without elements points to: its storage has no address, a buffer always has one. A
# kernel that writes there all the same writes to memory of nobody, and not into the program's heap.
_EMPTY = mmap.mmap(-1, 16 << 20)
_EMPTY_ADDRESS = ctypes.addressof(ctypes.c_char.from_buffer(_EMPTY)) + len(_EMPTY) // 2

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_strided = torch.strided


class Frame:
    """Memory for the arguments of one call at a time: 31 addresses and room for each number."""

    def __init__(self, stride: int) -> None:
        self.addresses = (ctypes.c_uint64 * BUFFER_LIMIT)()
        self.address = ctypes.addressof(self.addresses)
        self.stride = stride // 8
        self.integers = (ctypes.c_int64 * (self.stride * BUFFER_LIMIT))()
        start = ctypes.addressof(self.integers)
        self.floats = (ctypes.c_float * (2 * self.stride * BUFFER_LIMIT)).from_address(start)
        self.numbers = tuple(start + i * stride for i in range(BUFFER_LIMIT))
        # Where the tensors of the call are: in CPU memory, on the virtual mps device, or in both.
        self.on_host = self.on_device = False
        self.casts: Casts = None  # of the call
        self.errors: int | None = None  # the buffer that the call's kernel reports errors to


class Binder:
    """The arguments of one kernel: their names and types, and how a call fills them in."""

    def __init__(self, kernel: str, arguments: tuple[Argument, ...], used: frozenset[int]) -> None:
        self.kernel = kernel
        self.used = used
        self.required = max(used, default=-1) + 1
        self.buffers = {a.index: a for a in arguments if a.role == "buffer" and a.index is not None}
        self.threadgroup = {
            a.index: a for a in arguments if a.role == "threadgroup" and a.index is not None
        }
        largest = max((a.element_size for a in self.buffers.values()), default=0)
        self._stride = -(-max(largest, _SLOT_BYTES) // _SLOT_BYTES) * _SLOT_BYTES
        self._frames: list[Frame] = []
        self.layouts: dict[int, Layout] = {}

    def take_frame(self) -> Frame:
        """A frame nobody else uses now; threads that launch the same kernel get one each."""
        try:
            return self._frames.pop()
        except IndexError:
            return Frame(self._stride)

    def give_back(self, frame: Frame) -> None:
        self._frames.append(frame)

    def bind(self, frame: Frame, args: tuple[Any, ...], casts: Casts, keep: list[Any]) -> int:
        """Write the address of each argument; returns the first tensor's size, -1 without one.

        What must outlive the call and is not an argument itself is appended to `keep`.
        """
        if len(args) > BUFFER_LIMIT:
            raise LimitError(
                f"{self.kernel}: {len(args)} arguments, but a kernel takes at most {BUFFER_LIMIT}"
                " buffers"
            )
        addresses = frame.addresses
        frame.casts = casts
        frame.on_host = frame.on_device = False
        elements = -1
        for index, argument in enumerate(args):
            kind = type(argument)
            if kind is _Tensor or kind is _Parameter:
                if elements < 0:
                    elements = argument.numel()
                if (
                    argument.is_cpu
                    and argument.layout is _strided
                    and argument.dtype not in _NOT_IN_METAL
                    and argument.dim()
                ):
                    frame.on_host = True
                    addresses[index] = argument.data_ptr() or _EMPTY_ADDRESS
                elif argument.is_mps and is_enabled():
                    # The virtual device is host memory, and refuses other dtypes itself.
                    frame.on_device = True
                    addresses[index] = argument.data_ptr() or _EMPTY_ADDRESS
                else:
                    addresses[index] = self._unusual_tensor(frame, index, argument, keep)
            elif kind is float and casts is None:
                slot = index * frame.stride
                frame.integers[slot] = 0
                frame.floats[2 * slot] = argument
                addresses[index] = frame.numbers[index]
            elif kind is int and casts is None and argument in _INT64:
                frame.integers[index * frame.stride] = argument
                addresses[index] = frame.numbers[index]
            else:
                if elements < 0 and isinstance(argument, _Tensor):
                    elements = argument.numel()
                addresses[index] = self._unusual(frame, index, argument, casts, keep)
        if frame.on_device and frame.on_host:
            self.fail("Passed CPU tensor to MPS op; pass all tensors on the same device")
        return elements

    def check_bound(self, count: int, also: int | None = None) -> None:
        """Fail when a buffer the kernel uses got no argument: `count` leading ones and `also`."""
        missing = [i for i in sorted(self.used) if i >= count and i != also]
        if missing:
            names = ", ".join(self.place(i) for i in missing)
            raise MissingArgument(
                f"{self.kernel}: the kernel uses {names}, but only {count} arguments were passed"
            )

    def lengths(self, memory: Mapping[int, int] | None, static: int) -> dict[int, int]:
        """The length of each [[threadgroup(n)]] parameter, checked; `static` bytes are taken."""
        given = dict(memory or {})
        for index, argument in self.threadgroup.items():
            if index not in given:
                self.fail(
                    f"parameter '{argument.name}' [[threadgroup({index})]] needs its size:"
                    f" pass threadgroup_memory={{{index}: bytes}}"
                )
        for index, size in given.items():
            self._check_length(index, size)
        total = static + sum(given.values())
        if total > THREADGROUP_MEMORY_LIMIT:
            raise LimitError(
                f"{self.kernel}: {total} bytes of threadgroup memory ({static} declared in the"
                f" kernel) exceed the limit of {THREADGROUP_MEMORY_LIMIT}"
            )
        return given

    def place(self, index: int) -> str:
        """How messages name an argument."""
        argument = self.buffers.get(index)
        return f"argument '{argument.name}' (buffer {index})" if argument else f"buffer {index}"

    def fail(self, message: str) -> NoReturn:
        """Raise as torch does for a wrong argument."""
        raise RuntimeError(f"{self.kernel}: {message}")

    def _check_length(self, index: int, size: int) -> None:
        if index not in self.threadgroup:
            raise ValueError(
                f"{self.kernel}: threadgroup_memory names index {index}, but the kernel has no"
                f" [[threadgroup({index})]] parameter"
            )
        if type(size) is not int or size <= 0 or size % 16:
            raise ValueError(
                f"{self.kernel}: threadgroup_memory[{index}] is {size!r}; Metal takes a positive"
                " multiple of 16 bytes"
            )

    def _unusual(
        self, frame: Frame, index: int, argument: Any, casts: Casts, keep: list[Any]
    ) -> int:
        if isinstance(argument, _Tensor):
            return self._unusual_tensor(frame, index, argument, keep)
        if is_named(argument) and (layout := self._layout(index)) is not None:
            data = layout.pack(argument)
            ctypes.memmove(frame.numbers[index], data, len(data))
            return frame.numbers[index]
        if isinstance(argument, list | tuple):
            return self._list(frame, index, argument, self.cast_of(index, casts), keep)
        if isinstance(argument, int | float):
            return self._number(frame, index, argument, self.cast_of(index, casts))
        return self.fail(
            f"{self.place(index)}: Unsupported argument type {type(argument).__name__};"
            " pass a tensor, a number, a list of numbers or tensors, or by name the values of a"
            " struct (one without bases, unions and bit-fields)"
        )

    def _layout(self, index: int) -> Layout | None:
        """How a struct takes values by name; None where the buffer is no struct we know."""
        argument = self.buffers.get(index)
        if argument is None or not argument.fields:
            return None
        if index not in self.layouts:
            self.layouts[index] = Layout(self.kernel, argument)
        return self.layouts[index]

    def _unusual_tensor(
        self, frame: Frame, index: int, tensor: torch.Tensor, keep: list[Any]
    ) -> int:
        """A tensor that is no plain buffer: checked, and passed by value if it has 0 dimensions."""
        self._check_tensor(frame, index, tensor)
        if tensor.dim() == 0 and tensor.is_cpu and self._is_read_only(index):
            kept = tensor.detach().to(_NOT_IN_METAL.get(tensor.dtype, tensor.dtype), copy=True)
            keep.append(kept)
            return kept.data_ptr()
        if tensor.dtype in _NOT_IN_METAL:
            other = str(_NOT_IN_METAL[tensor.dtype]).removeprefix("torch.")
            raise TypeError(
                f"{self.kernel}: {self.place(index)} is {tensor.dtype}, which Metal does not have."
                f" Convert it with .to(torch.{other})"
            )
        return tensor.data_ptr() or _EMPTY_ADDRESS

    def _check_tensor(self, frame: Frame, index: int, tensor: torch.Tensor) -> None:
        if tensor.is_mps and is_enabled():
            frame.on_device = True
        elif tensor.is_cpu:
            frame.on_host = frame.on_host or tensor.dim() > 0
        else:
            there = _ON_A_MAC if tensor.is_mps else ""
            self.fail(
                f"{self.place(index)} is on device '{tensor.device}'; this engine runs on the CPU,"
                f" and all tensors of a call must be CPU tensors. Pass it with .cpu(){there}"
            )
        if tensor.is_nested:
            self.fail(
                f"{self.place(index)} is a nested tensor, but a kernel sees one buffer. Pass its"
                " parts, or torch.nested.to_padded_tensor of it"
            )
        if tensor.layout is not _strided:
            self.fail(
                f"{self.place(index)} has layout {tensor.layout}, but a kernel sees a dense"
                " buffer. Pass it with .to_dense()"
            )

    def _is_read_only(self, index: int) -> bool:
        """Whether a 0-dimensional tensor can be passed by value: nothing can be written back."""
        argument = self.buffers.get(index)
        return argument is None or argument.is_const

    def cast_of(self, index: int, casts: Casts) -> str | None:
        """The cast of a number or list, checked; None where there is none."""
        if casts is None:
            return None
        if isinstance(casts, str):
            name: str | None = casts
        elif isinstance(casts, Mapping):
            name = casts.get(index)
        else:
            self.fail(f"Unexpected caster arg type {type(casts).__name__}")
        if name is not None and name not in _CASTS:
            self.fail(
                f"{self.place(index)}: Unsupported cast instruction {name};"
                f" known are {', '.join(_CASTS)}"
            )
        return name

    def _number(self, frame: Frame, index: int, value: float, cast: str | None) -> int:
        """A number that needs a cast, or is of a subclass such as bool or numpy.float64."""
        slot = index * frame.stride
        if isinstance(value, int):
            self._check_int64(index, value)
        if cast is not None:
            frame.integers[slot] = _cast_bits(value, cast)
        elif isinstance(value, int):
            frame.integers[slot] = value
        else:
            frame.integers[slot] = 0
            frame.floats[2 * slot] = value
        return frame.numbers[index]

    def _check_int64(self, index: int, value: int) -> None:
        if int(value) not in _INT64:
            self.fail(f"{self.place(index)}: {value} does not fit into 64 bits")

    def _list(
        self, frame: Frame, index: int, items: Sequence[Any], cast: str | None, keep: list[Any]
    ) -> int:
        if not items:
            self.fail(
                f"{self.place(index)}: Empty list/tuple can not be an argument to metal kernel"
            )
        first = items[0]
        if isinstance(first, int):
            data = self._typed(index, items, int, "q", cast)
        elif isinstance(first, float):
            data = self._typed(index, items, (int, float), "f", cast)
        elif isinstance(first, _Tensor):
            data = self._pointers(frame, index, items, keep).tobytes()
        else:
            self.fail(
                f"{self.place(index)}: Unexpected argument types: a list of"
                f" {type(first).__name__}; a list holds ints, floats or tensors"
            )
        return self._keep_bytes(index, data, keep)

    def _typed(
        self, index: int, items: Sequence[Any], kinds: Any, code: str, cast: str | None
    ) -> bytes:
        """The bytes of a list of numbers, whose first element decides what it holds."""
        for position, item in enumerate(items):
            if not isinstance(item, kinds):
                self.fail(
                    f"{self.place(index)}: the list starts with {type(items[0]).__name__}, but"
                    f" element {position} is {type(item).__name__}"
                )
            if code == "q":
                self._check_int64(index, item)
        if cast is None:
            return _packed(code, items)
        dtype = torch.int64 if code == "q" else torch.float32
        return _raw_bytes(torch.tensor(items, dtype=dtype).to(_CASTS[cast]))

    def _pointers(
        self, frame: Frame, index: int, tensors: Sequence[Any], keep: list[Any]
    ) -> array[int]:
        """Addresses of the tensors of a list, which a kernel sees as an array of pointers."""
        keep.append(tensors)
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, _Tensor):
                self.fail(
                    f"{self.place(index)}: the list starts with a tensor, but element {position}"
                    f" is {type(tensor).__name__}"
                )
            self._check_tensor(frame, index, tensor)
            if tensor.dtype in _NOT_IN_METAL:
                self._unusual_tensor(frame, index, tensor.reshape(-1), keep)
        return array("Q", [tensor.data_ptr() or _EMPTY_ADDRESS for tensor in tensors])

    def _keep_bytes(self, index: int, data: bytes, keep: list[Any]) -> int:
        """Copy bytes to where they stay for the call, with zeros up to the parameter's size.

        Three floats for a float3 are common, and a float3 is read as 16 bytes.
        """
        argument = self.buffers.get(index)
        size = max(len(data), argument.element_size if argument else 0)
        memory = ctypes.create_string_buffer(data, size + _SLOT_BYTES)
        keep.append(memory)
        return ctypes.addressof(memory)


def _cast_bits(value: float, cast: str) -> int:
    """A number after a cast, as the integer whose low bytes are its bytes."""
    if isinstance(value, int) and cast in _INTEGER_CASTS:
        return int(value) & _INTEGER_CASTS[cast]
    dtype = torch.int64 if isinstance(value, int) else torch.float32
    return int.from_bytes(_raw_bytes(torch.tensor(value, dtype=dtype).to(_CASTS[cast])), "little")


def _packed(code: str, items: Sequence[Any]) -> bytes:
    """Numbers as an array of one C type; a float beyond float32 becomes infinite, as in C."""
    item_type: Callable[..., Any] = ctypes.c_int64 if code == "q" else ctypes.c_float
    return bytes((item_type * len(items))(*items))  # type: ignore[operator]


def _raw_bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist())
