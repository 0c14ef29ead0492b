"""The block of arguments that the host fills for a launch: anymetal/block.h, seen from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anymetal.nouns import Argument, EntryPoint, Parameter

# A kernel takes 4 KiB of arguments, so few values may be large; and an array in one that is indexed
# at run time would be copied to local memory, so none is very large.
_FEW_VALUES = 8
_BYTES_OF_FEW, _BYTES_OF_MANY = 96, 64
SHAPE_BYTES = 32  # grid, group_size, first_across
_VALUE_ALIGNMENT = 16


@dataclass(frozen=True)
class Block:
    """Where things lie in it. A `constant T&` has a value besides its address; one of at most
    `value_bytes` is read from there while its address is 0."""

    buffers: int
    values: tuple[int, ...]  # the buffers that are references to constant memory, in order
    arrays: tuple[int, ...]  # the [[threadgroup(n)]] parameters, in order

    @property
    def arrays_at(self) -> int:
        return SHAPE_BYTES

    @property
    def arrays_end(self) -> int:
        return self.arrays_at + 4 * len(self.arrays)

    @property
    def addresses_at(self) -> int:
        return _aligned(self.arrays_end, 8)

    @property
    def values_at(self) -> int:
        return _aligned(self.addresses_at + 8 * max(self.buffers, 1), _VALUE_ALIGNMENT)

    @property
    def value_bytes(self) -> int:
        return _BYTES_OF_FEW if len(self.values) <= _FEW_VALUES else _BYTES_OF_MANY

    @property
    def size(self) -> int:
        return self.values_at + self.value_bytes * max(len(self.values), 1)

    @property
    def parameters(self) -> str:
        """The template arguments of am_block."""
        return f"{self.buffers}, {len(self.values)}, {len(self.arrays)}, {self.value_bytes}"

    def is_address(self, offset: int) -> bool:
        """Whether the address of a buffer stands there."""
        return self.addresses_at <= offset < self.addresses_at + 8 * self.buffers

    def buffer_at(self, offset: int) -> int | None:
        """The buffer whose address or value stands at an offset; None for other parts."""
        if self.is_address(offset):
            return (offset - self.addresses_at) // 8
        if offset >= self.values_at and self.values:
            return self.values[(offset - self.values_at) // self.value_bytes]
        return None


def block_of(parameters: EntryPoint | Sequence[Argument]) -> Block:
    """The block of a kernel, from its parameters as they are written or as they were resolved."""
    listed: Sequence[Parameter | Argument]
    listed = parameters.parameters if isinstance(parameters, EntryPoint) else parameters
    indices = [one.index for one in listed if one.role == "buffer" and one.index is not None]
    arrays = (one.index for one in listed if one.role == "threadgroup" and one.index is not None)
    values = (one.index for one in listed if _is_constant_reference(one) and one.index is not None)
    return Block(max(indices, default=-1) + 1, tuple(sorted(values)), tuple(sorted(arrays)))


def values_in(arguments: Iterable[Argument], block: Block) -> tuple[int, ...]:
    """The buffers whose value fits its place in the block."""
    sizes = {one.index: one.element_size for one in arguments if one.role == "buffer"}
    return tuple(index for index in block.values if sizes[index] <= block.value_bytes)


def _is_constant_reference(parameter: Parameter | Argument) -> bool:
    if parameter.role != "buffer" or parameter.space != "constant":
        return False
    if isinstance(parameter, Parameter):
        return "&" in parameter.declared
    return not parameter.is_pointer


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
