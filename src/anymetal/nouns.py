"""The things every room passes to the next. Data only: no room's logic lives here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from anymetal.msl.source_map import SourceMap

Role = Literal["buffer", "threadgroup", "builtin"]
Scalar = bool | int | float
ConstantValue = Scalar | tuple[Scalar, ...]  # of a function constant; a vector's are several
GivenValue = Scalar | Sequence[Scalar]  # as an author may write it

# What Apple's GPUs have: threads of a simdgroup, and of a threadgroup at most.
SIMDGROUP = 32
MAX_GROUP_SIZE = 1024


# A version of the Metal language, as MTLLanguageVersion names them.
Language = Literal["3.1", "3.2", "4.0"]


@dataclass(frozen=True)
class Dialect:
    """What of a source decides how the headers are compiled."""

    fast_math: bool = False
    language: Language = "3.2"

    @property
    def version(self) -> int:
        """The value of __METAL_VERSION__."""
        return int(self.language.replace(".", "")) * 10


@dataclass(frozen=True)
class Source:
    """MSL text as the author wrote it, with what is needed to preprocess it."""

    text: str
    name: str = "<shader>"
    include_dirs: tuple[Path, ...] = ()
    defines: tuple[tuple[str, str], ...] = ()
    fast_math: bool = False
    language: Language = "3.2"
    strict: bool = True  # follow address spaces through calls and casts

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.fast_math, self.language)


@dataclass(frozen=True)
class MetallibSource(Source):
    """A file of Apple's compiled kernels; `text` is the digest of its bytes."""

    data: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True)
class Position:
    """A place in the author's text; line and column count from 1."""

    file: str
    line: int
    column: int


@dataclass(frozen=True)
class DeclaredField:
    """A field of a struct as it is written: its name, and how many array extents follow it."""

    name: str
    extents: int
    fields: tuple[DeclaredField, ...] = ()
    enumerators: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel as it is written, before clang has resolved its type."""

    name: str
    declared: str
    role: Role
    index: int | None
    builtin: str | None
    space: str | None
    function_constant: str | None
    position: Position
    fields: tuple[DeclaredField, ...] = ()  # of a struct


@dataclass(frozen=True)
class EntryPoint:
    """A kernel that can be asked for by name: a plain kernel or a named template instance."""

    name: str
    expression: str
    parameters: tuple[Parameter, ...]
    position: Position
    max_total_threads: int | None = None
    scope: str = ""  # the namespaces around it, as in "a::b": its expression is read there
    has_initial_values: bool = False  # of its threadgroup variables


@dataclass(frozen=True)
class FunctionConstant:
    """`constant T name [[function_constant(index)]]`."""

    name: str
    index: int
    type: str
    position: Position


@dataclass(frozen=True)
class ThreadgroupVariable:
    """A threadgroup variable declared in a kernel's body; `slot` is its number in the prepared
    text."""

    slot: int
    name: str
    position: Position


@dataclass(frozen=True)
class Prepared:
    """A Source after the rewrite: C++ that clang compiles, and what the tokens told on the way."""

    source: Source
    text: str
    entry_points: dict[str, EntryPoint]
    function_constants: dict[str, FunctionConstant]
    threadgroup_variables: tuple[ThreadgroupVariable, ...]
    headers: tuple[str, ...]
    dependencies: tuple[tuple[str, str], ...]
    source_map: SourceMap
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # what `#warning` says
    with_spaces: Prepared | None = None  # with address spaces, which can only be checked


@dataclass(frozen=True)
class Field:
    """A field of a struct as Metal lays it out. An array has the shape of its extents."""

    name: str
    type: str  # of one element, as Metal spells it
    offset: int  # from the start of the struct it stands in
    size: int  # of one element
    shape: tuple[int, ...] = ()
    fields: tuple[Field, ...] = ()  # of a nested struct
    enumerators: tuple[tuple[str, int], ...] = ()  # of an enumeration

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Field:
        """The field whose `asdict` went through JSON."""
        fields = tuple(cls.from_row(field) for field in row["fields"])
        enumerators = tuple((name, value) for name, value in row["enumerators"])
        more = {"shape": tuple(row["shape"]), "fields": fields, "enumerators": enumerators}
        return cls(**{**row, **more})


@dataclass(frozen=True)
class Argument:
    """One bound parameter of a compiled kernel, with the type clang resolved."""

    name: str
    role: Role
    index: int | None
    builtin: str | None
    space: str | None
    type: str
    element_size: int
    element_align: int
    is_pointer: bool
    is_const: bool
    fields: tuple[Field, ...] = ()  # of a struct

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Argument:
        """The argument whose `asdict` went through JSON."""
        return cls(**{**row, "fields": tuple(Field.from_row(field) for field in row["fields"])})


@dataclass(frozen=True)
class Outline:
    """What is known of a source that compiles: enough to ask for its kernels."""

    kernels: tuple[str, ...]
    constants: tuple[FunctionConstant, ...]
    dependencies: tuple[tuple[str, str], ...]  # files it included, with their digests
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """How a front end compiles kernels for the engines of one machine.

    `flags` are clang's (triple, processor). `header`, found in `include_dirs`, declares what
    `thunk(entry, function)` uses: the text of the function that an engine calls, which passes its
    own description of a thread on to the kernel's parameters. `provided` are the functions that the
    engine brings; a kernel may leave no others undefined.
    """

    name: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...]
    header: str
    thunk: Callable[[EntryPoint, str], str]
    provided: frozenset[str]


@dataclass(frozen=True)
class AddedBytes:
    """Padding that the compiler put into a structure: behind its last member, or before one."""

    structure: str
    count: int
    at_end: bool


class Places(Protocol):
    """From a line of compiled text to the author's place, and to what stands there."""

    def position(self, row: int, column: int) -> Position | None: ...
    def excerpt(self, position: Position) -> str | None: ...


@dataclass(frozen=True)
class Program:
    """One kernel, compiled to IR for one target and one set of function constants."""

    entry: EntryPoint
    ir: str
    arguments: tuple[Argument, ...]
    source_map: Places
    constants: tuple[FunctionConstant, ...] = ()
    threadgroup_variables: tuple[ThreadgroupVariable, ...] = ()
    first_line: int = 1  # line of the compiled text where the prepared text starts
    padding: frozenset[AddedBytes] = frozenset()  # known where the IR is not optimised

    @property
    def name(self) -> str:
        return self.entry.name
