"""os_log messages: a printf format and the bits of its arguments enter, text leaves.

A wrong format must not stop a launch that has already run, so nothing here raises: what cannot be
printed stands in the text in angle brackets.
"""

from __future__ import annotations

import ctypes
import logging
import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anymetal.machine import layout
from anymetal.machine.layout import LogKind
from anymetal.machine.table import offset_of

_KIND_NAMES = {
    LogKind.SIGNED: "integer",
    LogKind.UNSIGNED: "integer",
    LogKind.FLOAT: "float",
    LogKind.BFLOAT: "float",
    LogKind.POINTER: "pointer",
}

LEVELS = (logging.DEBUG, logging.INFO, logging.INFO, logging.ERROR, logging.CRITICAL)
"""Python's level for each `metal::log_type`; the default type is information, not a warning."""

_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?"
    r"(?:v(?P<vector>\d+))?(?P<length>hh|hl|h|ll|l|j|z|t|L|q)?(?P<conversion>[A-Za-z@%])"
)
_LENGTH_BYTES = {"hh": 1, "h": 2, "hl": 4}
_FLOAT_CODES = {2: "e", 4: "f", 8: "d"}


@dataclass(frozen=True)
class LogValue:
    """One argument of a message: a scalar, or a vector of two to four elements."""

    kind: LogKind
    size: int
    count: int
    data: bytes

    def chunks(self) -> Iterator[bytes]:
        """The bytes of each element."""
        for index in range(self.count):
            yield self.data[index * self.size : (index + 1) * self.size]

    def number(self, chunk: bytes) -> int | float:
        """The value of one element."""
        if self.kind == LogKind.FLOAT:
            return float(struct.unpack("<" + _FLOAT_CODES[self.size], chunk)[0])
        if self.kind == LogKind.BFLOAT:
            return float(struct.unpack("<f", b"\0\0" + chunk)[0])
        return int.from_bytes(chunk, "little", signed=self.kind == LogKind.SIGNED)


@dataclass(frozen=True)
class _Directive:
    """One % of a format, its stars already replaced."""

    text: str
    flags: str
    width: str
    precision: int | None
    length: str
    vector: int
    conversion: str


def read_values(raw: bytes) -> tuple[LogValue, ...]:
    """The arguments of a message from `am_log_value` structures one after the other."""
    values = []
    for start in range(0, len(raw), ctypes.sizeof(layout.LogValue)):
        value = layout.LogValue.from_buffer_copy(raw, start)
        bits = start + offset_of(layout.LogValue, "bits")
        data = raw[bits : bits + value.size * value.count]
        values.append(LogValue(LogKind(value.kind), value.size, value.count, data))
    return tuple(values)


def format_message(text: str, values: Sequence[LogValue]) -> str:
    """The text with every directive replaced by its argument, as C's printf does."""
    pieces, end, remaining = [], 0, iter(values)
    for match in _DIRECTIVE.finditer(text):
        pieces += [text[end : match.start()], _format_directive(match, remaining)]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _format_directive(match: re.Match[str], values: Iterator[LogValue]) -> str:
    if match["conversion"] == "%":
        return "%"
    directive = _resolve(match, values)
    if directive.conversion not in "diuxXocpfFeEgGaA":
        return f"<{directive.text} is not supported>"
    value = next(values, None)
    if value is None:
        return f"<{directive.text} has no argument>"
    if value.count != directive.vector:
        return f"<{directive.text} got {_describe(value)}>"
    return ",".join(_format_element(directive, value, chunk) for chunk in value.chunks())


def _describe(value: LogValue) -> str:
    numbers = ",".join(str(value.number(chunk)) for chunk in value.chunks())
    what = _KIND_NAMES[value.kind] if value.count == 1 else f"vector of {value.count}"
    return f"{what} {numbers}"


def _resolve(match: re.Match[str], values: Iterator[LogValue]) -> _Directive:
    """Takes the arguments that stand for a `*`, and drops flags C ignores."""
    flags, width = match["flags"], match["width"] or ""
    if width == "*":
        number = _next_integer(values)
        flags += "-" if number < 0 else ""
        width = str(abs(number))
    precision: int | None = None
    if match["precision"] == "*":
        number = _next_integer(values)
        precision = number if number >= 0 else None
    elif match["precision"] is not None:
        precision = int(match["precision"] or 0)
    return _Directive(
        match[0],
        flags,
        width,
        precision,
        match["length"] or "",
        int(match["vector"] or 1),
        match["conversion"],
    )


def _next_integer(values: Iterator[LogValue]) -> int:
    value = next(values, None)
    return int.from_bytes(value.data, "little", signed=True) if value else 0


def _format_element(directive: _Directive, value: LogValue, chunk: bytes) -> str:
    if directive.conversion in "fFeEgGaA":
        number = value.number(chunk)
        if not isinstance(number, float):
            return f"<{directive.text} got {_describe(value)}>"
        return _pad(directive, *_float_text(directive, number))
    if value.kind in (LogKind.FLOAT, LogKind.BFLOAT):
        return f"<{directive.text} got {_describe(value)}>"
    chunk = chunk[: _LENGTH_BYTES.get(directive.length, len(chunk))]
    return _pad(directive, *_integer_text(directive, chunk))


def _sign(directive: _Directive, negative: bool) -> str:
    if negative:
        return "-"
    return "+" if "+" in directive.flags else " " if " " in directive.flags else ""


def _integer_text(directive: _Directive, chunk: bytes) -> tuple[str, str, bool]:
    """Prefix, digits, and whether zeros may fill the width."""
    conversion = directive.conversion
    if conversion == "c":
        return "", chr(chunk[0]), False
    number = int.from_bytes(chunk, "little", signed=conversion in "di")
    if conversion == "p":
        return "0x", f"{number:x}", False
    code = {"i": "d", "u": "d"}.get(conversion, conversion)
    digits = f"{abs(number):{code}}".rjust(directive.precision or 0, "0")
    if directive.precision == 0 and number == 0:
        digits = ""
    prefix = _sign(directive, number < 0) if conversion in "di" else ""
    if "#" in directive.flags and number and conversion in "xX":
        prefix = "0" + conversion
    if "#" in directive.flags and conversion == "o" and not digits.startswith("0"):
        digits = "0" + digits
    return prefix, digits, directive.precision is None


def _float_text(directive: _Directive, number: float) -> tuple[str, str, bool]:
    """Sign, digits, and whether zeros may fill the width."""
    conversion, magnitude = directive.conversion, abs(number)
    prefix = _sign(directive, math.copysign(1.0, number) < 0)
    if not math.isfinite(number):
        text = "nan" if math.isnan(number) else "inf"
        return prefix, text.upper() if conversion.isupper() else text, False
    if conversion in "aA":
        text = _hexadecimal(magnitude, directive.precision)
        return prefix, text.upper() if conversion == "A" else text, True
    precision = 6 if directive.precision is None else directive.precision
    alternate = "#" if "#" in directive.flags else ""
    return prefix, f"{magnitude:{alternate}.{precision}{conversion}}", True


def _hexadecimal(magnitude: float, precision: int | None) -> str:
    """`%a`: a hexadecimal fraction and a power of two."""
    fraction, exponent = math.frexp(magnitude)
    if magnitude:
        fraction, exponent = fraction * 2, exponent - 1
    places = 13 if precision is None else precision
    scaled = round(fraction * 16**places)
    whole, rest = divmod(scaled, 16**places)
    digits = f"{rest:0{places}x}" if places else ""
    if precision is None:
        digits = digits.rstrip("0")
    return f"0x{whole:x}{'.' if digits else ''}{digits}p{exponent:+d}"


def _pad(directive: _Directive, prefix: str, digits: str, zeros: bool) -> str:
    width = int(directive.width or 0)
    if "-" in directive.flags:
        return (prefix + digits).ljust(width)
    if "0" in directive.flags and zeros:
        if digits.startswith(("0x", "0X")):
            prefix, digits = prefix + digits[:2], digits[2:]
        return prefix + digits.rjust(width - len(prefix), "0")
    return (prefix + digits).rjust(width)
