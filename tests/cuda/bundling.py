"""Calls go in, a bundle with the kernels that they would launch on a GPU comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anymetal.policy.policy import as_if_on


def write_kernels(path: Path, calls: Callable[[], None]) -> None:
    """On any machine: nothing is run. The compiler is imported here, which a GPU's may lack."""
    from anymetal.engines.ahead import compile_bundle  # noqa: PLC0415
    from anymetal.launch.requested import requests  # noqa: PLC0415
    from anymetal.store.bundle import write_bundle  # noqa: PLC0415

    with as_if_on("cuda"), requests() as found:
        calls()
    kernels = list({repr(one): one for one in found}.values())
    write_bundle(path, compile_bundle("cuda-sm90", kernels))
    print(f"{path}: {len(kernels)} kernels")
