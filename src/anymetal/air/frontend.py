"""Metallibs as a front end: a MetallibSource goes in, its outline and Programs come out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from anymetal.air.container import Metallib
from anymetal.air.llvm import disassembled
from anymetal.air.metadata import read_notes
from anymetal.air.program import constants_of, make_program
from anymetal.errors import Unsuitable
from anymetal.ir import parse
from anymetal.nouns import (
    ConstantValue,
    FunctionConstant,
    MetallibSource,
    Outline,
    Program,
    Source,
    Target,
)
from anymetal.store.kept import KeptPrograms

_KEPT = 4


class AirFrontend:
    """Makes programs of what Apple's compiler compiled."""

    def __init__(self) -> None:
        self._libraries: OrderedDict[Source, Metallib] = OrderedDict()
        self._programs = KeptPrograms()
        self._lock = threading.Lock()

    def library(self, source: Source) -> Metallib:
        """The functions of a metallib."""
        assert isinstance(source, MetallibSource)
        with self._lock:
            found = self._libraries.get(source)
            if found is None:
                found = self._libraries[source] = Metallib(source.data, source.name)
            self._libraries.move_to_end(source)
            if len(self._libraries) > _KEPT:
                self._libraries.popitem(last=False)
        return found

    def outline(self, source: Source, target: Target) -> Outline:
        """Raises MetallibError where the file is damaged. Function constants belong to kernels."""
        library = self.library(source)
        return Outline(kernels=library.kernels, constants=(), dependencies=(), warnings=())

    def constants(self, source: Source, kernel: str) -> tuple[FunctionConstant, ...]:
        function = self.library(source).function(kernel)
        module = parse(disassembled(function.bitcode, kernel))
        return constants_of(function, read_notes(module, kernel))

    def text(self, source: Source, kernel: str) -> str:
        """The disassembly, which places refer to."""
        return disassembled(self.library(source).function(kernel).bitcode, kernel)

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
        if target.name != "cpu":
            raise Unsuitable("it comes from a metallib, which runs on processors only")
        library = self.library(source)
        return self._programs.program(
            *(library, kernel, constants, target),
            optimise=optimise,
            lines=lines,
            make=lambda: make_program(
                *(library.function(kernel), constants, target), optimise=optimise, lines=lines
            ),
        )
