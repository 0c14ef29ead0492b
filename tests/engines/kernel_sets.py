"""The sets of kernels that `lengths.py` writes as vector code, each with its launches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import conformance.cases  # noqa: F401  (fills the list of cases)
import torch
from conformance import wheel
from conformance.case import CASES
from conformance.lint import C10_KERNELS
from conformance.run import make
from parity import wheels
from parity.launches import Case, Launch, Undefined, description_of
from parity.templates import AnyType, template_of

import anymetal.linalg
import anymetal.ops  # noqa: F401  (both declare operators)
from anymetal.air.program import make_program
from anymetal.engines.choose import checking_target
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import Sizes
from anymetal.engines.cpu.simdgroups.engine import shape_of, shapes_for
from anymetal.evidence.ahead import kernels_of
from anymetal.nouns import Program, Scalar, Source
from anymetal.ops.declare import OPERATORS, AnyOperator
from anymetal.passes.simdgroup.rules import GroupShape

Launches = Iterable[tuple[Sizes, bool]]  # sizes of threadgroups, and whether the grid cuts some

_TYPES = re.compile(
    r"complex\d+(_t)?|bool_?|half|b?float(\d+)?(_t)?|u?(int|char|short|long)(\d+)?(_t)?"
)
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Wanted:
    """A kernel to write; `program` compiles it that far. `size`: bytes, of what comes compiled."""

    name: str
    program: Callable[[], Program]
    launches: Launches = ()
    size: int = 0

    @property
    def family(self) -> str:
        """What is left of the name without types and numbers."""
        return _NUMBERS.sub("N", _TYPES.sub("T", self.name))

    @property
    def shapes(self) -> list[GroupShape]:
        found = {shape_of((32, 1, 1))}  # which is looked at before any launch
        for group, ragged in self.launches:
            found.update(shapes_for(group, ragged=ragged))
        return sorted(found, key=str)


def operators(
    chosen: Iterable[AnyOperator] | None = None, dtypes: Sequence[torch.dtype] | None = None
) -> list[Wanted]:
    """Every kernel that operators' cases and benchmarks launch, of all operators or of some."""
    found = kernels_of(OPERATORS.values() if chosen is None else chosen, "cpu", dtypes)
    return [
        Wanted(request[1], partial(_compiled, *request), found.launches(*request))
        for request in found
    ]


def _compiled(source: Source, kernel: str, constants: Mapping[str, Scalar]) -> Program:
    return Compiler(source).program(kernel, constants)


def of_conformance() -> list[Wanted]:
    """Every kernel of the published package and of torch's headers, as its cases launch it."""
    launches: dict[tuple[str, str], list[tuple[Sizes, bool]]] = {}
    for case in CASES:
        launch = make(case)
        sizes = sized(launch.threads, launch.group_size)
        launches.setdefault((case.file, case.kernel), []).append(sizes)
    wanted = []
    for file in (*wheel.fetch().files, C10_KERNELS):
        compiler = Compiler(Source(file.read_text(), name=file.name))
        for kernel in compiler.outline.kernels:
            program = partial(compiler.program, kernel, {})
            wanted.append(Wanted(kernel, program, launches.get((file.name, kernel), ())))
    return wanted


def of_metallib(of: wheels.Wheel) -> list[Wanted]:
    """Every kernel of MLX's metallib in a wheel, the largest first; function constants that no
    launch sets are on."""
    library = wheels.kernels_of(wheels.mlx_library(of))

    def program(name: str) -> Program:
        function, values = library.function(name), constants_of(name)
        given: dict[str, Scalar] = {
            one.name: values.get(one.name, True if one.type == "bool" else 1)
            for one in function.constants
        }
        return make_program(function, given, checking_target(), optimise=True, lines=False)

    wanted = [
        Wanted(name, partial(program, name), LaunchesOf(name), len(library.function(name).bitcode))
        for name in library.kernels
    ]
    return sorted(wanted, key=lambda one: -one.size)


@dataclass(frozen=True)
class LaunchesOf:
    """How MLX launches a kernel; it is looked up when it is asked for."""

    kernel: str

    def __iter__(self) -> Iterator[tuple[Sizes, bool]]:
        return (sized(launch.threads, launch.group) for launch in described(self.kernel))


def constants_of(kernel: str) -> Mapping[str, Scalar]:
    """The function constants that a kernel's launches set, all the same."""
    launches = described(kernel)
    return launches[0].constants if launches else {}


def described(kernel: str) -> list[Launch]:
    """The launches that `parity/launches` has for a kernel; none where it has no description."""
    template = template_of(kernel, AnyType())
    describe = description_of(template.function) if template is not None else None
    if template is None or describe is None:
        return []
    try:
        return describe(Case(kernel, template.function, tuple(template.arguments.split(", "))))
    except Undefined:
        return []


def sized(threads: Sequence[int], group: Sequence[int]) -> tuple[Sizes, bool]:
    """A threadgroup in three dimensions, and whether the grid's edges cut some."""
    grid, size = (tuple(given) + (1,) * (3 - len(given)) for given in (threads, group))
    x, y, z = size
    return (x, y, z), any(all_ % each for all_, each in zip(grid, size, strict=True))


SETS: dict[str, Callable[[], list[Wanted]]] = {
    "operators": operators,
    "conformance": of_conformance,
    "mlx": partial(of_metallib, wheels.MLX),
    "mlx-26": partial(of_metallib, wheels.MLX_26),
}
