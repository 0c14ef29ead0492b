"""The memory that both kernels of a pair are given, and how it is compared (parity/inputs.py)."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anymetal import compile_shader
from anymetal.nouns import Argument, Field

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from parity import results
from parity.inputs import NoValue, make_inputs
from parity.launches import Case, Launch, description_of
from parity.launches.launch import SPECIAL, indices_below

X = Argument("x", "buffer", 0, None, "device", "float", 4, 4, True, True)
Y = replace(X, name="y", index=1)
OUT = replace(X, name="out", index=3, is_const=False)
SIZE = Argument("size", "buffer", 2, None, "constant", "uint", 4, 4, False, True)
FIELDS = (Field("n", "int", 0, 4), Field("strides", "long", 8, 8, (2,)))
TABLE = (X, Y, SIZE, OUT)


def launch(**values: object) -> Launch:
    return Launch(values, (8,), (8,), SPECIAL, 1024)  # type: ignore[arg-type]


def test_every_special_value_meets_every_other() -> None:
    inputs = make_inputs("k", TABLE, launch(size=7))
    x, y, size, out = inputs.arguments(inputs.block)
    pairs = set(zip(x.view(torch.int32).tolist(), y.view(torch.int32).tolist(), strict=True))
    values = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-40, -1e-45, 3.3e38])
    bits = values.view(torch.int32).tolist()
    assert {(a, b) for a in bits for b in bits} <= pairs
    assert size.view(torch.int32).tolist() == [7]
    assert set(out.tolist()) == {0xA5}
    again = make_inputs("k", TABLE, launch(size=7))
    assert torch.equal(again.block, inputs.block)


def test_structures_and_indices_are_as_described() -> None:
    structure = replace(SIZE, name="params", is_pointer=True, element_size=24, fields=FIELDS)
    rows = replace(X, name="rows", index=5, type="uint")
    values = launch(params={"n": 3, "strides": (4, 5)}, rows=indices_below(6))
    inputs = make_inputs("k", (structure, rows), values)
    found = inputs.arguments(inputs.block)
    assert found[2].view(torch.int64).tolist() == [3, 4, 5]
    assert set(found[5].view(torch.int32).tolist()) == set(range(6))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "no value for 'size'"),
        ({"size": 1, "params": {"n": 1}}, "no value for 'params.strides'"),
    ],
)
def test_what_a_description_leaves_out_is_an_error(values: dict[str, object], text: str) -> None:
    structure = replace(SIZE, name="params", index=4, element_size=24, fields=FIELDS)
    with pytest.raises(NoValue, match=text):
        make_inputs("k", (*TABLE, structure), launch(**values))


def test_differences_are_named() -> None:
    inputs = make_inputs("k", TABLE, launch(size=7))
    (place,) = (one for one in inputs.places if one.argument.name == "out")
    one, other, stray = (inputs.block.clone() for _ in range(3))
    one[place.start : place.start + 8] = torch.tensor([1.0, float("nan")]).view(torch.uint8)
    other[place.start : place.start + 8] = torch.tensor([1.0, float("nan")]).view(torch.uint8)
    other[place.start + 7] ^= 0x80
    assert results._difference(inputs, one, other) == "NaN signs"
    other[place.start + 1] ^= 1
    assert results._difference(inputs, one, other).startswith(
        "1 elements differ, first out[0]: 1.0"
    )
    stray[-1] = 1
    assert results._difference(inputs, inputs.block, stray) == "stray writes differ"


def test_kernels_of_a_family_share_out_the_ways_to_launch_it() -> None:
    describe = description_of("gemm")
    assert describe is not None
    arguments = ("half", "64", "64", "16", "2", "2", "false", "true", "float")
    found = [describe(Case(f"gemm_{n}", "gemm", arguments))[0].constants for n in range(40)]
    for name in ("align_M", "align_K", "has_batch", "use_out_source", "do_axpby"):
        assert {constants[name] for constants in found} == {True, False}


def test_booleans_that_lay_there_before_are_told_from_results() -> None:
    """A kernel whose only result is what the memory has anyway."""
    table = [replace(TABLE[0], name="out", type="bool", element_size=1, is_const=False)]
    shape = Launch({}, (1,), (1,), elements=4)
    inputs = make_inputs("k", table, shape)

    def write(arguments: list[torch.Tensor], launch: Launch) -> None:
        arguments[0][1] = 1

    def rest(arguments: list[torch.Tensor], launch: Launch) -> None:
        pass

    assert inputs.arguments(inputs.block)[0].tolist() == [0, 1, 0, 1]
    assert results.compared([write, write], shape, inputs) == "equal"
    assert results.compared([rest, rest], shape, inputs) == "equal, nothing written"
    assert results.compared([write, rest], shape, inputs.inverted()).startswith("1 elements")


STRAY = """
#include <metal_stdlib>
kernel void stray(device const float* x, device const float* y, constant uint& size,
                  device float* out, uint i [[thread_position_in_grid]]) {
  out[i] = x[i] + y[i];
  if (i == 0) out[int(size)] = 1;
}
"""


@pytest.mark.parametrize(
    ("place", "word"),
    [
        (7, "equal"),
        (1024 + 100, "stray writes, of both the same"),  # in the room behind the buffer
        (1024 + (3 << 12), "not run: kernel 'stray' touched an address"),
        (-(1 << 16), "not run: kernel 'stray' touched an address"),
    ],
)
def test_writes_far_outside_are_faults(place: int, word: str) -> None:
    kernel = compile_shader(STRAY).stray

    def run(arguments: list[torch.Tensor], launch: Launch) -> None:
        kernel(*arguments, threads=launch.threads, group_size=launch.group)

    given = launch(size=place % (1 << 32))
    found = results.compared([run, run], given, make_inputs("k", TABLE, given))
    assert found.startswith(word), found


@pytest.mark.parametrize("memory", [256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("step", [0, 1])
def test_every_transform_of_a_launch_has_its_threads(memory: int, step: int) -> None:
    """With fewer, the last threadgroup of the second step counts past 16 bits, and writes far below
    its threadgroup memory."""
    describe = description_of("four_step_fft")
    assert describe is not None
    arguments = (str(memory), "float2", "float2", str(step), "false")
    (found,) = describe(Case("k", "four_step_fft", arguments))
    assert found.threads[0] * found.group[1] == found.values["batch_size"]
