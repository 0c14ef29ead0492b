"""Metallibs are read as they were written; what is damaged is said to be, and nothing else."""

from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest

from anymetal.air.archive import metallibs_in, pick
from anymetal.air.container import Constant, LibraryFunction, Metallib, write_metallib
from anymetal.errors import MetallibError

FUNCTIONS = (
    LibraryFunction("first", b"BC\xc0\xde one", (2, 3), (2, 3)),
    LibraryFunction("a vertex", b"BC\xc0\xde two", (2, 8), (4, 0), kind=0),
    LibraryFunction(
        "third",
        b"BC\xc0\xde three" * 9,
        constants=(
            Constant("wide", "uint", 10, is_required=True),
            Constant("flag", "bool", 300, is_required=False),
        ),
    ),
)
LIBRARY = write_metallib(FUNCTIONS)


def test_functions_come_back() -> None:
    library = Metallib(LIBRARY, "x.metallib")
    assert library.kernels == ("first", "third")
    assert tuple(library.functions()) == FUNCTIONS


def test_an_empty_library() -> None:
    assert Metallib(write_metallib(()), "x").kernels == ()


def read_all(data: bytes) -> None:
    for function in Metallib(data, "x.metallib").functions():
        assert isinstance(function.bitcode, bytes)


def test_every_truncation_is_refused() -> None:
    for length in range(len(LIBRARY)):
        with pytest.raises(MetallibError, match=r"^x\.metallib: "):
            read_all(LIBRARY[:length])


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bytes_give_an_error_or_a_library(seed: int) -> None:
    """Whatever bytes are changed: no other exception, no reading outside, and no other bitcode."""
    choose = random.Random(seed)
    known = {function.bitcode for function in FUNCTIONS}
    for _ in range(800):
        data = bytearray(LIBRARY)
        for _ in range(choose.randint(1, 4)):
            data[choose.randrange(len(data))] = choose.choice((0, 1, 127, 128, 255, 4, 88))
        try:
            library = Metallib(bytes(data), "x")
            # A name of HASH may be damaged too; else the bitcode is what it was.
            found = {f.bitcode for f in library.functions()}
            assert found <= known or bytes(data).count(b"HASH") < len(FUNCTIONS)
        except MetallibError as error:
            assert str(error).startswith("x: ")


@pytest.mark.parametrize("field", range(9))
@pytest.mark.parametrize("value", [1, 1 << 31, (1 << 64) - 1])
def test_sizes_and_offsets_outside_are_refused(field: int, value: int) -> None:
    data = bytearray(LIBRARY)
    struct.pack_into("<Q", data, 16 + 8 * field, value)
    try:
        read_all(bytes(data))
    except MetallibError:
        return
    assert value == 1, "a size or offset outside the file was believed"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "has 0 bytes"),
        (b"MTLB" + bytes(200), "ends inside"),
        (b"ELF!" + bytes(200), "begins with b'ELF!'"),
        (LIBRARY[:-1], "bytes of the"),
        (LIBRARY.replace(b"BC\xc0\xde one", b"BC\xc0\xde two"), "not what its digest says"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, words: str) -> None:
    with pytest.raises(MetallibError, match=words):
        read_all(data)


def zipped(**members: bytes) -> bytes:
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return place.getvalue()


def test_metallibs_inside_other_files() -> None:
    other = write_metallib(FUNCTIONS[:1])
    library = b"\xcf\xfa\xed\xfe MTLB no header" + LIBRARY + bytes(7) + other + b"MTLB"
    assert [one.name for one in metallibs_in(library, "x.dylib")] == ["#0", "#1"]
    assert pick(library, "x.dylib", "1").data == other
    wheel = zipped(**{"p/a.metallib": LIBRARY, "p/lib.dylib": library, "p/x.py": LIBRARY})
    names = [one.name for one in metallibs_in(wheel, "x.whl")]
    assert names == ["p/a.metallib", "p/lib.dylib#0", "p/lib.dylib#1"]
    assert pick(wheel, "x.whl", "p/a.metallib").data == LIBRARY
    with pytest.raises(MetallibError, match=r"holds 3 metallibs; name one of them: 0: p/a"):
        pick(wheel, "x.whl", None)
    with pytest.raises(MetallibError, match=r"holds no metallib 'q'"):
        pick(wheel, "x.whl", "q")
    with pytest.raises(MetallibError, match="none inside"):
        pick(b"nothing of the kind", "x", None)
    with pytest.raises(MetallibError, match="damaged zip"):
        pick(wheel[: len(wheel) // 2], "x.whl", None)
