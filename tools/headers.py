"""Writes the C++ headers that are made of tables in Python."""

from __future__ import annotations

from anymetal.checker import records
from anymetal.engines.cpu import layout as runtime
from anymetal.machine import layout
from anymetal.machine.table import Header

HEADERS: tuple[Header, ...] = (layout.HEADER, runtime.HEADER, records.HEADER)


def main() -> None:
    for header in HEADERS:
        header.path.write_text(header.text())


if __name__ == "__main__":
    main()
