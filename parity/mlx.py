"""MLX's kernels: does our front end accept them, with the same arguments and operations?"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from anymetal.air.container import Metallib
from anymetal.air.frontend import AirFrontend
from anymetal.air.llvm import disassembled
from anymetal.air.metadata import Notes, read_notes
from anymetal.engines.choose import checking_target
from anymetal.engines.contract import Executable
from anymetal.engines.registry import METAL
from anymetal.errors import AnymetalError
from anymetal.ir import parse
from anymetal.launch.call import PlainKernel
from anymetal.launch.metallib import load_metallib
from anymetal.launch.shader import ShaderLibrary
from anymetal.msl.arguments import describe_kernels
from anymetal.msl.check import check_all
from anymetal.nouns import Argument, Scalar, Source
from parity import executed, functions, operations, wheels
from parity.fences import fenced_copy
from parity.inputs import make_inputs
from parity.launches import Case, Launch, Undefined, description_of
from parity.templates import AnyType, Template, template_of
from parity.verdict import Verdict

BATCH = 48


class NoDescription(Exception):
    """Nobody has written how a kernel is launched."""


@dataclass(frozen=True)
class Noted:
    """A kernel of the metallib with its notes and its template."""

    name: str
    notes: Notes
    template: Template

    @property
    def launches(self) -> list[Launch]:
        """The ways to launch it; all of them have the same function constants."""
        describe = description_of(self.template.function)
        if describe is None:
            raise NoDescription(f"no description of {self.template.function}")
        arguments = tuple(self.template.arguments.split(", "))
        return describe(Case(self.name, self.template.function, arguments))

    @property
    def constants(self) -> dict[str, Scalar]:
        """The function constants that Apple's code has, as the description sets them."""
        values = self.launches[0].constants
        return {one.constant.name: values[one.constant.name] for one in self.notes.constants}


@functools.cache
def library() -> Metallib:
    return wheels.kernels_of(wheels.mlx_library())


def kernels() -> tuple[str, ...]:
    return library().kernels


@functools.lru_cache(maxsize=2 * BATCH)
def noted(name: str) -> Noted | None:
    """The kernel, or None where the wheel has no text of it."""
    if template_of(name, AnyType()) is None:
        return None
    bitcode = library().function(name).bitcode
    notes = read_notes(parse(disassembled(bitcode, name)), name)
    types = {one.argument.name: one.argument.type for one in notes.parameters}
    template = template_of(name, types)
    assert template is not None
    return Noted(name, notes, template)


def has_source(name: str) -> bool:
    return template_of(name, AnyType()) is not None


def batches(names: Iterable[str]) -> Iterator[list[Noted]]:
    """Kernels of the same headers together: they are compiled as one source."""
    waiting: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        template = template_of(name, AnyType())
        if template is None:
            continue
        group = waiting.setdefault(template.headers, [])
        group.append(name)
        if len(group) == BATCH:
            yield _noted(waiting.pop(template.headers))
    yield from map(_noted, waiting.values())


def _noted(names: Sequence[str]) -> list[Noted]:
    return [one for name in names if (one := noted(name)) is not None]


def source_of(group: Sequence[Noted]) -> Source:
    text = group[0].template.prologue + "".join(one.template.text(one.name) for one in group)
    return Source(text, name="mlx.metal", include_dirs=(wheels.mlx_headers(),))


# ---- accepted, and with the same arguments -------------------------------------------------------


def judge_tables(names: Iterable[str]) -> Iterator[Verdict]:
    """Whether kernels compile, and whether their argument tables are Apple's."""
    for group in batches(names):
        yield from _tables(group)


def _tables(group: Sequence[Noted]) -> Iterator[Verdict]:
    source = source_of(group)
    try:
        prepared = METAL.prepared(source)
        check_all(prepared, checking_target())
        found = describe_kernels(prepared, checking_target())
    except AnymetalError as error:
        if len(group) > 1:
            half = len(group) // 2
            yield from _tables(group[:half])
            yield from _tables(group[half:])
        else:
            yield replace(verdict_of(group[0]), refused=first_line(error))
        return
    yield from compared_tables(group, found)


def compared_tables(
    group: Sequence[Noted], found: Mapping[str, Sequence[Argument]]
) -> Iterator[Verdict]:
    for one in group:
        expected = [noted.argument for noted in one.notes.parameters]
        yield replace(verdict_of(one), arguments=difference(expected, found[one.name]))


@functools.cache
def apples() -> ShaderLibrary:
    """Apple's kernels, ready to be called."""
    return load_metallib(wheels.mlx_library())


def verdict_of(one: Noted) -> Verdict:
    return Verdict(one.name, family=one.template.function)


def difference(apple: Sequence[Argument], ours: Sequence[Argument]) -> str:
    """Where two argument tables differ, in words; nothing where they do not."""
    if len(apple) != len(ours):
        return f"{len(apple)} parameters, ours {len(ours)}"
    for theirs, own in zip(map(_comparable, apple), map(_comparable, ours), strict=True):
        for name in (field.name for field in fields(theirs) if theirs != own):
            value, other = getattr(theirs, name), getattr(own, name)
            if value != other:
                return f"'{theirs.name}': {name} is {value!r}, ours {other!r}"
    return ""


_PLAIN = re.compile(r"(bool|half|bfloat|float|u?(char|short|int|long)|signed char)[234]?")


def _comparable(one: Argument) -> Argument:
    """The argument without what is only spelling: names of types that are an author's."""
    type_ = one.type if _PLAIN.fullmatch(one.type) else "an author's"
    type_ = type_.replace("signed char", "char")  # int8_t, which Apple's notes call char
    return replace(one, type=type_, fields=(), name=one.name)


def first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
    return lines[0][:300]


# ---- the same instructions -----------------------------------------------------------------------


def judge_structure(names: Iterable[str]) -> Iterator[Verdict]:
    """The fused and plain operations of a kernel's program and the functions that it calls."""
    for group in batches(names):
        source = source_of(group)
        for one in group:
            try:
                yield replace(verdict_of(one), results=tuple(_structure(one, source)))
            except (NoDescription, Undefined) as error:  # nor are its constants known
                yield replace(verdict_of(one), results=(("structure", f"undefined: {error}"),))
            except AnymetalError as error:
                yield replace(verdict_of(one), refused=first_line(error))


def _structure(one: Noted, source: Source) -> Iterator[tuple[str, str]]:
    """What is compared, and `equal` or how Apple's program and ours differ."""
    frontend, ours = AirFrontend(), METAL
    of_apple = (apples()._compiler.source, one.name, one.constants, checking_target())
    of_ours = (source, one.name, one.constants)
    pair = (
        frontend.program(*of_apple, optimise=True),
        ours.program(*of_ours, checking_target(), optimise=True),
    )
    word = operations.compared(*pair)
    if word != "equal":
        word = executed.compared(*pair, functools.partial(_launch_counted, one))
    yield "structure", word
    yield (
        "functions",
        functions.compared(
            frontend.program(*of_apple, optimise=False),
            ours.program(*of_ours, functions.TARGET, optimise=False),
        ),
    )


def _launch_counted(one: Noted, executable: Executable) -> None:
    """All launches of a kernel, on one processor as counters want it."""
    kernel = PlainKernel(executable, {}, apples()._compiler, workers=1)
    for launch in one.launches:
        inputs = make_inputs(one.name, [noted.argument for noted in one.notes.parameters], launch)
        given = tuple(inputs.arguments(fenced_copy(inputs.block)))
        kernel.call(None, given, launch.threads, launch.group)
