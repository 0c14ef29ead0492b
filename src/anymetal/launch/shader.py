"""What `compile_shader` returns: a library of kernels that are called like functions."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from anymetal import settings
from anymetal.checker.context import active, report_refused
from anymetal.checker.inline_source import UNNAMED, caller
from anymetal.engines import bundles
from anymetal.engines.compiler import AnyCompiler, BundledCompiler, Compiler
from anymetal.errors import KernelWarning, LimitError
from anymetal.launch.function_constants import checked
from anymetal.launch.kernel import Kernel
from anymetal.nouns import ConstantValue, GivenValue, Language, Source


def compile_shader(
    source: str,
    *,
    include_dirs: Iterable[str | os.PathLike[str]] = (),
    defines: Mapping[str, object] | None = None,
    fast_math: bool | None = None,
    name: str = UNNAMED,
    language: Language = "3.2",
    strict: bool = True,
) -> ShaderLibrary:
    """Compile Metal source; the kernels in it become attributes of the result.

    Takes what `torch.mps.compile_shader` takes, and on top of it directories to look for headers
    in, macros, fast math (the default is PYTORCH_MPS_FAST_MATH), the name that messages use for
    the source, and the version of the language: "3.1", "3.2" or "4.0". PyTorch compiles with 3.1
    on macOS 14, 3.2 on macOS 15 and 4.0 from macOS 26 on. Without `strict` address spaces are not
    followed through calls and casts. Raises SyntaxError with the author's lines when the source
    does not compile, and warns of what may be a mistake.

    ```python
    import anymetal
    import torch

    lib = anymetal.compile_shader('''
    kernel void twice(device float* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
    ''')
    x = torch.arange(4.0)
    lib.twice(x, threads=4)
    assert x.tolist() == [0, 2, 4, 6]
    ```
    """
    if not isinstance(source, str):
        raise TypeError(f"compile_shader takes the source as a str, not {type(source).__name__}")
    if not isinstance(name, str):
        raise TypeError(f"compile_shader: name is {name!r}, expected a str")
    for word, text in (("source", source), ("name", name)):
        if "\0" in text:
            raise ValueError(f"compile_shader: {word} has a zero byte at {text.index(chr(0))}")
    if "\n" in name:
        raise ValueError(f"compile_shader: name is {name!r}, expected one line")
    if not isinstance(fast_math, bool | None):
        raise TypeError(f"compile_shader: fast_math is {fast_math!r}, expected True, False or None")
    if language not in get_args(Language):
        known = ", ".join(map(repr, get_args(Language)))
        raise ValueError(f"compile_shader: language is {language!r}, expected one of {known}")
    if not isinstance(strict, bool):
        raise TypeError(f"compile_shader: strict is {strict!r}, expected True or False")
    compiler = Compiler(
        Source(
            text=source,
            name=name,
            include_dirs=_directories(include_dirs),
            defines=_macros({} if defines is None else defines),
            fast_math=settings.FAST_MATH.value() if fast_math is None else fast_math,
            language=language,
            strict=strict,
        ),
        handed_over=caller() if name == UNNAMED else None,
    )
    for text in compiler.outline.warnings:
        warnings.warn(text, KernelWarning, stacklevel=2)
    return ShaderLibrary(compiler)


def load_library(path: str | os.PathLike[str]) -> ShaderLibrary:
    """The kernels of a file that `anymetal compile` wrote; no compiler is needed to run them.

    Operators and `compile_shader`, given a source that is in the file, find their kernels there
    too. Raises BundleError where the file is damaged or of another version.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"load_library: path is {path!r}, expected that of a file")
    return ShaderLibrary(BundledCompiler(bundles.use(Path(path))))


# What a library makes for a name; requested.py puts something else here.
make_kernel: Callable[[str, Mapping[str, ConstantValue], AnyCompiler], Kernel] = Kernel


@contextlib.contextmanager
def limits_reported(kernel: str) -> Iterator[None]:
    """A limit that is exceeded is a finding of the check that is on, besides being an error."""
    try:
        yield
    except LimitError as error:
        check = active()
        if check is not None:
            report_refused(check, kernel, error)
        raise


# Values of function constants by index or by name; a Mapping's keys are of one type to mypy.
Constants = Mapping[str, GivenValue] | Mapping[int, GivenValue] | Mapping[int | str, GivenValue]


class ShaderLibrary:
    """The kernels of one source, as attributes. `dir()` lists their names."""

    def __init__(self, compiler: AnyCompiler) -> None:
        self._compiler = compiler
        self._kernels: dict[tuple[str, str], Kernel] = {}

    def __getattr__(self, name: str) -> Kernel:
        # Double underscores are reserved in Metal too: these are Python asking what we can do.
        if name.startswith("__") or name in ("_compiler", "_kernels"):
            raise AttributeError(name)
        return self.specialize(name)

    def __dir__(self) -> list[str]:
        return list(self._compiler.outline.kernels)

    def __repr__(self) -> str:
        return f"<anymetal shader library: {_listed(self._compiler.outline.kernels)}>"

    def specialize(self, name: str, constants: Constants | None = None) -> Kernel:
        """The kernel `name` with function constants set, by their index or name. That of a vector
        type has as many numbers: `{"scale": (1.0, 0.5)}`.

        ```python
        import anymetal
        import torch

        lib = anymetal.compile_shader('''
        constant int by [[function_constant(0)]];
        kernel void add(device int* x, uint i [[thread_position_in_grid]]) { x[i] += by; }
        ''')
        x = torch.zeros(3, dtype=torch.int32)
        lib.specialize("add", {"by": 5})(x)
        assert x.tolist() == [5, 5, 5]
        ```
        """
        if name not in self._compiler.outline.kernels:
            raise RuntimeError(self._unknown(name))
        values = self._named(name, {} if constants is None else constants)
        # The values as text: 1 and True are equal, and -0.0 and 0.0.
        key = (name, repr(sorted(values.items())))
        kernel = self._kernels.get(key)
        if kernel is None:
            with limits_reported(name):
                kernel = make_kernel(name, values, self._compiler)
            # Two threads may get here at once; both then use the kernel that came first.
            kernel = self._kernels.setdefault(key, kernel)
        return kernel

    def _unknown(self, name: str) -> str:
        known = _listed(self._compiler.outline.kernels) or "none"
        return f"Failed to create function state object for: {name}. The source has: {known}"

    def _named(self, kernel: str, constants: Constants) -> dict[str, ConstantValue]:
        """Function constants by name, checked against the source's declarations."""
        if not isinstance(constants, Mapping):
            raise TypeError(f"{kernel}: constants is {constants!r}, expected values by names")
        known_constants = self._compiler.constants_of(kernel) if constants else ()
        declared = {constant.name: constant.type for constant in known_constants}
        by_index = {constant.index: constant.name for constant in known_constants}
        values: dict[str, ConstantValue] = {}
        for key, value in constants.items():
            name = by_index.get(key) if isinstance(key, int) else key
            if name is None or name not in declared:
                known = ", ".join(f"{name} ({index})" for index, name in by_index.items())
                raise ValueError(
                    f"{kernel}: the source has no function constant {key!r}; it has"
                    f" {known or 'none'}"
                )
            values[name] = checked(kernel, name, declared[name], value)
        return values


_MOST_LISTED = 100


def _listed(names: Sequence[str]) -> str:
    """Names with commas; of a large library the first, and how many there are."""
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


def _directories(include_dirs: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    if isinstance(include_dirs, str | os.PathLike):
        raise TypeError(
            f"include_dirs is {include_dirs!r}, expected a list of directories:"
            f" write [{str(include_dirs)!r}]"
        )
    if not isinstance(include_dirs, Iterable):
        raise TypeError(f"include_dirs is {include_dirs!r}, expected a list of directories")
    places = list(include_dirs)
    for place in places:
        if not isinstance(place, str | os.PathLike):
            raise TypeError(f"include_dirs holds {place!r}, expected directories")
        if "\0" in os.fspath(place):
            raise ValueError(f"include_dirs holds {place!r}, which has a zero byte")
    return tuple(Path(place).absolute() for place in places)


def _macros(defines: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Names and texts of macros: True and False read as they do in C."""
    if not isinstance(defines, Mapping):
        raise TypeError(f"defines is {defines!r}, expected values by names: {{'WIDTH': 4}}")
    for name, value in defines.items():
        if not isinstance(name, str) or not _MACRO.fullmatch(name):
            raise ValueError(f"defines: {name!r} is no name of a macro")
        if not isinstance(value, str | int | float):
            raise TypeError(f"defines: {name!r} is {value!r}, expected a number or a str")
        if {"\0", "\n"} & set(str(value)):
            raise ValueError(
                f"defines: {name!r} is {value!r}, expected one line without zero bytes"
            )
    return tuple((name, _macro(value)) for name, value in defines.items())


# With its parameters, where it has some, as after clang's -D.
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w, .]*\))?")


def _macro(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
