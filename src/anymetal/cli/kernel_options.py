"""The options that describe one launch of a kernel, for every verb that takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_KERNEL = "One kernel of a Metal file or a metallib"


def of_kernel(*words: str, metavar: str, help: str) -> Any:
    """An option in the panel of the kernel's."""
    return typer.Option(*words, metavar=metavar, help=help, rich_help_panel=_KERNEL)


KernelName = Annotated[str | None, of_kernel(metavar="NAME", help="which kernel")]
Args = Annotated[
    list[str] | None,
    of_kernel(
        metavar="VALUE",
        help="the next argument: 7, 3.5, \\[1,2,3], float32\\[1024]=random (or zeros, ones, arange,"
        " a number), file.npy",
    ),
]
Threads = Annotated[
    str | None, of_kernel(metavar="N,N,N", help="size of the grid; the first tensor's if absent")
]
GroupSize = Annotated[str | None, of_kernel(metavar="N,N,N", help="size of a threadgroup")]
MemorySizes = Annotated[
    list[str] | None, of_kernel(metavar="INDEX=BYTES", help="the size of a threadgroup parameter")
]
Constants = Annotated[list[str] | None, of_kernel(metavar="NAME=VALUE", help="a function constant")]
Output = Annotated[
    list[int] | None, of_kernel(metavar="INDEX", help="an argument that must be written completely")
]
Seed = Annotated[int, of_kernel(metavar="N", help="of random arguments")]
Include = Annotated[
    list[Path] | None, of_kernel("-I", metavar="DIR", help="a directory with headers")
]
Library = Annotated[
    str | None, of_kernel(metavar="NAME", help="which metallib of a wheel or dynamic library")
]
Define = Annotated[list[str] | None, of_kernel("-D", metavar="NAME=VALUE", help="a macro")]
