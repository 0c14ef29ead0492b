"""Every kernel of four metallibs: does it become a Program that engines take?"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from anymetal.air.container import Metallib
from anymetal.air.program import make_program
from anymetal.engines.choose import checking_target
from anymetal.errors import AnymetalError, UnsetConstantError
from anymetal.nouns import Scalar
from parity import wheels
from parity.verdict import Verdict

LIBRARIES = {
    "mlx-14": lambda: wheels.mlx_library(wheels.MLX),
    "mlx-26": lambda: wheels.mlx_library(wheels.MLX_26),
    "torch-0": lambda: wheels.torch_library(0),
    "torch-1": lambda: wheels.torch_library(1),
}


@functools.cache
def _library(name: str) -> Metallib:
    return wheels.kernels_of(LIBRARIES[name]())


def kernels() -> list[str]:
    """`mlx-26/NAME` for all kernels of all libraries."""
    return [f"{name}/{kernel}" for name in LIBRARIES for kernel in _library(name).kernels]


def judge(names: Iterable[str]) -> Iterator[Verdict]:
    """Makes programs; function constants, where a kernel has some, are all on."""
    for name in names:
        library, _, kernel = name.partition("/")
        try:
            _make(_library(library), kernel)
            yield Verdict(name, family=library)
        except AnymetalError as error:
            yield Verdict(name, family=library, refused=str(error)[:300])


def _make(library: Metallib, kernel: str) -> None:
    function = library.function(kernel)
    try:
        make_program(function, {}, checking_target(), optimise=True, lines=False)
    except UnsetConstantError:
        values: dict[str, Scalar] = {
            one.name: True if one.type == "bool" else 1 for one in function.constants
        }
        make_program(function, values, checking_target(), optimise=True, lines=False)
