"""Small sources for the tests of the front end."""

from __future__ import annotations

from anymetal.msl import check_all, compile_program, prepare
from anymetal.nouns import Prepared, Program, Source

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
PLAIN = "device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]"


def prepared(text: str) -> Prepared:
    """The text behind Metal's header; its first line is line 3."""
    return prepare(Source(HEADER + text))


def kernel(body: str, parameters: str = PLAIN, before: str = "") -> str:
    """A kernel called k with this body."""
    return f"{before}kernel void k({parameters}) {{\n  {body}\n}}\n"


def compiled(text: str, name: str = "k", **constants: bool | int | float) -> Program:
    unit = prepared(text)
    check_all(unit)
    return compile_program(unit, name, constants)


def one_line(text: str) -> str:
    """Text with every run of white space made one space."""
    return " ".join(text.split())
