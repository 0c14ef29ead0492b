"""The same sources for macOS, on any machine: compiled by zig's clang for arm64 and linked against
torch's own macOS libraries, so that a missing symbol or a wrong signature is an error here.

What it does not show: that Apple's compiler takes the kernels, and that the code runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from filelock import FileLock

from anymetal.extension.compiling import STANDIN, ExtensionError, run, torch_includes
from anymetal.extension.project import Project
from anymetal.store.cache import Store

TARGET = "aarch64-macos.14.0"
_LIBRARIES = ("libtorch_cpu.dylib", "libc10.dylib")
_PLATFORMS = ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64")
# What clang calls for Objective-C; the frameworks' classes are read from the stand-in headers.
_RUNTIME_SYMBOLS = tuple(
    f"_{name}"
    for name in (
        *("objc_alloc", "objc_alloc_init", "objc_autorelease", "objc_autoreleasePoolPop"),
        *("objc_autoreleasePoolPush", "objc_begin_catch", "objc_end_catch", "objc_exception_throw"),
        *("objc_exception_rethrow", "objc_getClass", "objc_getProperty", "objc_msgSend"),
        *("objc_msgSendSuper2", "objc_opt_class", "objc_opt_isKindOfClass", "objc_opt_new"),
        *("objc_opt_respondsToSelector", "objc_opt_self", "objc_release", "objc_retain"),
        *("objc_retainAutorelease", "objc_setProperty", "objc_terminate", "sel_registerName"),
        *("_objc_empty_cache", "__objc_personality_v0", "objc_enumerationMutation"),
    )
)
_LITERALS = "___CFConstantStringClassReference"  # what @"..." is an object of
_FRAMEWORKS = {
    "Foundation": ("Foundation",),
    "Metal": ("Metal",),
    "MetalPerformanceShaders": ("MetalPerformanceShaders", "MetalPerformanceShadersGraph"),
}
_CLASS = re.compile(r"^@interface (\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"^[\w<>* ]*?\b((?:NS|MTL)\w+)\((?:void|NSString)", re.MULTILINE)
_VARIABLE = re.compile(r"^extern \w+\* const (\w+);", re.MULTILINE)


def check(store: Store, project: Project) -> str:
    """Compile and link; returns what was done, or raises ExtensionError with the tools' words."""
    libraries = mac_libraries(store)
    with tempfile.TemporaryDirectory(prefix="anymetal-mac-") as place:
        folder = Path(place)
        includes = [*project.write_kernels(folder), f"-I{project.folder / 'csrc'}"]
        objects = []
        for number, source in enumerate(project.sources):
            objects.append(str(folder / f"{number}.o"))
            _zig(
                [*_compile_flags(), *includes, "-c", str(source), "-o", objects[-1]],
                store,
                f"{source.name} does not compile for macOS",
            )
        stubs = write_stubs(folder)
        output = folder / "extension.dylib"
        _zig(
            [
                *("-target", TARGET, "-shared", "-o", str(output), *objects),
                *(str(libraries / name) for name in _LIBRARIES),
                *map(str, stubs),
            ],
            store,
            "it does not link against torch's macOS libraries",
        )
    return f"{project.name}: compiled for {TARGET}, linked against torch {_version()} for macOS"


def _compile_flags() -> list[str]:
    return [
        *("-target", TARGET, "-x", "objective-c++", "-std=c++20", "-O1", "-w", "-DNDEBUG"),
        *("-fblocks", "-fobjc-exceptions", "-fno-objc-arc"),
        f"-I{STANDIN / 'include'}",
        f"-I{STANDIN / 'darwin'}",
        *torch_includes(),
    ]


def _zig(arguments: list[str], store: Store, failure: str) -> None:
    cache = str(store.directory / "zig")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    run([sys.executable, "-m", "ziglang", "c++", *arguments], failure, environment)


def _version() -> str:
    return torch.__version__.partition("+")[0]


def mac_libraries(store: Store) -> Path:
    """The folder with torch's macOS libraries of this version, fetched from PyPI once."""
    folder = store.directory / f"macos-torch-{_version()}"
    with FileLock(store.directory / "macos-torch.lock"):
        if not all((folder / name).is_file() for name in _LIBRARIES):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="anymetal-torch-") as place:
                _unpack(_download(Path(place)), folder)
    return folder


def _download(folder: Path) -> Path:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
        *(f"--platform={platform}" for platform in _PLATFORMS),
        *("--dest", str(folder), f"torch=={_version()}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("torch-*.whl"))
    if done.returncode != 0 or not wheels:
        raise ExtensionError(
            f"torch {_version()} for macOS is not to be had from PyPI:\n{done.stderr[-2000:]}"
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in _LIBRARIES:
            (folder / name).write_bytes(archive.read(f"torch/lib/{name}"))


def write_stubs(folder: Path) -> list[Path]:
    """Text-based stubs of Apple's libraries, with just the names that the stand-ins declare."""
    stubs = []
    for framework, headers in _FRAMEWORKS.items():
        text = "\n".join(
            path.read_text(encoding="utf-8")
            for name in headers
            for path in sorted((STANDIN / "include" / name).glob("*.h"))
        )
        symbols = [f"_{name}" for name in (*_FUNCTION.findall(text), *_VARIABLE.findall(text))]
        if framework == "Foundation":
            symbols.append(_LITERALS)
        install = f"/System/Library/Frameworks/{framework}.framework/Versions/A/{framework}"
        stubs.append(_stub(folder, framework, install, symbols, _CLASS.findall(text)))
    stubs.append(
        _stub(folder, "libobjc", "/usr/lib/libobjc.A.dylib", _RUNTIME_SYMBOLS, ["NSObject"])
    )
    return stubs


def _stub(
    folder: Path, name: str, install: str, symbols: list[str] | tuple[str, ...], classes: list[str]
) -> Path:
    path = folder / f"{name}.tbd"
    quoted = ", ".join(f"'{symbol}'" for symbol in sorted(set(symbols)))
    path.write_text(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\n"
        f"install-name: '{install}'\n"
        "exports:\n  - targets: [ arm64-macos ]\n"
        f"    symbols: [ {quoted} ]\n"
        f"    objc-classes: [ {', '.join(sorted(set(classes)))} ]\n...\n",
        encoding="utf-8",
    )
    return path
