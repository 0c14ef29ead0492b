"""MLX's kernels from Apple's AIR and from source: do they compute the same, bit by bit?"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from anymetal.air.program import make_program
from anymetal.engines.choose import checking_target
from anymetal.engines.collector import collector_paused
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Executable
from anymetal.engines.registry import METAL
from anymetal.errors import AnymetalError, LimitError
from anymetal.launch.call import PlainKernel
from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import ShaderLibrary
from anymetal.msl.arguments import describe_kernels
from anymetal.msl.compile_many import OneByOne, compile_programs
from anymetal.nouns import Argument, Program, Scalar
from parity import mlx
from parity.fences import fenced_copy
from parity.inputs import Inputs, NoValue, dtype_of, make_inputs, type_of_elements
from parity.launches import Launch, Undefined
from parity.mlx import NoDescription, Noted, difference, first_line, verdict_of
from parity.together import compile_together, simplified
from parity.vectors import compile_vectors
from parity.verdict import Verdict

ENGINES = ("simdgroup", "coroutine")
# Of a batch of programs, by engine: code that is made soon.
_COMPILED: Mapping[str, Callable[[Sequence[Program]], Sequence[Executable]]] = {
    "simdgroup": compile_vectors,
    "coroutine": compile_together,
}
_log = logging.getLogger("anymetal.parity")
Launched = Callable[[list[torch.Tensor], Launch], None]


def judge_results(
    names: Iterable[str],
    engines: Sequence[str] = ENGINES,
    launched: Callable[[str], bool] = lambda name: True,
    *,
    quickly: bool = True,
) -> Iterator[Verdict]:
    """Runs kernels from AIR and from source, on both engines; compares their arguments too.

    Of kernels that are not `launched` the arguments are all that is compared. `quickly`: a batch at
    once, with code that is made soon.
    """
    for group in mlx.batches(names):
        try:
            compiler = Compiler(mlx.source_of(group))
        except AnymetalError as error:
            if len(group) > 1:
                half = len(group) // 2
                for part in (group[:half], group[half:]):
                    names = [one.name for one in part]
                    yield from judge_results(names, engines, launched, quickly=quickly)
            else:
                yield replace(verdict_of(group[0]), refused=first_line(error))
            continue
        yield from _described([one for one in group if not launched(one.name)], compiler)
        found = [one for one in group if launched(one.name)]
        known = judged_together(found, compiler, engines) if quickly else {}
        for one in found:
            yield known.get(one.name) or _judged(one, compiler, engines)


def _described(group: Sequence[Noted], compiler: Compiler) -> Iterator[Verdict]:
    """Compares arguments without machine code."""
    if group:
        found = describe_kernels(METAL.prepared(compiler.source), checking_target())
        yield from mlx.compared_tables(group, found)


# ---- a batch at once -----------------------------------------------------------------------------


def judged_together(
    group: Sequence[Noted], compiler: Compiler, engines: Sequence[str]
) -> dict[str, Verdict]:
    """Verdicts by name of the kernels that are as they should be. Others need a closer look."""
    found: dict[str, Verdict] = {}
    for part in same_constants(group):
        try:
            verdicts = _judged_part(part, compiler, engines)
        except (AnymetalError, OneByOne, RuntimeError) as error:
            _log.warning("%d kernels one by one: %s", len(part), str(error)[:300])
            continue
        for verdict in verdicts:
            words = {word for _, word in verdict.results}
            if not verdict.arguments and words <= {"equal", "NaN signs"}:
                found[verdict.kernel] = verdict
    return found


def same_constants(group: Sequence[Noted]) -> list[list[Noted]]:
    """The kernels that have a description, by the values of their function constants."""
    found: dict[str, list[Noted]] = {}
    for one in group:
        with contextlib.suppress(NoDescription, Undefined):
            key = repr(sorted(one.launches[0].constants.items()))
            found.setdefault(key, []).append(one)
    return list(found.values())


def _judged_part(
    group: Sequence[Noted], compiler: Compiler, engines: Sequence[str]
) -> list[Verdict]:
    """Apple's kernels and ours on each engine; all have the same function constants."""
    with collector_paused():
        programs = _programs(group, compiler)
    verdicts = [verdict_of(one) for one in group]
    for engine in engines:
        os.environ["ANYMETAL_ENGINE"] = engine  # what it cannot run shall not run on another one
        made = _made(programs, compiler, engine)
        for number, (one, pair) in enumerate(zip(group, made, strict=True)):
            arguments, word = _judged_pair(one, pair)
            words = (*verdicts[number].results, (engine, word))
            verdicts[number] = replace(verdicts[number], arguments=arguments, results=words)
    return verdicts


def quick_pairs(
    group: Sequence[Noted], compiler: Compiler, engine: str
) -> list[tuple[Launched, Launched]]:
    """Apple's kernels and ours; all have the same function constants."""
    with collector_paused():
        made = _made(_programs(group, compiler), compiler, engine)
    return [(_bound_launch(apples), _bound_launch(ours)) for apples, ours in made]


def _made(
    programs: tuple[Sequence[Program], Sequence[Program]], compiler: Compiler, engine: str
) -> list[tuple[PlainKernel, PlainKernel]]:
    apples, ours = programs
    with collector_paused():
        code = _COMPILED[engine]([*apples, *ours])
    made = [PlainKernel(one, {}, compiler, workers=1) for one in code]
    return list(zip(made[: len(apples)], made[len(apples) :], strict=True))


def _programs(
    group: Sequence[Noted], compiler: Compiler
) -> tuple[Sequence[Program], Sequence[Program]]:
    """Apple's programs and ours, simplified."""
    target, names = checking_target(), [one.name for one in group]
    known = known_values(group[0], compiler)
    values: dict[int | str, Scalar] = {name: known[name] for name in known}
    prepared = METAL.prepared(compiler.source)
    ours = compile_programs(prepared, names, values, target, simplified)
    apples = [
        make_program(
            *(mlx.library().function(one.name), one.constants, target),
            optimise=True,
            lines=False,
            quickly=True,
        )
        for one in group
    ]
    return apples, ours


def _judged_pair(one: Noted, pair: tuple[PlainKernel, PlainKernel]) -> tuple[str, str]:
    """How the arguments differ, and what came out."""
    tables = [noted.argument for noted in one.notes.parameters]
    own = pair[1].executable.arguments
    words = []
    for launch in one.launches:
        inputs = make_inputs(one.name, tables, launch)
        words.append(compared([_bound_launch(kernel) for kernel in pair], launch, inputs))
    return difference(_present(tables, own), own), worst(words)


def _bound_launch(kernel: PlainKernel) -> Launched:
    def run(arguments: list[torch.Tensor], launch: Launch) -> None:
        kernel.call(None, tuple(arguments), launch.threads, launch.group)

    return run


# ---- one by one ----------------------------------------------------------------------------------


def _judged(one: Noted, compiler: Compiler, engines: Sequence[str]) -> Verdict:
    verdict, found = verdict_of(one), []
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
        except LimitError as error:  # compiled, and no launch can have it: on a Mac neither
            limit = first_line(error).removeprefix(f"kernel '{one.name}' ")
            found.append((engine, f"undefined: it {limit}"))
            continue
        except AnymetalError as error:
            if "cannot run on the" not in str(error):
                return replace(verdict, refused=first_line(error))
            found.append((engine, "engine: " + first_line(error)[:120]))
            continue
        own = kernels[1].arguments
        verdict = replace(verdict, arguments=difference(_present(tables, own), own))
        runs = [_kernel_launch(kernel) for kernel in kernels]
        words = [compared(runs, *each) for each in zip(described, inputs, strict=True)]
        found.append((engine, worst(words)))
    return replace(verdict, results=tuple(found))


def _present(table: Sequence[Argument], own: Sequence[Argument]) -> list[Argument]:
    """Function constants leave parameters out."""
    there = {argument.name for argument in own}
    return [argument for argument in table if argument.name in there]


def known_values(one: Noted, compiler: Compiler) -> dict[str, Scalar]:
    """The function constants that our source has, as the description sets them."""
    known = {constant.name for constant in compiler.outline.constants}
    values = one.launches[0].constants
    return {name: value for name, value in values.items() if name in known}


def _kernels(one: Noted, compiler: Compiler) -> tuple[Kernel, Kernel]:
    """Apple's and ours, with the same function constants."""
    ours = ShaderLibrary(compiler).specialize(one.name, known_values(one, compiler))
    library = ShaderLibrary(mlx.apples()._compiler)
    return library.specialize(one.name, dict(one.constants)), ours


def ordinary_pair(one: Noted, compiler: Compiler) -> tuple[Launched, Launched]:
    """Apple's kernel and ours, compiled as every kernel is."""
    apples, ours = _kernels(one, compiler)
    return _kernel_launch(apples), _kernel_launch(ours)


def _kernel_launch(kernel: Kernel) -> Launched:
    def run(arguments: list[torch.Tensor], launch: Launch) -> None:
        kernel(*arguments, threads=launch.threads, group_size=launch.group)

    return run


# ---- what came out -------------------------------------------------------------------------------


def worst(words: Sequence[str]) -> str:
    """Of several launches what says most."""
    known = ("equal", "NaN signs", "equal, nothing written")
    return max(words, key=lambda word: known.index(word) if word in known else len(known))


def compared(kernels: Sequence[Launched], launch: Launch, inputs: Inputs) -> str:
    """`equal`, `equal, nothing written`, `NaN signs`, or how many elements differ."""
    word = _compared_once(kernels, launch, inputs)
    if word == "equal, nothing written":
        return _compared_once(kernels, launch, inputs.inverted())
    return word


def _compared_once(kernels: Sequence[Launched], launch: Launch, inputs: Inputs) -> str:
    blocks = []
    try:
        for kernel in kernels:
            block = fenced_copy(inputs.block)
            kernel(inputs.arguments(block), launch)
            blocks.append(block)
    except (AnymetalError, RuntimeError) as error:
        return f"not run: {str(error)[:160]}"
    if not torch.equal(*blocks):
        return _difference(inputs, *blocks)
    if torch.equal(blocks[0], inputs.block):
        return "equal, nothing written"
    strays = (blocks[0] != inputs.block) & ~inputs.inside()
    return "stray writes, of both the same" if bool(strays.any()) else "equal"


def _difference(inputs: Inputs, first: torch.Tensor, second: torch.Tensor) -> str:
    """Which elements of two blocks differ, in words."""
    worst = "NaN signs"
    for place in inputs.places:
        part = slice(place.start, place.start + place.size)
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
    if bool(((first != second) & ~inputs.inside()).any()):
        return "stray writes differ"
    return worst
