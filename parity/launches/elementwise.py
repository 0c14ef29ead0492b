"""Kernels that take every element for itself: unary, binary, ternary, copies, arange."""

from __future__ import annotations

import re

from parity.launches.launch import SPECIAL, Case, Launch, Value, launches

_COUNT = 1003
# A general kernel's array of four dimensions, and the strides of its operands: dense, in another
# order, with every third or second element.
_SHAPE = (2, 3, 5, 9)
_STRIDES = {
    "a": (135, 45, 9, 1),
    "b": (1, 2, 54, 6),
    "c": (405, 135, 27, 3),
    "in": (1, 2, 54, 6),
    "src": (1, 2, 54, 6),
    "dst": (270, 90, 18, 2),
}
_ELEMENTS = 2400


def _launch(values: dict[str, Value], threads: tuple[int, ...], group: tuple[int, ...]) -> Launch:
    return Launch(values, threads, group, SPECIAL, _ELEMENTS)


@launches(r"(unary|binary|ternary|copy)_[sv]+")
def _vector(case: Case) -> list[Launch]:
    return [_launch({"size": _COUNT}, (_COUNT,), (64,))]


@launches(r"(unary|binary|ternary|copy)_[sv]+2")
def _vector_of_two(case: Case) -> list[Launch]:
    return [_launch({"size": 59 * 17}, (59, 17), (59, 4))]


def _strides(dimensions: int) -> dict[str, Value]:
    """Strides of all operands, under all the names that they have."""
    values: dict[str, Value] = {}
    for operand, strides in _STRIDES.items():
        found = strides[-dimensions:]
        # The only stride of a kernel for one dimension is a reference.
        value: Value = found if dimensions > 1 else found[0]
        values |= {f"{operand}_stride": value, f"{operand}_strides": value}
    return values | {"src_offset": 5, "dst_offset": 3}


@launches(r"(unary|binary|ternary|copy)_gg?(_dynamic)?_nd([123])")
def _strided(case: Case) -> list[Launch]:
    dimensions = int(case.function[-1])
    if dimensions == 1:
        return [_launch(_strides(1), (397,), (64,))]
    threads = _SHAPE[: -dimensions - 1 : -1]
    return [_launch(_strides(dimensions), threads, threads)]


@launches(r"(unary|binary|ternary|copy)_gg?(_dynamic)?")
def _general(case: Case) -> list[Launch]:
    each = next((int(one) for one in case.template[1:] if re.fullmatch(r"[124]", one)), 1)
    threads = (-(-_SHAPE[3] // each), _SHAPE[2], _SHAPE[0] * _SHAPE[1])
    values: dict[str, Value] = {"ndim": 4}
    values |= dict.fromkeys(("shape", "in_shape", "src_shape"), _SHAPE)
    return [_launch(_strides(4) | values, threads, threads)]


@launches("arange")
def _arange(case: Case) -> list[Launch]:
    return [_launch({"start": 3, "step": 2}, (97,), (32,))]
