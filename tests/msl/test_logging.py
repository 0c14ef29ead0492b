"""metal_logging: what os_log of a kernel prints, and printf's rules in log_format."""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import struct

import numpy as np
import pytest
import torch

import anymetal
from anymetal.engines.cpu.log_format import LEVELS, LogValue, format_message, read_values
from anymetal.machine.layout import LogKind

HEADER = "#include <metal_stdlib>\n#include <metal_logging>\nusing namespace metal;\n"


def signed(*values: int, size: int = 4) -> LogValue:
    data = b"".join(value.to_bytes(size, "little", signed=True) for value in values)
    return LogValue(LogKind.SIGNED, size, len(values), data)


def unsigned(*values: int, size: int = 4) -> LogValue:
    data = b"".join(value.to_bytes(size, "little") for value in values)
    return LogValue(LogKind.UNSIGNED, size, len(values), data)


def bfloats(*bits: int) -> LogValue:
    return LogValue(LogKind.BFLOAT, 2, len(bits), struct.pack(f"<{len(bits)}H", *bits))


def floats(*values: float, dtype: type[np.generic] = np.float32) -> LogValue:
    array = np.array(values, dtype)
    return LogValue(LogKind.FLOAT, array.itemsize, len(values), array.tobytes())


# ---- printf -------------------------------------------------------------------------------------

INTEGER_FORMATS = ("d", "i", "u", "x", "X", "o", "c")
FLOAT_FORMATS = ("f", "F", "e", "E", "g", "G", "a", "A")
MODIFIERS = (
    *("", "8", "-8", "08", "+", " ", "#", "+08", "-+8", "#10", "#010"),
    *(".3", "8.3", "-8.3", "08.3", ".0", "#.3"),
)


def c_printf(text: str, value: int | float) -> str:
    """The C library's own answer."""
    library = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(256)
    argument = ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int(value)
    library.snprintf(buffer, ctypes.c_size_t(256), text.encode(), argument)
    return buffer.value.decode("latin-1")


@pytest.mark.skipif(ctypes.util.find_library("c") is None, reason="no C library to compare with")
@pytest.mark.parametrize("conversion", INTEGER_FORMATS)
def test_integers_print_as_in_c(conversion: str) -> None:
    numbers = (65, 97) if conversion == "c" else (0, 1, 42, -42, 2**31 - 1, -(2**31))
    modifiers = ("", "8", "-8") if conversion == "c" else MODIFIERS
    for modifier in modifiers:
        for number in numbers:
            text = f"<%{modifier}{conversion}>"
            assert format_message(text, [signed(number)]) == c_printf(text, number), text


@pytest.mark.skipif(ctypes.util.find_library("c") is None, reason="no C library to compare with")
@pytest.mark.parametrize("conversion", FLOAT_FORMATS)
def test_floats_print_as_in_c(conversion: str) -> None:
    numbers = (0.0, -0.0, 1.0, -2.5, 1234.5678, 1e-7, -3e20, float("inf"), -float("inf"))
    for modifier in MODIFIERS:
        if conversion in "aA" and "#" in modifier:
            continue
        for number in numbers:
            text = f"<%{modifier}{conversion}>"
            rounded = float(np.float32(number))
            assert format_message(text, [floats(number)]) == c_printf(text, rounded), text


def test_not_a_number_prints_without_zeros() -> None:
    nan = floats(float("nan"))
    assert format_message("%06f|%F|%-5g|", [nan, nan, nan]) == "   nan|NAN|nan  |"


@pytest.mark.parametrize(
    ("text", "values", "want"),
    [
        ("%u", [signed(-1)], "4294967295"),
        ("%d", [unsigned(2**32 - 1)], "-1"),
        ("%x", [signed(-1)], "ffffffff"),
        ("%hhd %hhu", [signed(-1), signed(511)], "-1 255"),
        ("%hu", [signed(-1)], "65535"),
        ("%lu", [unsigned(2**64 - 1, size=8)], "18446744073709551615"),
        ("%ld", [signed(-(2**63), size=8)], "-9223372036854775808"),
        ("%zu %llx", [unsigned(5, size=8), unsigned(255, size=8)], "5 ff"),
        ("%5d%%|%-5d|", [signed(3), signed(4)], "    3%|4    |"),
        ("%*d|%-*d|", [signed(4), signed(7), signed(4), signed(8)], "   7|8   |"),
        ("%.*f", [signed(2), floats(1.5)], "1.50"),
        ("%*d", [signed(-4), signed(7)], "7   "),
        ("%p", [LogValue(LogKind.POINTER, 8, 1, (4096).to_bytes(8, "little"))], "0x1000"),
        ("100%% sure", [], "100% sure"),
        ("ends with %", [], "ends with %"),
    ],
)
def test_lengths_signs_and_stars(text: str, values: list[LogValue], want: str) -> None:
    assert format_message(text, values) == want


@pytest.mark.parametrize(
    ("text", "value", "want"),
    [
        ("%v4hlf", floats(1, -2, 3, 0.5), "1.000000,-2.000000,3.000000,0.500000"),
        ("%v4f", floats(1, 2, 3, 4), "1.000000,2.000000,3.000000,4.000000"),
        ("%.1v2hlf", floats(1, 2), "1.0,2.0"),
        ("%5.1v2hlf", floats(1, 2), "  1.0,  2.0"),
        ("%v3hf", floats(1, 2, 0.25, dtype=np.float16), "1.000000,2.000000,0.250000"),
        ("%v2hhu", unsigned(7, 255, size=1), "7,255"),
        ("%v3hld", signed(-1, 2, -3), "-1,2,-3"),
        ("%v2lu", unsigned(1, 2**40, size=8), "1,1099511627776"),
        ("%#v2hlx", unsigned(255, 16), "0xff,0x10"),
        (
            "%v2hf",
            LogValue(LogKind.BFLOAT, 2, 2, struct.pack("<HH", 0x3F80, 0xC000)),
            "1.000000,-2.000000",
        ),
    ],
)
def test_vectors_print_with_commas(text: str, value: LogValue, want: str) -> None:
    assert format_message(text, [value]) == want


@pytest.mark.parametrize(
    ("text", "values", "want"),
    [
        ("%d", [], "<%d has no argument>"),
        ("%d", [floats(1.5)], "<%d got float 1.5>"),
        ("%f", [signed(3)], "<%f got integer 3>"),
        ("%s", [signed(3)], "<%s is not supported>"),
        ("%v4d", [signed(3)], "<%v4d got integer 3>"),
        ("%f", [floats(1, 2)], "<%f got vector of 2 1.0,2.0>"),
    ],
)
def test_wrong_formats_say_so(text: str, values: list[LogValue], want: str) -> None:
    assert format_message(text, values) == want


def test_values_are_read_from_their_structures() -> None:
    raw = struct.pack("<IHH4Q", LogKind.SIGNED, 4, 1, 2**32 - 5, 0, 0, 0)
    raw += struct.pack("<IHH4Q", LogKind.FLOAT, 2, 2, 0x4000_3C00, 0, 0, 0)
    assert format_message("%d %v2hf", read_values(raw)) == "-5 1.000000,2.000000"


# ---- Kernels ------------------------------------------------------------------------------------


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if record.name == "anymetal.kernel"
    ]


def test_kernel_prints_scalars_and_vectors(caplog: pytest.LogCaptureFixture) -> None:
    source = f"""{HEADER}
constant os_log custom("com.example", "numbers");
enum colour : ushort {{ red = 3 }};
kernel void print(device const float* x, device bfloat* b) {{
  custom.log("int %d uint %u float %.3f half %.2f bool %d", -3, 4u, x[0], half(0.5h), true);
  custom.log("char %d short %d long %ld ulong %lu enum %d",
             char(-7), short(-8), long(-9), ~0ul, red);
  custom.log("%v4hlf %v3hld", float4(1, 2, 3, x[0]), int3(1, -2, 3));
  custom.log("%v2hf %v4hhu %v2lu", half2(0.5h, 2.0h), uchar4(1, 2, 3, 255), ulong2(5, 6));
  custom.log("%v3hlf|%f|%d%%", float3(1, 2, 3), float(b[0]), 5);
}}"""
    caplog.set_level(logging.DEBUG, "anymetal.kernel")
    anymetal.compile_shader(source).print(
        torch.tensor([1.25]), torch.tensor([2.0], dtype=torch.bfloat16), threads=1
    )
    texts = [text for _, text in messages(caplog)]
    want = [
        "int -3 uint 4 float 1.250 half 0.50 bool 1",
        f"char -7 short -8 long -9 ulong {2**64 - 1} enum 3",
        "1.000000,2.000000,3.000000,1.250000 1,-2,3",
        "0.500000,2.000000 1,2,3,255 5,6",
        "1.000000,2.000000,3.000000|2.000000|5%",
    ]
    assert len(texts) == len(want)
    for text, line in zip(texts, want, strict=True):
        assert text.endswith(line)
        assert "com.example" in text and "numbers" in text


def test_levels_map_to_pythons(caplog: pytest.LogCaptureFixture) -> None:
    source = f"""{HEADER}
kernel void levels(device uint* unused) {{
  os_log_default.log_debug("a debug");
  os_log_default.log_info("b info");
  os_log_default.log("c default");
  os_log_default.log_error("d error");
  metal::os_log_default.log_fault("e fault");
  os_log_default.log_with_type(log_type_error, "f %d", 6);
}}"""
    caplog.set_level(logging.DEBUG, "anymetal.kernel")
    anymetal.compile_shader(source).levels(torch.zeros(1, dtype=torch.int32), threads=1)
    got = messages(caplog)
    assert [level for level, _ in got] == [*LEVELS, logging.ERROR]
    assert [text.split()[-1] for _, text in got] == [
        "debug",
        "info",
        "default",
        "error",
        "fault",
        "6",
    ]


def test_every_thread_can_print(caplog: pytest.LogCaptureFixture) -> None:
    source = f"""{HEADER}
kernel void many(device uint* x, uint i [[thread_position_in_grid]]) {{
  x[i] = i;
  threadgroup_barrier(mem_flags::mem_device);
  if (i % 3 == 0) os_log_default.log("thread %u of %v2hlu", i, uint2(i, i + 1));
}}"""
    caplog.set_level(logging.INFO, "anymetal.kernel")
    threads = 9000
    anymetal.compile_shader(source).many(torch.zeros(threads, dtype=torch.int32), threads=threads)
    printed = sorted(int(text.split()[-3]) for _, text in messages(caplog))
    assert printed == list(range(0, threads, 3))


REFUSED = (
    'os_log_default.log("%d", pair)',
    "os_log_default.log(format)",
    "os_log_default.log()",
    'os_log_default.warn("%d", 1)',
    "os_log nameless",
)


def test_what_metal_refuses_does_not_compile() -> None:
    lines = "\n".join(f"  {{ {call}; }}" for call in REFUSED)
    source = f"""#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
struct Pair {{ int a, b; }};
kernel void bad(constant char* format, device Pair& pair) {{
{lines}
}}"""
    with pytest.raises(SyntaxError) as error:
        anymetal.compile_shader(source).bad  # noqa: B018
    for number, call in enumerate(REFUSED, start=6):
        assert f"<shader>:{number}:" in str(error.value), call
