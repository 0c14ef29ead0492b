"""The contract of an engine: a Program becomes an Executable, an Executable runs launches."""

from __future__ import annotations

from typing import Any, Protocol

from anymetal.nouns import Argument, Launch, Program


class Executable(Protocol):
    """A kernel ready to run. `payload` and `metadata` are all a cache needs to keep it."""

    payload: bytes
    metadata: dict[str, Any]
    name: str
    arguments: tuple[Argument, ...]
    max_threads_per_threadgroup: int
    thread_execution_width: int
    static_threadgroup_memory_length: int
    used_buffers: frozenset[int]

    def run(self, launch: Launch) -> None:
        """Runs one dispatch to its end."""


class Engine(Protocol):
    """Something that runs programs. `version` changes whenever old payloads must not be loaded."""

    name: str
    version: str

    def compile(self, program: Program) -> Executable:
        """Makes a program executable on this machine."""

    def load(self, payload: bytes, metadata: dict[str, Any]) -> Executable:
        """Takes back what an Executable of the same version kept."""
