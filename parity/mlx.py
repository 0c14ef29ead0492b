"""MLX's kernels: does our front end accept them, see the same arguments, and compute the same?"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

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
from parity import functions, wheels
from parity.inputs import Call, dtype_of, make_call
from parity.templates import Template, template_of
from parity.verdict import Verdict

ENGINES = ("simdgroup", "coroutine")
BATCH = 48


@dataclass(frozen=True)
class Noted:
    """A kernel of the metallib with its notes and its template."""

    name: str
    notes: Notes
    template: Template

    @property
    def constants(self) -> dict[str, Scalar]:
        """Function constants: nothing is aligned, batched or there besides."""
        found = (one.constant for one in self.notes.constants)
        return {one.name: False if one.type == "bool" else 1 for one in found}


@functools.cache
def _library() -> Metallib:
    return wheels.kernels_of(wheels.mlx_library())


def kernels() -> tuple[str, ...]:
    return _library().kernels


@functools.cache
def noted(name: str) -> Noted | None:
    """The kernel, or None where the wheel has no text of it."""
    if template_of(name, _Any()) is None:
        return None
    bitcode = _library().function(name).bitcode
    notes = read_notes(parse(disassembled(bitcode, name)), name)
    types = {one.argument.name: one.argument.type for one in notes.parameters}
    template = template_of(name, types)
    assert template is not None
    return Noted(name, notes, template)


class _Any(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "float"


def has_source(name: str) -> bool:
    return template_of(name, _Any()) is not None


def batches(names: Iterable[str]) -> Iterator[list[Noted]]:
    """Kernels of the same headers together: they are compiled as one source."""
    waiting: dict[tuple[str, ...], list[Noted]] = {}
    for name in names:
        one = noted(name)
        if one is None:
            continue
        group = waiting.setdefault(one.template.headers, [])
        group.append(one)
        if len(group) == BATCH:
            yield waiting.pop(one.template.headers)
    yield from waiting.values()


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
    for one in group:
        expected = [noted.argument for noted in one.notes.parameters]
        yield replace(_verdict(one), arguments=difference(expected, found[one.name]))


def _verdict(one: Noted) -> Verdict:
    return Verdict(one.name, family=one.template.function)


def difference(apple: Sequence[Argument], ours: Sequence[Argument]) -> str:
    """Where two argument tables differ, in words; nothing where they do not."""
    if len(apple) != len(ours):
        return f"{len(apple)} parameters, ours {len(ours)}"
    for theirs, own in zip(apple, ours, strict=True):
        for field, value in asdict(_comparable(theirs)).items():
            other = asdict(_comparable(own))[field]
            if value != other:
                return f"'{theirs.name}': {field} is {value!r}, ours {other!r}"
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


def judge_results(names: Iterable[str]) -> Iterator[Verdict]:
    """Runs kernels from AIR and from source, on both engines."""
    for group in batches(names):
        compiler: Compiler | None = None
        try:
            compiler = Compiler(source_of(group))
        except AnymetalError as error:
            if len(group) > 1:
                yield from judge_results([one.name for one in group[: len(group) // 2]])
                yield from judge_results([one.name for one in group[len(group) // 2 :]])
            else:
                yield replace(_verdict(group[0]), refused=_first_line(error))
            continue
        for one in group:
            yield _judged(one, compiler)


def _judged(one: Noted, compiler: Compiler) -> Verdict:
    verdict, found = _verdict(one), []
    for engine in ENGINES:
        os.environ["ANYMETAL_ENGINE"] = engine
        try:
            ours = ShaderLibrary(compiler).specialize(one.name, dict(one.constants))
        except AnymetalError as error:
            if "cannot run on the" not in str(error):
                return replace(verdict, refused=_first_line(error))
            found.append((engine, "engine: " + _first_line(error)[:120]))
            continue
        found.append((engine, _compared(one, ours)))
    return replace(verdict, results=tuple(found))


@functools.cache
def _apples() -> ShaderLibrary:
    return load_metallib(wheels.mlx_library())


def _compared(one: Noted, ours: Kernel) -> str:
    try:
        apples = _apples_kernel(one)
        table = [noted.argument for noted in one.notes.parameters]
        limit = apples.max_threads_per_threadgroup
        outcomes = []
        for kernel in (apples, ours):
            call = make_call(one.name, table, limit)
            before = [call.arguments[index].clone() for index in call.written]
            kernel(*call.arguments, threads=call.threads, group_size=call.group_size)
            outcomes.append((call, before))
    except (AnymetalError, RuntimeError) as error:
        return f"not run: {str(error)[:160]}"
    (first, before), (second, _) = outcomes
    return _word(one, first, second, before)


def _apples_kernel(one: Noted) -> Kernel:
    return ShaderLibrary(_apples()._compiler).specialize(one.name, dict(one.constants))


def _word(one: Noted, first: Call, second: Call, before: Sequence[torch.Tensor]) -> str:
    """`equal`, `equal, nothing written`, `NaN signs`, or how many elements differ."""
    types = {n.argument.index: n.argument.type for n in one.notes.parameters}
    worst, wrote = "equal", False
    for index, old in zip(first.written, before, strict=True):
        mine, other = first.arguments[index], second.arguments[index]
        wrote |= not torch.equal(mine, old)
        if torch.equal(mine, other):
            continue
        dtype = dtype_of(types[index])
        a, b = mine.view(dtype), other.view(dtype)
        same = (
            mine.view(torch.uint8)
            .view(-1, dtype.itemsize)
            .eq(other.view(torch.uint8).view(-1, dtype.itemsize))
            .all(1)
        )
        if dtype.is_floating_point and bool((same | (a.isnan() & b.isnan())).all()):
            worst = "NaN signs"
        else:
            return f"{int((~same).sum())} elements differ"
    if worst == "equal" and not wrote:
        return "equal, nothing written"
    return worst


# ---- the same instructions -----------------------------------------------------------------------

_ARITHMETIC = re.compile(r"= (?:tail )?(f(?:add|sub|mul|div|neg)|call [^@]*@llvm\.fmuladd)")


def judge_structure(names: Iterable[str]) -> Iterator[Verdict]:
    """The fused and plain operations of a kernel's program and the functions that it calls."""
    for group in batches(names):
        source = source_of(group)
        for one in group:
            try:
                yield replace(_verdict(one), results=tuple(_structure(one, source)))
            except AnymetalError as error:
                yield replace(_verdict(one), refused=_first_line(error))


def _structure(one: Noted, source: Source) -> Iterator[tuple[str, str]]:
    """What is compared, and `equal` or how Apple's program and ours differ."""
    apples, ours = AirFrontend(), METAL
    of_apple = (_apples()._compiler.source, one.name, one.constants, checking_target())
    of_ours = (source, one.name, one.constants)
    counts = [
        _operations(apples.program(*of_apple, optimise=True).ir),
        _operations(ours.program(*of_ours, checking_target(), optimise=True).ir),
    ]
    equal = counts[0] == counts[1]
    yield "structure", "equal" if equal else f"{dict(counts[0])}, ours {dict(counts[1])}"
    yield (
        "functions",
        functions.compared(
            apples.program(*of_apple, optimise=False),
            ours.program(*of_ours, functions.TARGET, optimise=False),
        ),
    )


def _operations(ir: str) -> Counter[str]:
    return Counter("fmuladd" if "fmuladd" in word else word for word in _ARITHMETIC.findall(ir))
