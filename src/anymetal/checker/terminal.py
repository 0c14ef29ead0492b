"""Findings go in, text for people comes out: coloured in a terminal, plain in a pipe.

error[race] in softmax_rows: race in threadgroup float partial[8], element 3
  write  thread 96 of threadgroup 0, lane 0   softmax_rows.metal:36:19  partial[simd] = total;
                                                                                      ^
  read   thread 0 of threadgroup 0, lane 0    softmax_rows.metal:41:12  sum += partial[i];
                                                                               ^
  partial[3], seen 7 times
  launch 2, at train.py:30
  Put threadgroup_barrier(mem_flags::mem_threadgroup) between lines 36 and 41.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from anymetal.checker.finding import Finding, Place, Triple
from anymetal.checker.inline_source import UNNAMED
from anymetal.checker.paths import shown_path
from anymetal.checker.report import Report
from anymetal.nouns import Position

if TYPE_CHECKING:
    from rich.text import Text

_MOST_EXCERPT = 100
_CUT = "..."
_ERROR = "bold red"
_WARNING = "bold yellow"
_EMPHASIS = "bold"
_QUIET = "dim"
_ADVICE = "cyan"


class Span(NamedTuple):
    """A piece of a line, and how a terminal shows it (a style of rich)."""

    text: str
    style: str = ""


Line = list[Span]


def print_report(report: Report, stream: TextIO | None = None, color: bool | None = None) -> None:
    """Print all findings and the summary line; to stdout, with colour where it is a terminal."""
    lines = [line for finding in report.findings for line in [*finding_lines(finding), []]]
    _print([*lines, summary_line(report)], stream or sys.stdout, color)


def print_findings(
    findings: Iterable[Finding], stream: TextIO | None = None, color: bool | None = None
) -> None:
    """Print some findings, without a summary."""
    lines = [line for finding in findings for line in finding_lines(finding)]
    if lines:
        _print(lines, stream or sys.stdout, color)


def print_rest(report: Report, stream: TextIO | None = None, color: bool | None = None) -> None:
    """Print a report whose errors were printed when they were found: those in a line each."""
    lines = [_short(finding) for finding in report.errors]
    lines += [line for finding in report.warnings for line in finding_lines(finding)]
    _print([*lines, summary_line(report)], stream or sys.stdout, color)


def plain_report(report: Report) -> str:
    """The findings and the summary line without colours."""
    blocks = [plain_finding(finding) for finding in report.findings]
    return "\n\n".join([*blocks, _plain([summary_line(report)])])


def plain_finding(finding: Finding) -> str:
    """One finding without colours."""
    return _plain(finding_lines(finding))


def finding_lines(finding: Finding) -> list[Line]:
    """One finding as styled lines; the first access of a race stands first."""
    lines = [_headline(finding)]
    places = [place for place in (finding.other, finding.place) if place and _tells(place)]
    lines += _place_lines(places)
    for detail in filter(None, (_detail(finding), _origin(finding))):
        lines.append([Span("  "), Span(detail)])
    if finding.hint:
        lines.append([Span("  "), Span(finding.hint, _ADVICE)])
    return lines


def summary_line(report: Report) -> Line:
    """Kernels run, launches, findings."""
    launches = report.launches
    if not launches and not report.findings:
        return [Span("anymetal check: no kernel was launched")]
    spans = [
        Span("anymetal check: "),
        Span(f"{counted(len(launches), 'kernel')}, "),
        Span(f"{counted(sum(launches.values()), 'launch', 'launches')}, "),
        *_verdict(report),
    ]
    if report.silenced:
        spans.append(Span(f", {len(report.silenced)} silenced", _QUIET))
    return spans


def summary(report: Report) -> str:
    """The summary line without colours."""
    return _plain([summary_line(report)])


def counted(number: int, one: str, many: str = "") -> str:
    """`1 launch`, `2 launches`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def where(place: Place) -> str:
    """`file:line:column`, or nothing."""
    position = place.position
    return f"{_line(position)}:{position.column}" if position else ""


def who(place: Place) -> str:
    """`thread 96 of threadgroup 0, lane 0`, as far as it is known."""
    flat = all(
        triple is None or triple[1:] == (0, 0) for triple in (place.thread, place.threadgroup)
    )
    parts = []
    if place.thread is not None:
        parts.append(f"thread {_coordinates(place.thread, flat)}")
    if place.threadgroup is not None:
        parts.append(f"threadgroup {_coordinates(place.threadgroup, flat)}")
    text = " of ".join(parts)
    if place.lane is not None:
        text += f"{', ' if text else ''}lane {place.lane}"
    return text


def _verdict(report: Report) -> Line:
    errors, warnings = len(report.errors), len(report.warnings)
    if not errors and not warnings:
        return [Span("nothing found", "green")]
    spans = []
    if errors:
        spans.append(Span(counted(errors, "error"), _ERROR))
    if warnings:
        spans.append(Span(counted(warnings, "warning"), _WARNING))
    return [spans[0], Span(", "), spans[1]] if len(spans) == 2 else spans


def _headline(finding: Finding) -> Line:
    style = _ERROR if finding.severity == "error" else _WARNING
    return [
        Span(f"{finding.severity}[{finding.kind}]", style),
        Span(" in "),
        Span(finding.kernel, _EMPHASIS),
        Span(f": {finding.message}"),
    ]


def _short(finding: Finding) -> Line:
    """The headline, where and how often."""
    at = where(finding.place)
    often = f", seen {counted(finding.count, 'time')}"
    return [*_headline(finding), Span(f"{' at ' if at else ''}{at}{often}", _QUIET)]


def _tells(place: Place) -> bool:
    return bool(place.position or place.excerpt or place.thread or place.threadgroup)


def _place_lines(places: Sequence[Place]) -> list[Line]:
    """A line for each place, in columns: access, thread, file and line, source text; and a caret
    below the column."""
    rows = [(place.access, who(place), where(place)) for place in places]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines: list[Line] = []
    for place, row in zip(places, rows, strict=True):
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True) if width]
        front = "  " + "  ".join([*cells, ""])
        text, caret = excerpt(place)
        lines.append([Span(front), Span(text, _EMPHASIS)])
        if caret is not None:
            lines.append([Span(" " * (len(front) + caret)), Span("^", _ADVICE)])
    return lines


def excerpt(place: Place) -> tuple[str, int | None]:
    """The place's line without its indent, and where in it the column is. A long line is cut on
    both sides of the column."""
    line = place.excerpt.replace("\t", " ").rstrip()
    text = line.lstrip()
    at = (place.column or 0) - 1 - (len(line) - len(text))
    caret = at if 0 <= at < len(text) else None
    if len(text) <= _MOST_EXCERPT:
        return text, caret
    room = _MOST_EXCERPT - 2 * len(_CUT)
    start = min(max(0, (caret or 0) - room // 2), len(text) - room)
    front = _CUT if start else ""
    shown = f"{front}{text[start : start + room]}{_CUT if start + room < len(text) else ''}"
    return shown, None if caret is None else caret - start + len(front)


def _origin(finding: Finding) -> str:
    """Which launch it was, who asked for it, and where its text is, if that is in no file."""
    launch = finding.launch
    if launch is None:
        return ""
    parts = [f"launch {launch.number}"]
    if launch.caller:
        parts.append(f"at {_line(launch.caller)}")
    if launch.test:
        parts.append(f"in {launch.test}")
    position = finding.place.position
    if launch.source and (position is None or position.file == UNNAMED):
        parts.append(f"source from {_line(launch.source)}")
    return ", ".join(parts)


def _line(position: Position) -> str:
    return f"{shown_path(position.file)}:{position.line}"


def _detail(finding: Finding) -> str:
    """Buffer, index and how often."""
    parts = []
    if finding.buffer is not None:
        index = "" if finding.index is None else f"[{finding.index}]"
        parts.append(f"{finding.buffer}{index}")
    elif finding.index is not None:
        parts.append(f"index {finding.index}")
    if finding.count > 1 and finding.kind != "unwritten_output":  # its count is of elements
        parts.append(f"seen {finding.count} times")
    return ", ".join(parts)


def _coordinates(triple: Triple, flat: bool) -> str:
    return str(triple[0]) if flat else f"({triple[0]}, {triple[1]}, {triple[2]})"


def _plain(lines: Iterable[Line]) -> str:
    return "\n".join("".join(span.text for span in line).rstrip() for line in lines)


def _print(lines: Sequence[Line], stream: TextIO, color: bool | None) -> None:
    """Write lines; rich decides about colour (NO_COLOR, dumb terminals), unless told."""
    from rich.console import Console  # noqa: PLC0415  (a pipe and a quiet process never need it)

    console = Console(file=stream, force_terminal=color, soft_wrap=True, highlight=False)
    if not console.is_terminal:
        stream.write(_plain(lines) + "\n")
        stream.flush()
        return
    for line in lines:
        console.print(_text(line))


def _text(line: Line) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text.assemble(*((span.text, span.style) for span in line))
