"""Small sources for the tests of the front end."""

from __future__ import annotations

from collections.abc import Mapping

from anymetal.engines.cpu.target import HOST
from anymetal.msl import check, compile, prepare
from anymetal.nouns import Prepared, Program, Scalar, Source

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
PLAIN = "device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]"


def check_all(unit: Prepared, *, instantiate: bool = True) -> None:
    """Whether the text compiles for this machine."""
    check.check_all(unit, HOST, instantiate=instantiate)


def compile_program(
    unit: Prepared,
    name: str,
    constants: Mapping[int | str, Scalar] | None = None,
    *,
    optimise: bool = True,
) -> Program:
    """One kernel for this machine."""
    return compile.compile_program(unit, name, constants or {}, HOST, optimise=optimise)


def prepared(text: str) -> Prepared:
    """The text behind Metal's header; its first line is line 3."""
    return prepare(Source(HEADER + text))


def kernel(body: str, parameters: str = PLAIN, before: str = "") -> str:
    """A kernel called k with this body."""
    return f"{before}kernel void k({parameters}) {{\n  {body}\n}}\n"


def compiled(text: str, name: str = "k", **constants: bool | int | float) -> Program:
    unit = prepared(text)
    check_all(unit)
    named: dict[int | str, Scalar] = dict(constants)
    return compile_program(unit, name, named)


def one_line(text: str) -> str:
    """Text with every run of white space made one space."""
    return " ".join(text.split())
