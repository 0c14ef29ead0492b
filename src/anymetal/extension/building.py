"""An extension's project goes in; its library for this machine comes out, built once and kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

from filelock import FileLock

from anymetal.extension.compiling import build_library
from anymetal.extension.project import Project
from anymetal.extension.runtime import runtime_key, runtime_library
from anymetal.extension.toolchain import Toolchain, find_toolchain
from anymetal.store.cache import Store, digest_of


def extension_library(store: Store, project: Project) -> tuple[Path, Path]:
    """The runtime of stand-ins and the extension's library."""
    toolchain = find_toolchain()
    runtime = runtime_library(store, toolchain)
    key = _key(project, toolchain)

    def build(path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="anymetal-kernels-") as folder:
            includes = [*project.write_kernels(Path(folder)), f"-I{project.folder / 'csrc'}"]
            build_library(toolchain, project.sources, path, includes=includes, links=[str(runtime)])

    with FileLock(store.directory / f"extension-{key[:16]}.lock"):
        return runtime, store.file("extension", key, build)


def _key(project: Project, toolchain: Toolchain) -> str:
    contents = [part for path in project.files() for part in (str(path), path.read_bytes())]
    return digest_of(runtime_key(toolchain), *contents)
