"""The only file that starts a compiler: preprocess, check, compile to IR, precompile headers."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anymetal import settings
from anymetal.errors import KernelSyntaxError, ToolchainError
from anymetal.msl.process import Exceeded, run_bounded
from anymetal.nouns import Dialect, Target
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint, forget

INCLUDE_DIR = Path(__file__).parent / "include"
INPUT_NAME = "anymetal-input.cpp"

_LANGUAGE_FLAGS = (  # noqa: SIM905
    "-x c++ -std=c++20 -fdeclspec -ffreestanding -nostdinc -fno-exceptions -fno-rtti "
    "-fconvergent-functions "  # calls of collectives in both arms of a branch stay apart
    "-fno-strict-aliasing -fno-math-errno -fno-threadsafe-statics -fno-discard-value-names "
    "-fwrapv -fno-finite-loops "
    "-fno-strict-float-cast-overflow"  # float to integer saturates, and NaN gives 0
).split()
_SAFE_MATH_FLAGS = ["-ffp-contract=on"]
# All of fast math but the promise that no infinity or NaN occurs: kernels mask with -INFINITY.
_FAST_MATH_FLAGS = [
    "-ffp-contract=fast",
    "-fassociative-math",
    "-freciprocal-math",
    "-fno-signed-zeros",
    "-fno-trapping-math",
    "-fapprox-func",
    "-D__FAST_MATH__=1",
]
CONVERSIONS = ("implicit-float-conversion",)
# Mistakes that compile. What is a matter of style is left out, and so is what our rewriting adds.
MISTAKES = (
    "array-bounds",
    "constant-conversion",
    "dangling-else",
    "division-by-zero",
    "infinite-recursion",
    "literal-conversion",
    "parentheses",
    "return-type",
    "self-assign",
    "shift-count-negative",
    "shift-count-overflow",
    "shift-op-parentheses",
    "sizeof-pointer-div",
    "sometimes-uninitialized",
    "tautological-compare",
    "tautological-unsigned-zero-compare",
    "uninitialized",
    "unsequenced",
    "unused-value",
)
_DIAGNOSTIC_FLAGS = [
    "-Wno-everything",
    "-Werror=vla-cxx-extension",
    "-Werror=address-of-temporary",  # &v.xy
    "-ferror-limit=20",
    "-fshow-overloads=best",
    "-fno-caret-diagnostics",
    "-fno-color-diagnostics",
    "-fno-elide-type",
    "-ftemplate-backtrace-limit=0",
    "-fmacro-backtrace-limit=0",
]


@dataclass(frozen=True)
class Result:
    """What a run of clang left: its output and its messages."""

    ok: bool
    output: str
    messages: str


@functools.cache
def executable() -> tuple[str, ...]:
    """How to start clang: the `zig` binary of the ziglang package is a clang driver as well."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise ToolchainError("clang is missing: pip install 'ziglang==0.17.*'")
    folder = Path(found.origin).parent
    for name in ("zig", "zig.exe"):
        if (folder / name).is_file():
            return (str(folder / name), "clang")
    raise ToolchainError(f"the ziglang package in {folder} holds no zig binary")


@functools.cache
def check_versions() -> None:
    """clang writes the IR and llvmlite reads it: both must be of one LLVM version."""
    import llvmlite.binding as llvm  # noqa: PLC0415  (not needed where everything is cached)

    text = _run(["--version"]).output
    match = re.search(r"clang version (\d+)", text)
    if match is None:
        raise ToolchainError(f"cannot read clang's version from {text[:100]!r}")
    if int(match[1]) != llvm.llvm_version_info[0]:
        raise ToolchainError(
            f"clang {match[1]} (ziglang) does not fit LLVM {llvm.llvm_version_info[0]} (llvmlite): "
            "install the versions that anymetal's requirements name"
        )


def preprocess(
    text: str,
    *,
    name: str,
    include_dirs: Sequence[Path],
    defines: Sequence[tuple[str, str]],
    dialect: Dialect,
    folder: Path,
) -> Result:
    """Macros and includes expanded, with line markers; our own headers contribute macros only."""
    flags = (
        "-E -x c++ -std=c++14 -undef -nostdinc -Wno-everything -W#warnings "
        "-Wc23-extensions "  # `#embed` warns
        "-fno-caret-diagnostics -fno-color-diagnostics "
        "-DANYMETAL_MACROS_ONLY -D__METAL__=1 -D__METAL_MACOS__=1 "
        "-D__clang__=1 -D__APPLE__=1 -D__LITTLE_ENDIAN__=1 -D__HAVE_BFLOAT__=1 "
        "-D__METAL_MEMORY_SCOPE_SYSTEM__=3"
        f" -D__METAL_VERSION__={dialect.version}"
    ).split()
    if dialect.language == "4.0":
        flags.append("-D__HAVE_TENSOR__=1")
    if dialect.fast_math:
        flags.append("-D__FAST_MATH__=1")
    flags += [f"-D{key}={value}" for key, value in defines]
    flags += ["-I", str(INCLUDE_DIR)]
    for directory in include_dirs:
        flags += ["-I", str(directory)]
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return _run([*flags, "-"], f'# 1 "{escaped}"\n{text}', folder, bounded=True)


_LINES = "-gline-tables-only"
_TO_IR = ["-S", "-emit-llvm", "-O1", "-o", "-"]
_PRECOMPILING = ["-O1", "-w", "-Xclang", "-fno-pch-timestamp"]
_NO_PASSES = ["-Xclang", "-disable-llvm-passes"]
_UNOPTIMISED = [*_NO_PASSES, _LINES]


def compile_to_ir(
    text: str, target: Target, *, dialect: Dialect, optimise: bool = True, lines: bool = False
) -> Result:
    """LLVM IR text of a translation unit that relies on the precompiled headers.

    Without optimisation every access stands as it was written and knows its line, but inlining is
    still to be done: this is what the checker instruments. The messages tell of all padding. With
    `lines` optimised code knows its lines too.
    """
    level = [_LINES] if lines else []
    if not optimise:
        level = [*_UNOPTIMISED, "-Wpadded"]
    level += [f"-W{warning}" for warning in CONVERSIONS]
    result = _compile(text, [*_TO_IR, *level], target, dialect)
    return replace(result, output=_allow_unrolling(result.output))


def compile_unoptimised(text: str, target: Target, *, dialect: Dialect) -> Result:
    """LLVM IR as clang writes it down first, for callers who optimise it themselves."""
    flags = [*_TO_IR, *_NO_PASSES, *(f"-W{warning}" for warning in CONVERSIONS)]
    return _compile(text, flags, target, dialect)


def compile_ending(
    beginning: str, ending: str, target: Target, *, dialect: Dialect
) -> Result | None:
    """The optimised IR of two texts that are one, the first of which is parsed once and kept.

    None where there is any error: compile_to_ir says the right thing about the whole.
    """
    header = _precompiled_beginning(beginning, target, dialect)
    if header is None:
        return None
    flags = [*_TO_IR, *(f"-W{warning}" for warning in CONVERSIONS)]
    first_line = beginning.count("\n") + 1
    try:
        result = _compile_once(ending, flags, target, dialect, header, first_line)
    except _Crash:
        return None
    return replace(result, output=_allow_unrolling(result.output)) if result.ok else None


@functools.lru_cache(maxsize=64)
def _precompiled_beginning(beginning: str, target: Target, dialect: Dialect) -> Path | None:
    below = precompiled_header(target, dialect)

    def build(path: Path) -> None:
        flags = [*_PRECOMPILING, "-o", str(path)]
        result = _compile_once(beginning, flags, target, dialect, below, as_header=True)
        if not result.ok:
            raise ToolchainError(result.messages[:2000])

    try:
        return default_store().file("pch", digest_of(str(below), beginning), build)
    except ToolchainError:
        return None


def _allow_unrolling(ir: str) -> str:
    """At -O1 clang forbids all later unrolling; let it do none itself, and take that back."""
    return ir.replace('!"llvm.loop.unroll.disable"', '!"anymetal.loop"')


def check_syntax(
    text: str, target: Target, *, dialect: Dialect, warnings: Sequence[str] = CONVERSIONS
) -> Result:
    """Only the messages: whether the text compiles, and what is doubtful in it."""
    flags = ["-fsyntax-only", "-O1", *(f"-W{warning}" for warning in warnings)]
    return _compile(text, flags, target, dialect)


def check_spaces(text: str, target: Target, *, dialect: Dialect) -> Result:
    """All messages about a text with clang's own address spaces, and all candidates of a call."""
    flags = ["-fsyntax-only", "-O1", "-ferror-limit=0", "-fshow-overloads=all"]
    return _compile(text, flags, target, dialect)


def compile_support(
    path: Path, target: Target, include_dirs: Sequence[Path] = (), *, level: int = 2
) -> str:
    """LLVM IR of a C++ file of our own that runs beside the kernels: an engine's runtime."""
    check_versions()
    includes = [f"-I{directory}" for directory in (*include_dirs, path.parent)]
    flags = [*_flags(target, Dialect()), *includes, f"-O{level}", "-S", "-emit-llvm", "-o", "-"]
    result = _run([*flags, str(path)])
    if not result.ok:
        raise ToolchainError(f"{path.name} does not compile:\n{result.messages}")
    return result.output


def link_shared(code: bytes) -> bytes:
    """Object code as a shared library, whose symbols the process that loads it has (Linux)."""
    zig, _ = executable()
    with tempfile.TemporaryDirectory(prefix="anymetal-") as folder:
        (Path(folder) / "code.o").write_bytes(code)
        command = [zig, "ld.lld", "-shared", "--strip-all", "-o", "code.so", "code.o"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolchainError(f"code cannot be linked: {done.stderr[-1000:]}")
        return (Path(folder) / "code.so").read_bytes()


class _Crash(ToolchainError):
    """clang died: of its input, which may be a damaged header."""


def _compile(text: str, flags: list[str], target: Target, dialect: Dialect) -> Result:
    try:
        result = _compile_once(text, flags, target, dialect)
    except _Crash:
        _precompiled_header.cache_clear()  # the store looks at it again
        return _compile_once(text, flags, target, dialect)
    if not result.ok and _STALE_HEADER.search(result.messages):
        precompiled_header(target, dialect).unlink(missing_ok=True)
        forget()
        _precompiled_header.cache_clear()
        result = _compile_once(text, flags, target, dialect)
    return result


# The header is damaged or gone, or one of our files changed under our feet.
_STALE_HEADER = re.compile(
    r"^(?:\S+: )?(?:fatal )?error: .*(?:precompiled|PCH|AST file|no such file)", re.MULTILINE
)


def _compile_once(
    text: str,
    flags: list[str],
    target: Target,
    dialect: Dialect,
    header: Path | None = None,
    first_line: int = 1,
    *,
    as_header: bool = False,
) -> Result:
    """Compiles a text behind a precompiled header, ours if it is left out."""
    language = _flags(target, dialect, as_header=as_header)
    header = header or precompiled_header(target, dialect)
    command = [*language, *_DIAGNOSTIC_FLAGS, "-include-pch", str(header), *flags, "-"]
    return _run(command, f'# {first_line} "{INPUT_NAME}"\n{text}', bounded=True)


def _flags(target: Target, dialect: Dialect, *, as_header: bool = False) -> list[str]:
    math = _FAST_MATH_FLAGS if dialect.fast_math else _SAFE_MATH_FLAGS
    # The headers of 3.1 and 3.2 are the same: they are compiled once for both.
    version = ["-D__METAL_VERSION__=400"] if dialect.language == "4.0" else []
    includes = [f"-I{directory}" for directory in (*target.include_dirs, INCLUDE_DIR)]
    flags = [*_LANGUAGE_FLAGS, *math, *version, *target.flags, *includes]
    return [flag if flag != "c++" else "c++-header" for flag in flags] if as_header else flags


_header_lock = threading.Lock()


def precompiled_header(target: Target, dialect: Dialect) -> Path:
    """Our metal headers in compiled form, built on first use and shared by all processes."""
    with _header_lock:
        return _precompiled_header(target, dialect)


def precompile_early(target: Target, dialect: Dialect) -> None:
    """Builds the headers, where they are not there yet, beside whatever the caller does next."""
    if _precompiled_header.cache_info().currsize == 0:
        threading.Thread(target=_precompile_quietly, args=(target, dialect)).start()


def _precompile_quietly(target: Target, dialect: Dialect) -> None:
    # Whoever needs the headers meets the same error again, in a place where it can be handled.
    with contextlib.suppress(ToolchainError):
        precompiled_header(target, dialect)


@functools.cache
def _precompiled_header(target: Target, dialect: Dialect) -> Path:
    # It refers to our headers by their place, so two installations need one each; their content is
    # in the key, so their times need not be looked at: a reinstalled file is as good.
    flags = _flags(target, dialect)
    headers = fingerprint("tools", "processor", INCLUDE_DIR, *target.include_dirs)
    key = digest_of(headers, target.header, *flags)

    def build(path: Path) -> None:
        check_versions()
        text = f"#include <metal_stdlib>\n#include <{target.header}>\n"
        command = [*_flags(target, dialect, as_header=True), *_PRECOMPILING]
        command += ["-fpch-instantiate-templates", "-o", str(path), "-"]
        result = _run(command, text)
        if not result.ok:
            raise ToolchainError(
                f"anymetal's own headers do not compile:\n{result.messages[:2000]}"
            )

    return default_store().file("pch", key, build)


def _run(
    arguments: Sequence[str], text: str = "", folder: Path | None = None, *, bounded: bool = False
) -> Result:
    """Runs clang; `bounded` where the text is an author's, who may not know when it ends."""
    limit = settings.COMPILE_LIMIT.value() if bounded else None
    try:
        done = run_bounded(
            [*executable(), *arguments],
            text.encode(errors="surrogatepass"),
            folder=folder or INCLUDE_DIR,
            environment={**os.environ, "LC_ALL": "C"},
            seconds=limit,
        )
    except Exceeded as error:
        raise KernelSyntaxError(
            f"compiling this source {error}, and was given up; the time is set by"
            f" {settings.COMPILE_LIMIT.variable}"
        ) from None
    except OSError as error:
        raise ToolchainError(f"cannot start clang: {error}") from error
    messages = done.messages.decode(errors="replace")
    if bounded and _OUT_OF_MEMORY.search(messages):
        raise KernelSyntaxError("compiling this source takes more memory than a compiler is given")
    if done.status < 0 or "PLEASE submit a bug report" in messages:
        raise _Crash(f"clang crashed (status {done.status}):\n{messages[-4000:]}")
    return Result(done.status == 0, done.output.decode(errors="replace"), messages)


_OUT_OF_MEMORY = re.compile(r"out of memory|bad_alloc|allocation failed", re.IGNORECASE)
