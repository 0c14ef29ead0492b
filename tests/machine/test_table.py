"""Tables shared with C++: the headers in the tree are theirs, and a difference does not compile."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
from tools.headers import HEADERS

from anymetal.engines.cpu.layout import BUFFERS_PART, CALL_PART, KERNEL_PART, Launch
from anymetal.engines.cpu.target import HOST
from anymetal.errors import ToolchainError
from anymetal.machine.layout import HEADER, Simdgroup, Wait
from anymetal.machine.table import Header, Structure, member, offset_of, packer, table
from anymetal.msl import clang


@table("Sample")
class Sample(Structure):
    """A structure with a gap and an aligned member."""

    first: int = member("unsigned", note="in front")
    second: int = member("unsigned long")
    third: bytes = member("char", 3, align=16)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.path.name)
def test_header_in_the_tree_is_current(header: Header) -> None:
    header.check()


def test_changed_header_is_refused(tmp_path: Path) -> None:
    stale = replace(HEADER, path=tmp_path / "layout.h")
    stale.path.write_text(HEADER.text().replace("unsigned lane", "unsigned long lane"))
    with pytest.raises(ToolchainError, match=r"layout\.h is not what machine/layout\.py says"):
        stale.check()


def compiled(header: Header, tmp_path: Path, text: str) -> None:
    (tmp_path / "sample.h").write_text(text)
    path = tmp_path / "sample.cpp"
    path.write_text('#include "sample.h"\n')
    clang.compile_support(path, HOST)


def test_offsets_are_the_compilers(tmp_path: Path) -> None:
    header = Header(tmp_path / "sample.h", "this test", structures=(Sample,))
    compiled(header, tmp_path, header.text())
    assert [offset_of(Sample, name) for name in ("first", "second", "third")] == [0, 8, 16]


def test_other_layout_does_not_compile(tmp_path: Path) -> None:
    header = Header(tmp_path / "sample.h", "this test", structures=(Sample,))
    with pytest.raises(ToolchainError, match=r"offsetof\(Sample, second\) == 8"):
        compiled(header, tmp_path, header.text().replace("unsigned first;", "unsigned first[3];"))


def test_packed_parts_make_up_a_launch() -> None:
    parts = (BUFFERS_PART, CALL_PART, KERNEL_PART)
    assert sum(part.size for part in parts) == ctypes.sizeof(Launch)
    assert offset_of(Launch, "threads") == BUFFERS_PART.size
    assert offset_of(Launch, "kernel") == BUFFERS_PART.size + CALL_PART.size


def test_packing_leaves_gaps() -> None:
    packed = packer(Sample, "first", "second").pack(1, 2)
    assert Sample.from_buffer_copy(packed.ljust(ctypes.sizeof(Sample))).second == 2


def test_alignment_beyond_the_type_is_kept() -> None:
    assert offset_of(Simdgroup, "inputs") == 64
    assert "alignas(64) char inputs[4096];" in HEADER.text()


def test_enumerations_have_their_notes() -> None:
    assert Wait.COLLECTIVE == 3
    assert "  AM_COLLECTIVE = 3,  // the live lanes standing at this site\n" in HEADER.text()
