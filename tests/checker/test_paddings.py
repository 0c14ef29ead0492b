"""Padding is not memory that anybody must write; the members around it are."""

from __future__ import annotations

import os
import random

import pytest
import torch
from structures import HEADER, LARGEST, THREADS, Leaf, Shape, kernel, shape, source_thread

from anymetal import check, compile_shader
from anymetal.msl.holes import added_bytes
from anymetal.nouns import AddedBytes

SEEDS = range(200 if os.environ.get("ANYMETAL_TEST_ALL") else 4)


def checked(source: str, own: Shape) -> tuple[list[str], torch.Tensor]:
    """What is found in the kernel of a structure, and the checksums it computes."""
    library = compile_shader(HEADER + own.text + source)
    out = torch.zeros(THREADS * LARGEST, dtype=torch.uint8)
    sums = torch.zeros(THREADS)
    with check(outputs=()) as report:
        getattr(library, f"{own.name}_k")(out, sums, threads=THREADS)
    return [str(finding) for finding in report.findings], sums


@pytest.mark.parametrize("seed", SEEDS)
def test_structures_of_any_shape_are_copied_in_silence(seed: int) -> None:
    choose = random.Random(seed)
    own = shape(choose, f"S{seed}")
    findings, sums = checked(kernel(choose, own), own)
    assert findings == [], own.text
    assert sums.tolist() == [own.checksum(source_thread(thread)) for thread in range(THREADS)]


MIXED = Shape(
    "Mixed",
    "struct Mixed { float3 a; ushort b; uchar c[14]; char d; float3 e; };\n",
    (
        Leaf(".a", "float3"),
        Leaf(".b", "ushort"),
        *(Leaf(f".c[{place}]", "uchar") for place in range(14)),
        Leaf(".d", "char"),
        Leaf(".e", "float3"),
    ),
)


@pytest.mark.parametrize("path", [".b", ".c[13]"])
def test_a_member_beside_padding_that_nobody_writes_is_found(path: str) -> None:
    forgotten = next(leaf for leaf in MIXED.leaves if leaf.path == path)
    findings, _ = checked(kernel(random.Random(0), MIXED, forgotten=forgotten), MIXED)
    assert any("uninitialised" in finding for finding in findings), findings


def test_messages_tell_what_was_added() -> None:
    messages = (
        "a.cpp:1:20: warning: padding size of 'q::P' with 14 bytes to alignment boundary\n"
        "a.cpp:2:9: warning: padding struct 'q::Pair<vec<float, 3>>' with 1 byte to align 'v'\n"
        "a.cpp:3:9: warning: padding size of '(lambda at a.cpp:3:83)' with 15 bytes to alignment\n"
    )
    assert added_bytes(messages) == {
        AddedBytes("q::P", 14, at_end=True),
        AddedBytes("q::Pair", 1, at_end=False),
        AddedBytes("anon", 15, at_end=True),
    }
