"""MLX's kernels: does our front end accept them, see the same arguments, and compute the same?"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch

from anymetal.air.container import Metallib
from anymetal.air.frontend import AirFrontend
from anymetal.air.llvm import disassembled
from anymetal.air.metadata import Notes, read_notes
from anymetal.engines.choose import checking_target
from anymetal.engines.compiler import Compiler
from anymetal.engines.registry import METAL
from anymetal.errors import AnymetalError
from anymetal.ir import parse
from anymetal.launch.kernel import Kernel
from anymetal.launch.metallib import load_metallib
from anymetal.launch.shader import ShaderLibrary
from anymetal.msl.arguments import describe_kernels
from anymetal.msl.check import check_all
from anymetal.nouns import Argument, Scalar, Source
from parity import functions, operations, wheels
from parity.inputs import Inputs, NoValue, dtype_of, make_inputs, type_of_elements
from parity.launches import Case, Launch, Undefined, description_of
from parity.templates import AnyType, Template, template_of
from parity.verdict import Verdict

ENGINES = ("simdgroup", "coroutine")
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
def _library() -> Metallib:
    return wheels.kernels_of(wheels.mlx_library())


def kernels() -> tuple[str, ...]:
    return _library().kernels


@functools.lru_cache(maxsize=2 * BATCH)
def noted(name: str) -> Noted | None:
    """The kernel, or None where the wheel has no text of it."""
    if template_of(name, AnyType()) is None:
        return None
    bitcode = _library().function(name).bitcode
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
            yield replace(_verdict(group[0]), refused=_first_line(error))
        return
    yield from _compared_tables(group, found)


def _compared_tables(
    group: Sequence[Noted], found: Mapping[str, Sequence[Argument]]
) -> Iterator[Verdict]:
    for one in group:
        expected = [noted.argument for noted in one.notes.parameters]
        yield replace(_verdict(one), arguments=difference(expected, found[one.name]))


def _verdict(one: Noted) -> Verdict:
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


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "error:" in line] or [str(error)]
    return lines[0][:300]


# ---- the same results ----------------------------------------------------------------------------


def judge_results(
    names: Iterable[str],
    engines: Sequence[str] = ENGINES,
    launched: Callable[[str], bool] = lambda name: True,
) -> Iterator[Verdict]:
    """Runs kernels from AIR and from source, on both engines; compares their arguments too.

    Of kernels that are not `launched` the arguments are all that is compared.
    """
    for group in batches(names):
        try:
            compiler = Compiler(source_of(group))
        except AnymetalError as error:
            if len(group) > 1:
                half = len(group) // 2
                for part in (group[:half], group[half:]):
                    yield from judge_results([one.name for one in part], engines, launched)
            else:
                yield replace(_verdict(group[0]), refused=_first_line(error))
            continue
        yield from _described([one for one in group if not launched(one.name)], compiler)
        for one in group:
            if launched(one.name):
                yield _judged(one, compiler, engines)


def _described(group: Sequence[Noted], compiler: Compiler) -> Iterator[Verdict]:
    """Compares arguments without machine code."""
    if group:
        found = describe_kernels(METAL.prepared(compiler.source), checking_target())
        yield from _compared_tables(group, found)


def _judged(one: Noted, compiler: Compiler, engines: Sequence[str]) -> Verdict:
    verdict, found = _verdict(one), []
    try:
        described = one.launches
        tables = [noted.argument for noted in one.notes.parameters]
        inputs = [make_inputs(one.name, tables, launch) for launch in described]
    except (NoDescription, NoValue, Undefined) as error:
        word = "undefined" if isinstance(error, Undefined) else "not run"
        return replace(verdict, results=tuple((name, f"{word}: {error}") for name in engines))
    for engine in engines:
        os.environ["ANYMETAL_ENGINE"] = engine
        try:
            kernels = _kernels(one, compiler)
        except AnymetalError as error:
            if "cannot run on the" not in str(error):
                return replace(verdict, refused=_first_line(error))
            found.append((engine, "engine: " + _first_line(error)[:120]))
            continue
        # Function constants leave parameters out.
        there = {argument.name for argument in kernels[1].arguments}
        present = [argument for argument in tables if argument.name in there]
        verdict = replace(verdict, arguments=difference(present, kernels[1].arguments))
        words = [_compared(kernels, *each) for each in zip(described, inputs, strict=True)]
        found.append((engine, max(words, key=_badness)))
    return replace(verdict, results=tuple(found))


def _kernels(one: Noted, compiler: Compiler) -> tuple[Kernel, Kernel]:
    """Apple's and ours, with the same function constants."""
    values = one.launches[0].constants
    known = {constant.name for constant in compiler.outline.constants}
    ours = ShaderLibrary(compiler).specialize(
        one.name, {name: value for name, value in values.items() if name in known}
    )
    apples = ShaderLibrary(_apples()._compiler).specialize(one.name, dict(one.constants))
    return apples, ours


@functools.cache
def _apples() -> ShaderLibrary:
    return load_metallib(wheels.mlx_library())


def _badness(word: str) -> int:
    """How much a word says: of several launches the worst is kept."""
    known = ("equal", "NaN signs", "equal, nothing written")
    return known.index(word) if word in known else len(known)


def _compared(kernels: Sequence[Kernel], launch: Launch, inputs: Inputs) -> str:
    """`equal`, `equal, nothing written`, `NaN signs`, or how many elements differ."""
    blocks = []
    try:
        for kernel in kernels:
            block = inputs.block.clone()
            arguments = inputs.arguments(block)
            kernel(*arguments, threads=launch.threads, group_size=launch.group)
            blocks.append(block)
    except (AnymetalError, RuntimeError) as error:
        return f"not run: {str(error)[:160]}"
    if torch.equal(*blocks):
        return "equal, nothing written" if torch.equal(blocks[0], inputs.block) else "equal"
    return _difference(inputs, *blocks)


def _difference(inputs: Inputs, first: torch.Tensor, second: torch.Tensor) -> str:
    """Which elements of two blocks differ, in words."""
    inside = torch.zeros(first.numel(), dtype=torch.bool)
    worst = "NaN signs"
    for place in inputs.places:
        part = slice(place.start, place.start + place.size)
        inside[part] = True
        dtype = dtype_of(type_of_elements(place.argument))
        one, other = (block[part].clone().view(dtype) for block in (first, second))
        bits = [side.view(torch.uint8).view(-1, dtype.itemsize) for side in (one, other)]
        differs = (bits[0] != bits[1]).any(1)
        if dtype.is_floating_point:
            differs &= ~(one.isnan() & other.isnan())
        if bool(differs.any()):
            at = int(differs.nonzero()[0, 0])
            worst = f"{int(differs.sum())} elements differ, first {place.argument.name}[{at}]: "
            worst += f"{one[at].item()!r}, ours {other[at].item()!r}"
    if bool(((first != second) & ~inside).any()):
        return "stray writes differ"
    return worst


# ---- the same instructions -----------------------------------------------------------------------


def judge_structure(names: Iterable[str]) -> Iterator[Verdict]:
    """The fused and plain operations of a kernel's program and the functions that it calls."""
    for group in batches(names):
        source = source_of(group)
        for one in group:
            try:
                yield replace(_verdict(one), results=tuple(_structure(one, source)))
            except (NoDescription, Undefined) as error:  # nor are its constants known
                yield replace(_verdict(one), results=(("structure", f"undefined: {error}"),))
            except AnymetalError as error:
                yield replace(_verdict(one), refused=_first_line(error))


def _structure(one: Noted, source: Source) -> Iterator[tuple[str, str]]:
    """What is compared, and `equal` or how Apple's program and ours differ."""
    apples, ours = AirFrontend(), METAL
    of_apple = (_apples()._compiler.source, one.name, one.constants, checking_target())
    of_ours = (source, one.name, one.constants)
    yield (
        "structure",
        operations.compared(
            apples.program(*of_apple, optimise=True),
            ours.program(*of_ours, checking_target(), optimise=True),
        ),
    )
    yield (
        "functions",
        functions.compared(
            apples.program(*of_apple, optimise=False),
            ours.program(*of_ours, functions.TARGET, optimise=False),
        ),
    )
