"""What front ends, engines and instrumentations are to the compiler.

A front end makes a Program of a source, for a target. An engine makes an Executable of a Program.
An instrumentation decides what goes into the code besides the kernel: nothing, counters, checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from anymetal.nouns import (
    Argument,
    ConstantValue,
    FunctionConstant,
    Outline,
    Program,
    Source,
    Target,
)

Sizes = tuple[int, int, int]


class Compiled(Protocol):
    """What an instrumentation makes of a kernel. `payload` and `metadata` are all a cache needs to
    keep it; the compiler adds to `metadata` why its engine was chosen."""

    @property
    def payload(self) -> bytes: ...
    @property
    def metadata(self) -> dict[str, Any]: ...


class Executable(Compiled, Protocol):
    """A kernel ready to run."""

    @property
    def arguments(self) -> tuple[Argument, ...]: ...
    @property
    def used_buffers(self) -> frozenset[int]: ...
    @property
    def max_threads_per_threadgroup(self) -> int: ...
    @property
    def thread_execution_width(self) -> int: ...
    @property
    def static_threadgroup_memory_length(self) -> int: ...

    def launch(
        self,
        buffers: int,
        threads: Sizes,
        group_size: Sizes,
        workers: int,
        threadgroup_memory: dict[int, int] | None = None,
        listener_data: int = 0,
    ) -> None:
        """Runs one dispatch to its end. `buffers` is the address of a table of buffer addresses;
        raises Unsuitable, before anything runs, where the engine cannot do this shape."""


E = TypeVar("E", bound=Compiled)
E_co = TypeVar("E_co", bound=Compiled, covariant=True)


class Engine(Protocol):
    """Something that runs programs. It sets `metadata["engine"]` to its name."""

    @property
    def name(self) -> str: ...
    @property
    def target(self) -> Target: ...

    def compile(self, program: Program, *, patient: bool = False) -> Executable:
        """Makes a program executable on this machine, or raises Unsuitable.

        `patient`: no other engine is to take over, so compiling may take long.
        """

    def load(self, payload: bytes, metadata: dict[str, Any]) -> Executable:
        """Takes back what an Executable kept."""

    def start_early(self) -> None:
        """Builds, beside whatever the caller does next, what is built once a machine."""


class Instrumentation(Protocol[E_co]):
    """What is compiled into a kernel. `key` says all that decides about the code."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def engine(self) -> str:
        """The engine it is made for; empty where any will do."""

    @property
    def optimise(self) -> bool:
        """Whether the front end optimises first; else all accesses stand as they are written."""

    @property
    def quotes(self) -> bool:
        """Whether the result names places in the source: it is another one for another name."""

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> E_co:
        """The program with what belongs to this instrumentation."""

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> E_co:
        """What `compile` made, from the store."""


class Frontend(Protocol):
    """Reads sources of one kind."""

    def outline(self, source: Source, target: Target) -> Outline:
        """Raises KernelSyntaxError where a kernel of the source does not compile."""

    def constants(self, source: Source, kernel: str) -> tuple[FunctionConstant, ...] | None:
        """The function constants of one kernel; None where all kernels share the outline's."""

    def text(self, source: Source, kernel: str) -> str:
        """The text that places in a kernel refer to."""

    def program(
        self,
        source: Source,
        kernel: str,
        constants: Mapping[str, ConstantValue],
        target: Target,
        *,
        optimise: bool,
        lines: bool = False,
    ) -> Program:
        """One kernel for one set of function constants; with `lines`, its code knows its places."""


class Plain:
    """The kernel alone."""

    name, key, engine = "executable", "", ""
    optimise = True
    quotes = False

    def compile(self, program: Program, engine: Engine, *, patient: bool) -> Executable:
        return engine.compile(program, patient=patient)

    def load(self, payload: bytes, metadata: dict[str, Any], engine: Engine) -> Executable:
        return engine.load(payload, metadata)


PLAIN = Plain()
