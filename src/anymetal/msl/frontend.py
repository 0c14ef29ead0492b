"""Metal source as a front end: a Source goes in, its outline and Programs come out."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from anymetal.msl.check import check_all
from anymetal.msl.check_spaces import check_spaces
from anymetal.msl.clang import precompile_early
from anymetal.msl.compile import compile_program
from anymetal.msl.prepare import prepare
from anymetal.nouns import ConstantValue, Outline, Prepared, Program, Source, Target
from anymetal.store.fingerprint import unchanged
from anymetal.store.kept import KeptPrograms

# A source that names more kernels than this is checked without its template instances, which are
# then checked when they are asked for: instantiating all of a large library takes a minute.
CHECKED_AT_ONCE = 64
# Prepared texts that are kept: more than the sources of our own operators.
_KEPT = 64


class MetalFrontend:
    """Compiles Metal source with stock clang."""

    def __init__(self) -> None:
        self._prepared: OrderedDict[Source, Prepared] = OrderedDict()
        self._programs = KeptPrograms()
        self._lock = threading.Lock()

    def outline(self, source: Source, target: Target) -> Outline:
        """Raises KernelSyntaxError where a kernel of the source does not compile."""
        precompile_early(target, source.dialect)
        prepared = self.prepared(source)
        at_once = len(prepared.entry_points) <= CHECKED_AT_ONCE
        check_all(prepared, target, instantiate=at_once)
        check_spaces(prepared, target, instantiate=at_once)
        return Outline(
            kernels=tuple(prepared.entry_points),
            constants=tuple(prepared.function_constants.values()),
            dependencies=prepared.dependencies,
            warnings=prepared.warnings,
        )

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
        """One kernel for one set of function constants."""
        prepared = self.prepared(source)
        named: dict[int | str, ConstantValue] = {name: constants[name] for name in constants}
        return self._programs.program(
            *(prepared, kernel, constants, target),
            optimise=optimise,
            lines=lines,
            make=lambda: compile_program(
                *(prepared, kernel, named, target), optimise=optimise, lines=lines
            ),
        )

    def constants(self, source: Source, kernel: str) -> None:
        """All kernels share those of the outline."""

    def text(self, source: Source, kernel: str) -> str:
        return source.text

    def prepared(self, source: Source) -> Prepared:
        """The rewritten source, made once while the files it includes stay as they are."""
        with self._lock:
            known = self._prepared.get(source)
        if known is None or not unchanged(known.dependencies):
            known = prepare(source)
        with self._lock:
            self._prepared[source] = known
            self._prepared.move_to_end(source)
            if len(self._prepared) > _KEPT:
                self._prepared.popitem(last=False)
        return known
