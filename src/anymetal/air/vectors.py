"""Functions on vectors, written as IR in terms of those on scalars (air/functions).

C++ passes vectors otherwise than AIR does, so that the parts are handed over one by one. A matrix
of a simdgroup is a vector too: a lane's two elements (rewrite.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anymetal.ir import PTR, VOID, Signature, Type, Vector

_VECTOR = re.compile(r"\.v\d+((?:bf|f|i)\d+)")
_MATRIX = re.compile(r"air\.simdgroup_matrix_8x8_(\w+?)\.")
_ELEMENT = re.compile(r"v64(bf16|f16|f32)")


@dataclass(frozen=True)
class Written:
    """Text of a function, and the functions of a family that it calls."""

    text: str
    needs: tuple[str, ...]


class _Body:
    """The instructions of a function that is being written."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self._count = 0

    def value(self, text: str) -> str:
        name = f"%v{self._count}"
        self._count += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def element(self, parameter: int, index: int) -> tuple[str, str]:
        """Type and name of one part of a parameter; of a scalar, the parameter itself."""
        kind = self.signature.parameters[parameter].type
        if not isinstance(kind, Vector):
            return str(kind), f"%a{parameter}"
        return str(kind.element), self.value(f"extractelement {kind} %a{parameter}, i32 {index}")

    def parts(self, parameter: int) -> list[tuple[str, str]]:
        kind = self.signature.parameters[parameter].type
        count = kind.count if isinstance(kind, Vector) else 1
        return [self.element(parameter, index) for index in range(count)]

    def call(self, result: Type, name: str, given: Sequence[tuple[str, str]]) -> str:
        types = ", ".join(type_ for type_, _ in given)
        self.declared[name] = f"declare {result} @{name}({types})"
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in given)})"
        if result is VOID:
            self.lines.append(f"  {text}")
            return ""
        return self.value(text)

    def written(self, ending: str, attributes: str) -> Written:
        head = self.signature
        given = ", ".join(f"{p.type} %a{n}" for n, p in enumerate(head.parameters))
        text = "\n".join(
            [
                f"define internal {head.type} @{head.name}({given}) {attributes} {{",
                *self.lines,
                f"  ret {ending}",
                "}",
            ]
        )
        return Written(text, tuple(self.declared))

    @property
    def declarations(self) -> list[str]:
        return list(self.declared.values())


def scalar_name(name: str) -> str:
    """`air.fma.v4f32` works on each part as `air.fma.f32` does."""
    return _VECTOR.sub(r".\1", name)


def write(signature: Signature, attributes: str) -> tuple[Written, list[str]] | None:
    """A function on vectors, and declarations of what it calls; None where there is no rule."""
    body = _Body(signature)
    matrix = _MATRIX.match(signature.name)
    if matrix is not None:
        ending = _matrix(body, matrix[1])
    elif signature.name.startswith("air.dot."):
        given = [part for number in (0, 1) for part in body.parts(number)]
        result = body.call(signature.type, f"am.{signature.name}", given)
        ending = f"{signature.type} {result}"
    elif re.fullmatch(r"air\.(all|any)\.v\d+i1", signature.name):
        ending = _vote(body)
    elif isinstance(signature.type, Vector) and _VECTOR.search(signature.name):
        ending = _each(body, signature.type)
    else:
        return None
    if ending is None:
        return None
    return body.written(ending, attributes), body.declarations


def _each(body: _Body, kind: Vector) -> str:
    """One call for each part."""
    result = "poison"
    for index in range(kind.count):
        given = [body.element(n, index) for n in range(len(body.signature.parameters))]
        one = body.call(kind.element, scalar_name(body.signature.name), given)
        result = body.value(f"insertelement {kind} {result}, {kind.element} {one}, i32 {index}")
    return f"{kind} {result}"


def _vote(body: _Body) -> str:
    """Whether all or any of the parts are true."""
    operation = "and" if body.signature.name.startswith("air.all") else "or"
    result, *others = (name for _, name in body.parts(0))
    for other in others:
        result = body.value(f"{operation} i1 {result}, {other}")
    return f"i1 {result}"


def _matrix(body: _Body, operation: str) -> str | None:
    """A call with a place for the two elements that go in or come out."""
    signature = body.signature
    element = _ELEMENT.search(signature.name)
    if element is None:
        return None
    is_store = operation == "store"
    kind = signature.parameters[0].type if is_store else signature.type
    place = body.value(f"alloca {kind}, align 8")
    if is_store:
        body.lines.append(f"  store {kind} %a0, ptr {place}, align 8")
    given = [(str(PTR), place)]
    if operation in ("load", "store"):
        name, more = _memory(body, operation, element[0])
        given += more
    elif operation == "multiply_accumulate":
        name = f"am.{signature.name}"
        given += [part for n in range(3) for part in body.parts(n)]
    elif operation in ("init_diag", "init_filled"):
        name = f"am.air.simdgroup_matrix_8x8_{operation}.{element[0]}"
        given += body.parts(0)
    else:
        return None
    body.call(VOID, name, given)
    if is_store:
        return "void"
    result = body.value(f"load {kind}, ptr {place}, align 8")
    return f"{kind} {result}"


def _memory(body: _Body, operation: str, element: str) -> tuple[str, list[tuple[str, str]]]:
    """The function of a load or store, which AIR 2.8 gives strides, and what it takes."""
    first = 1 if operation == "store" else 0
    parameters = body.signature.parameters
    given = body.parts(first)
    if isinstance(parameters[-1].type, Vector):
        name = f"am.air.simdgroup_matrix_8x8_{operation}.strided.{element}"
        return name, given + body.parts(first + 2) + body.parts(first + 3)
    name = f"am.air.simdgroup_matrix_8x8_{operation}.{element}"
    rest = body.parts(first + 1) + body.parts(first + 2) + body.parts(first + 3)
    return name, given + rest
