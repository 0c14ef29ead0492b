"""What a call on a GPU is given, as far as it shows without one: the bytes of the block."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.launch.call import cuda_device
from anymetal.launch.cuda import CudaKernel, _Block
from anymetal.nouns import Source

TEXT = """#include <metal_stdlib>
struct Numbers { float scale; uint count; };
kernel void k(constant Numbers& numbers, constant float& f, constant long& i, constant half& h,
              constant float3& v, device float* x) { x[i] = numbers.scale * f * h * v.y; }
"""


@pytest.fixture(scope="module")
def kernel() -> CudaKernel:
    made = Compiler(Source(TEXT)).compile("k", {}, PLAIN, "cuda-sm80")
    assert isinstance(made, CudaExecutable)
    return CudaKernel(made)


def bound(kernel: CudaKernel, *args: Any, casts: Any = None) -> _Block:
    block = _Block(kernel.executable)
    kernel._bind(block, args, casts, [])
    return block


def value(kernel: CudaKernel, block: _Block, index: int, layout: str) -> tuple[Any, ...]:
    assert block.addresses[index] == 0
    return struct.unpack_from(layout, block.memory, kernel._places[index])


def test_numbers_structs_and_lists_travel_in_the_block(kernel: CudaKernel) -> None:
    block = bound(kernel, {"scale": 1.5, "count": 7}, 2.5, -3, 0.5, [1.0, 2.0, 3.0])
    assert value(kernel, block, 0, "<fI") == (1.5, 7)
    assert value(kernel, block, 1, "<f") == (2.5,)
    assert value(kernel, block, 2, "<q") == (-3,)
    assert value(kernel, block, 4, "<3f") == (1, 2, 3)


def test_casts_and_extreme_numbers_are_those_of_the_cpu(kernel: CudaKernel) -> None:
    block = bound(kernel, {"scale": 0, "count": 0}, 1e300, 5, 0.5, casts={3: "fp16"})
    assert value(kernel, block, 1, "<f") == (float("inf"),)
    assert value(kernel, block, 3, "<e") == (0.5,)
    with pytest.raises(RuntimeError, match="does not fit into 64 bits"):
        bound(kernel, {"scale": 0, "count": 0}, 1.0, 1 << 70)


def test_zero_dimensional_tensor_is_passed_by_value(kernel: CudaKernel) -> None:
    block = bound(kernel, {"scale": 0, "count": 0}, torch.tensor(1.25))
    assert value(kernel, block, 1, "<f") == (1.25,)


def test_tensor_of_another_device_is_refused(kernel: CudaKernel) -> None:
    numbers = {"scale": 0, "count": 0}
    with pytest.raises(RuntimeError, match=r"'x' \(buffer 5\) is on device 'cpu'.*same device"):
        bound(kernel, numbers, 1.0, 1, 1.0, [1.0, 1.0, 1.0], torch.zeros(4))


def test_device_of_a_call_is_that_of_its_first_tensor() -> None:
    assert cuda_device((1.0, torch.tensor(2.0), torch.zeros(3))) == -1
    assert cuda_device(([torch.zeros(3)],)) == -1
    assert cuda_device(()) == -1


def test_short_way_takes_numbers_as_the_long_way_does(kernel: CudaKernel) -> None:
    long, short = bound(kernel, {"scale": 0, "count": 0}, 2.5, -3), _Block(kernel.executable)
    assert kernel._put(short, 1, 2.5)
    assert kernel._put(short, 2, -3)
    for index, layout in ((1, "<f"), (2, "<q")):
        assert value(kernel, short, index, layout) == value(kernel, long, index, layout)
    for odd in (True, 1 << 70, 1e300, [1.0], None):
        assert not kernel._put(short, 1, odd)


def test_short_way_leaves_what_is_unusual_to_the_long_way(kernel: CudaKernel) -> None:
    vector = [1.0, 1.0, 1.0]
    assert not kernel.quickly(({"scale": 0, "count": 0}, 1.0, 1, 1.0, vector), 4, 4)
    assert not kernel.quickly((1.0, 1.0, 1, 1.0, 1.0, torch.zeros(4)), 4, 4)
    assert not kernel.quickly((1.0,), 4, 4)
    # A number that stood there before a call of the long way is written again.
    block = kernel._blocks[-1]
    kernel._put(block, 1, 2.5)
    kernel._bind(block, ({"scale": 0, "count": 0}, 4.5), None, [])
    assert block.values[1] != 2.5
