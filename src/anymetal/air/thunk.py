"""A kernel's parameters -> the function that engines call with a table of buffers and a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anymetal.errors import MetallibError
from anymetal.ir import I32, Integer, Signature, Type, Vector
from anymetal.nouns import Argument

THREAD_MAIN = "am_thread_main"
_POINTER_BYTES = 8


@dataclass
class Thunk:
    """Lines of am_thread_main, and the functions of the machine that it calls."""

    lines: list[str] = field(default_factory=list)
    declared: dict[str, str] = field(default_factory=dict)

    def call(self, result: str, kind: str, name: str, given: str) -> None:
        types = ", ".join(one.split()[0] for one in given.split(", "))
        self.declared[name] = f"declare {kind} @{name}({types})"
        self.lines.append(f"  {result} = call {kind} @{name}({given})")


def write_thunk(
    signature: Signature, arguments: Sequence[Argument | None], attributes: str
) -> tuple[str, tuple[str, ...]]:
    """The text of the function and the names that it needs. None is an argument that function
    constants leave out."""
    thunk = Thunk()
    given = list(_given(thunk, signature, arguments))
    text = "\n".join(
        [
            *thunk.declared.values(),
            # Weak and never inlined: as the function that our own front end writes.
            f"define weak dso_local void @{THREAD_MAIN}(ptr noundef %buffers, ptr noundef %self)"
            f" noinline convergent nounwind {attributes} {{",
            "entry:",
            *thunk.lines,
            f"  call void @{_quoted(signature.name)}({', '.join(given)})",
            "  ret void",
            "}",
        ]
    )
    return text, tuple(thunk.declared)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _given(
    thunk: Thunk, signature: Signature, arguments: Sequence[Argument | None]
) -> Iterator[str]:
    for number, (parameter, argument) in enumerate(
        zip(signature.parameters, arguments, strict=True)
    ):
        name = f"%p{number}"
        if argument is None:
            yield "ptr null"
        elif argument.role == "builtin":
            yield _builtin(thunk, name, parameter.type, argument)
        elif argument.role == "threadgroup":
            thunk.call(name, "ptr", "am.air.dynamic_memory", f"ptr %self, i32 {argument.index}")
            yield f"ptr {name}"
        else:
            offset = _POINTER_BYTES * (argument.index or 0)
            thunk.lines += [
                f"  {name}.place = getelementptr inbounds nuw i8, ptr %buffers, i64 {offset}",
                f"  {name} = load ptr, ptr {name}.place, align 8",
            ]
            yield f"ptr {name}"


def _builtin(thunk: Thunk, name: str, kind: Type, argument: Argument) -> str:
    """A number of the machine, or up to three of them as a vector."""
    scalar = kind.scalar
    if not isinstance(scalar, Integer):
        raise MetallibError(f"parameter '{argument.name}' has the type {kind}, not an integer's")
    count = kind.count if isinstance(kind, Vector) else 1
    parts = []
    for index in range(count):
        part = f"{name}.{index}"
        thunk.call(part, "i32", f"am.air.{argument.builtin}.{index}", "ptr %self")
        if scalar is not I32:
            cast = "trunc" if scalar.bits < 32 else "zext"
            thunk.lines.append(f"  {part}.cast = {cast} i32 {part} to {scalar}")
            part += ".cast"
        parts.append(part)
    if not isinstance(kind, Vector):
        return f"{kind} {parts[0]}"
    vector = "poison"
    for index, part in enumerate(parts):
        thunk.lines.append(
            f"  {name}.v{index} = insertelement {kind} {vector}, {scalar} {part}, i32 {index}"
        )
        vector = f"{name}.v{index}"
    return f"{kind} {vector}"
