"""The options that describe one launch of a kernel, for every verb that takes them.

A verb has a parameter `call`, and `@takes_kernel_options` gives it the options in its place.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from anymetal.cli.checked_kernel import KernelCall
from anymetal.cli.sources import Options

_KERNEL = "One kernel of a Metal file or a metallib"
_CALL = "call"


def of_kernel(*words: str, metavar: str, help: str) -> Any:
    """An option in the panel of the kernel's."""
    return typer.Option(*words, metavar=metavar, help=help, rich_help_panel=_KERNEL)


_VALUES = (
    "the next argument: 7, 3.5, \\[1,2,3], float32\\[1024]=random (or zeros, ones, arange, a"
    " number), file.npy"
)
_OPTIONS: dict[str, Any] = {
    "kernel": Annotated[str | None, of_kernel(metavar="NAME", help="which kernel")],
    "arg": Annotated[list[str] | None, of_kernel(metavar="VALUE", help=_VALUES)],
    "threads": Annotated[
        str | None,
        of_kernel(metavar="N,N,N", help="size of the grid; the first tensor's if absent"),
    ],
    "group_size": Annotated[str | None, of_kernel(metavar="N,N,N", help="size of a threadgroup")],
    "memory": Annotated[
        list[str] | None,
        of_kernel(metavar="INDEX=BYTES", help="the size of a threadgroup parameter"),
    ],
    "constant": Annotated[
        list[str] | None, of_kernel(metavar="NAME=VALUE", help="a function constant")
    ],
    "output": Annotated[
        list[int] | None,
        of_kernel(metavar="INDEX", help="an argument that must be written completely"),
    ],
    "seed": Annotated[int | None, of_kernel(metavar="N", help="of random arguments; 0 if absent")],
    "library": Annotated[
        str | None, of_kernel(metavar="NAME", help="which metallib of a wheel or dynamic library")
    ],
    "include": Annotated[
        list[Path] | None, of_kernel("-I", metavar="DIR", help="a directory with headers")
    ],
    "define": Annotated[list[str] | None, of_kernel("-D", metavar="NAME=VALUE", help="a macro")],
    "language": Annotated[
        str | None, of_kernel(metavar="VERSION", help="of Metal: 3.1, 3.2 (if absent) or 4.0")
    ],
}


def takes_kernel_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options in the place of the parameter `call`; some verbs have no use for all of them."""
    added = {name: option for name, option in _OPTIONS.items() if name not in without}

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(verb)
        def with_options(**given: Any) -> None:
            words = {name: given.pop(name) for name in added}
            verb(**given, **{_CALL: _described(**words)})

        signature = inspect.signature(verb)
        hints = get_type_hints(verb, include_extras=True)
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
            for name, parameter in signature.parameters.items()
            if name != _CALL
        ]
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
            for name, option in added.items()
        ]
        # What typer looks at.
        with_options.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in (*own, *more)}
        return with_options

    return decorate


def _described(
    kernel: str | None,
    arg: list[str] | None,
    threads: str | None,
    memory: list[str] | None,
    constant: list[str] | None,
    seed: int | None,
    include: list[Path] | None,
    define: list[str] | None,
    language: str | None,
    group_size: str | None = None,
    output: list[int] | None = None,
    library: str | None = None,
) -> KernelCall:
    """The launch; which file it is in, the verb knows."""
    return KernelCall(
        file=Path(),
        options=Options.parse(include, define, library, language),
        kernel=kernel,
        arguments=arg or [],
        threads=threads,
        group_size=group_size,
        threadgroup_memory=memory or [],
        constants=constant or [],
        outputs=output or [],
        seed=seed or 0,
    )
