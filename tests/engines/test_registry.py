"""An engine and a front end take a line in the registry, and nothing else of ours knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from anymetal import compile_shader
from anymetal.engines import registry
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN, Executable
from anymetal.engines.cpu.threads.engine import ThreadEngine
from anymetal.errors import EngineError, Unsuitable
from anymetal.nouns import Outline, Program, Scalar, Source, Target

SOURCE = """#include <metal_stdlib>
kernel void f(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }
kernel void g(device float* x, uint i [[thread_position_in_grid]]) { x[i] += 2; }
"""


class OnlyF(ThreadEngine):
    """Runs kernels called f, and counts them."""

    name = "only_f"
    compiled = 0

    @property
    def target(self) -> Target:
        return replace(super().target, name="f")

    def compile(self, program: Program, *, patient: bool = False) -> Any:
        if program.name != "f":
            raise Unsuitable("its name is not f")
        self.compiled += 1
        executable = super().compile(program)
        executable.metadata["engine"] = self.name
        return executable


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> OnlyF:
    engine = OnlyF()
    monkeypatch.setattr(registry, "ENGINES", (engine, *registry.ENGINES))
    return engine


def test_new_engine_is_tried_in_its_place(engine: OnlyF, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "auto")
    library = compile_shader(SOURCE + "// auto")
    x = torch.zeros(3)
    library.f(x)
    library.g(x)
    assert x.tolist() == [3] * 3
    assert (library.f.engine, library.f.engine_reason) == ("only_f", "")
    assert (library.g.engine, library.g.engine_reason) == ("simdgroup", "its name is not f")


def test_new_engine_is_chosen_by_the_setting(
    engine: OnlyF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "only_f")
    library = compile_shader(SOURCE)
    assert (library.f.engine, library.f.engine_reason) == ("only_f", "ANYMETAL_ENGINE=only_f")
    with pytest.raises(EngineError, match="'g' cannot run on the only_f engine: its name is not f"):
        _ = library.g


def test_unknown_engine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_ENGINE", "cuda")
    with pytest.raises(ValueError, match="expected auto, simdgroup, coroutine"):
        _ = compile_shader(SOURCE).f


@dataclass(frozen=True)
class Recipe(Source):
    """A source in another language: `add NUMBER`."""


class RecipeFrontend:
    """Translates to Metal, and leaves the rest to its front end."""

    def outline(self, source: Source, target: Target) -> Outline:
        return registry.FRONTENDS[Source].outline(_metal(source), target)

    def program(
        self,
        source: Source,
        kernel: str,
        constants: Mapping[str, Scalar],
        target: Target,
        *,
        optimise: bool,
        lines: bool = False,
    ) -> Program:
        metal, given = registry.FRONTENDS[Source], _metal(source)
        return metal.program(given, kernel, constants, target, optimise=optimise, lines=lines)


def _metal(source: Source) -> Source:
    number = source.text.removeprefix("add ")
    return Source(SOURCE.replace("+= 1", f"+= {number}"))


def test_new_front_end_reads_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    frontends = {**registry.FRONTENDS, Recipe: RecipeFrontend()}
    monkeypatch.setattr(registry, "FRONTENDS", frontends)
    compiler = Compiler(Recipe("add 5"))
    assert compiler.outline.kernels == ("f", "g")
    executable: Executable = compiler.compile("f", {}, PLAIN)
    assert [argument.name for argument in executable.arguments] == ["x", "i"]
