"""Sizes, alignments and offsets are those of LLVM for the machines we compile for."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from anymetal.ir import FLOAT, HALF, I1, I32, Layout, boolean_like, parse, type_of, vector
from anymetal.ir.types import UnknownType

TYPES = [
    "i1",
    "i8",
    "i24",
    "i64",
    "half",
    "bfloat",
    "double",
    "ptr",
    "<2 x float>",
    "<3 x float>",
    "<4 x half>",
    "<32 x i8>",
    "[3 x <3 x float>]",
    "[5 x i16]",
    "{ i8, i32 }",
    "{ i8, <3 x float>, i8 }",
    "<{ i8, i32, ptr }>",
    "{ [3 x i8], { i16, i64 }, float }",
    "%pair",
    "[2 x %pair]",
]
LAYOUT = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
BEFORE = f'target datalayout = "{LAYOUT}"\n%pair = type {{ i8, double }}\n'


@pytest.mark.parametrize("text", TYPES)
def test_size_and_alignment(text: str) -> None:
    module = f"{BEFORE}@one = external global {text}\n"
    read = llvm.parse_assembly(module, llvm.create_context())
    data = llvm.create_target_data(LAYOUT)
    kind = read.get_global_variable("one").global_value_type
    layout = parse(module).layout()
    assert layout.size(type_of(text)) == data.get_abi_size(kind)
    assert layout.align(type_of(text)) == data.get_abi_alignment(kind)


def test_offsets() -> None:
    layout = Layout()
    assert [layout.offset(type_of("{ i8, <3 x float>, i8 }"), n) for n in range(3)] == [0, 16, 32]
    assert [layout.offset(type_of("<{ i8, i32, i8 }>"), n) for n in range(3)] == [0, 1, 5]
    assert layout.offset(type_of("[4 x <3 x float>]"), 2) == 32
    assert layout.offset(type_of("<4 x half>"), 3) == 6


def test_an_access_touches_no_padding() -> None:
    assert Layout().access_size(type_of("<3 x float>")) == 12
    assert Layout().access_size(type_of("i24")) == 3


def test_leaves() -> None:
    kind = type_of("{ i32, [2 x <2 x float>] }")
    assert Layout().leaves(kind) == [I32, FLOAT, FLOAT, FLOAT, FLOAT]


def test_types_exist_once_and_print_as_they_are_read() -> None:
    for text in TYPES:
        assert type_of(text) is type_of(text)
        assert str(type_of(text)) == text
    assert type_of("<4 x half>") is vector(4, HALF)


def test_vectors_with_other_elements() -> None:
    assert type_of("<4 x half>").with_scalar(FLOAT) is vector(4, FLOAT)
    assert HALF.with_scalar(FLOAT) is FLOAT
    assert boolean_like(vector(4, HALF)) is vector(4, I1)


@pytest.mark.parametrize("text", ["", "word", "<4 x", "{ i32", "i32 i32"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(UnknownType):
        type_of(text)
