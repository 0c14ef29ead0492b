"""Small plots as SVG text: no library, no script, readable in light and in dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

COLOURS = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#997700", "#bbbbbb")
_STYLE = (
    ":root{color-scheme:light dark}"  # also where the plot is a file of its own
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#444}"
    "@media(prefers-color-scheme:dark){text{fill:#bbb}}"
)
Point = tuple[float, float]


def bars(
    title: str, rows: Mapping[str, Mapping[str, float]], *, limit: float, most: float = 4.0
) -> str:
    """Horizontal bars, one group a row; a line stands at `limit`. Longer than `most` are cut."""
    series = sorted({name for values in rows.values() for name in values}, key=_first_seen(rows))
    left, width, thick = 24 + 7.2 * max(map(len, rows), default=0), 440, 9
    group = thick * max(len(series), 1) + 8
    height = 76 + group * len(rows)
    scale = width / most
    parts = [_text(10, 20, title, bold=True), *_legend(series, left)]
    for number, (name, values) in enumerate(rows.items()):
        top = 48 + number * group
        parts.append(_text(left - 8, top + group / 2, name, anchor="end"))
        for place, one in enumerate(series):
            if one in values:
                length = min(values[one], most) * scale
                parts.append(
                    f'<rect x="{left:.1f}" y="{top + place * thick}" width="{max(length, 1):.1f}"'
                    f' height="{thick - 1}" fill="{_colour(place)}">'
                    f"<title>{escape(f'{name} {one}: {values[one]:.3g}')}</title></rect>"
                )
                value = f"{values[one]:.2g}" + (", cut" if values[one] > most else "")
                parts.append(_text(left + length + 4, top + place * thick + 8, value, small=True))
    x = left + limit * scale
    parts.append(_line(x, 40, x, height - 24, "#cc3311"))
    parts.append(_text(x, height - 10, f"limit {limit:g}", anchor="middle"))
    parts.append(_axis(left, height - 24, width))
    for tick in range(int(most) + 1):
        if tick != limit:
            parts.append(_text(left + tick * scale, height - 10, f"{tick}", anchor="middle"))
    return _document(left + width + 60, height, parts)


def lines(
    title: str,
    series: Mapping[str, Sequence[Point]],
    *,
    across: str,
    up: str = "",
    level: float | None = 1.0,
    values: Mapping[str, str] | None = None,
) -> str:
    """Points joined by lines, both axes logarithmic and named; a line stands at `level`. The legend
    has the values of each series: what it goes through, or what `values` says."""
    points = [point for one in series.values() for point in one]
    width, height, left, top = 560, 320, 60, 50
    heights = [y for _, y in points] + ([] if level is None else [level / 2, level * 2])
    x_of = _log_axis([x for x, _ in points], left, left + width)
    y_of = _log_axis(heights, top + height, top)
    middle = left + width / 2
    parts = [
        _text(10, 20, title, bold=True),
        _text(middle, top + height + 40, across, anchor="middle"),
        _text(left, top - 8, up),
    ]
    parts += [_line(left, top, left, top + height, "#888"), _axis(left, top + height, width)]
    for y in _ticks(heights, 2):
        parts.append(_line(left, y_of(y), left + width, y_of(y), "#8884"))
        parts.append(_text(left - 6, y_of(y) + 4, f"{y:g}", anchor="end"))
    for x in _ticks([x for x, _ in points], 10):
        parts.append(_line(x_of(x), top + height, x_of(x), top + height + 5, "#888"))
        parts.append(_text(x_of(x), top + height + 18, _tick(x), anchor="middle"))
    if level is not None:
        parts.append(_line(left, y_of(level), left + width, y_of(level), "#cc3311"))
    for number, (name, one) in enumerate(series.items()):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in sorted(one))
        colour = _colour(number)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3" fill="{colour}">'
            f"<title>{escape(f'{name}: {y:.2f} at {x:,.0f}')}</title></circle>"
            for x, y in one
        ]
        parts.append(
            f'<text x="{left + width + 12}" y="{top + 14 + 16 * number}"'
            f' style="fill:{colour}">{escape(_named(name, one, values or {}))}</text>'
        )
    tall = max(top + height + 60, top + 30 + 16 * len(series))
    longest = max(len(_named(name, one, values or {})) for name, one in series.items())
    return _document(left + width + 24 + 7.2 * longest, tall, parts)


def _named(name: str, points: Sequence[Point], values: Mapping[str, str]) -> str:
    low, high = min(y for _, y in points), max(y for _, y in points)
    span = f"{low:.2g}" if low == high else f"{low:.2g} to {high:.2g}"
    return f"{name}: {values.get(name, span)}"


def roofline(title: str, roofs: Mapping[str, Point], intensity: float) -> str:
    """Operations a second over operations a byte: for each chip its (GB/s, GFLOP/s).

    The vertical line is the kernel's; where it meets a roof is the most that the chip can do.
    """
    edges = [rate / bandwidth for bandwidth, rate in roofs.values()]
    low, high = min([intensity, *edges]) / 8, max([intensity, *edges]) * 8
    series = {
        name: [(x, min(rate, bandwidth * x)) for x in (low, rate / bandwidth, high)]
        for name, (bandwidth, rate) in roofs.items()
    }
    least = min(y for points in series.values() for _, y in points)
    most = max(y for points in series.values() for _, y in points)
    series["this kernel"] = [(intensity, least), (intensity, most)]
    values = {name: f"{gb:g} GB/s, {rate:,.0f} GFLOP/s" for name, (gb, rate) in roofs.items()}
    values["this kernel"] = f"{intensity:.3g} operations a byte"
    return lines(title, series, across="operations a byte", up="GFLOP/s", level=None, values=values)


def _log_axis(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log(min(values)), math.log(max(values))
    span = (high - low) or 1.0
    return lambda value: start + (math.log(value) - low) / span * (end - start)


def _ticks(values: Sequence[float], base: int) -> list[float]:
    """Powers of the base within the values, or their ends where there are none."""
    low, high = min(values), max(values)
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    return [float(base) ** power for power in range(first, last + 1)] or [low, high]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _first_seen(rows: Mapping[str, Mapping[str, float]]) -> Callable[[str], int]:
    order: dict[str, int] = {}
    for values in rows.values():
        for name in values:
            order.setdefault(name, len(order))
    return order.__getitem__


def _legend(series: Sequence[str], left: float) -> list[str]:
    parts = []
    for place, name in enumerate(series):
        x = left + place * 110
        parts.append(f'<rect x="{x}" y="28" width="10" height="10" fill="{_colour(place)}"/>')
        parts.append(_text(x + 14, 37, name))
    return parts


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _axis(x: float, y: float, width: float) -> str:
    return _line(x, y, x + width, y, "#888")


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    bold: bool = False,
    small: bool = False,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    weight += ' style="font-size:8px"' if small else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def _document(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}"><style>{_STYLE}</style>'
        + "".join(parts)
        + "</svg>"
    )
