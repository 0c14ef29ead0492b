"""One file of tests/bad_kernels in, the launch it asks for and the findings it expects out.

The opening comment of every file is read by line:

    // expect: KIND SEVERITY [line N] [other N] [buffer NAME] [index N] [count N]
    // expect: nothing
    // allow: KIND SEVERITY ...           may be found, need not be
    // raises: ERROR                      the launch is refused as well as reported
    // launch: KERNEL ARGUMENT... [threads=N,...] [group_size=N,...] [outputs=I,...|none]
    // launch: [memory=BYTES] [seconds=LIMIT] [nan]

A launch may take several lines. Arguments are in buffer order: a number, a list of numbers, or
DTYPE[SHAPE]=CONTENTS, where contents are `zeros`, `random`, `range`, `digits` (0 to 15, mixed), one
number for all, or all numbers with commas; DTYPE[SHAPE]+N is a slice that begins N elements into
its storage, DTYPE[SHAPE].t is transposed, DTYPE[SHAPE].cols the first half of its columns. &I is
argument I again, &I+N a slice of it that begins at element N. `casts=NAME` is given as arg_casts.
`outputs` are the arguments that the launch must write completely; `none` turns that check off.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import anymetal
from anymetal.checker.finding import Finding
from anymetal.checker.report import Report

CORPUS = Path(__file__).parent.parent / "bad_kernels"
FIXED = ".fixed.metal"

_DIRECTIVE = re.compile(r"// (expect|allow|raises|launch): (.*)")
_TENSOR = re.compile(r"(\w+)\[([\d,]+)\](?:\+(\d+)|\.(t|cols))?=(\S+)")

_AGAIN = re.compile(r"&(\d+)(?:\+(\d+))?")

Argument = torch.Tensor | int | float | list[int] | list[float]


@dataclass(frozen=True)
class Expected:
    """One finding as the opening comment words it; None where it does not say."""

    kind: str
    severity: str
    line: int | None = None
    other: int | None = None
    buffer: str | None = None
    index: int | None = None
    count: int | None = None

    def fits(self, finding: Finding) -> bool:
        if (self.kind, self.severity) != (finding.kind, finding.severity):
            return False
        if not self._lines_fit(finding):
            return False
        facts = ((self.buffer, finding.buffer), (self.index, finding.index))
        counts = ((self.count, finding.count),)
        return all(wanted is None or wanted == found for wanted, found in (*facts, *counts))

    def _lines_fit(self, finding: Finding) -> bool:
        """Which of two racing accesses comes first is the schedule's affair."""
        if self.line is None:
            return True
        found = (finding.line, finding.other.line if finding.other else None)
        if self.other is None:
            return found[0] == self.line
        return found in ((self.line, self.other), (self.other, self.line))


@dataclass(frozen=True)
class BadKernel:
    """A kernel file with its launch. `allowed` findings may be there, `expected` ones must."""

    path: Path
    expected: tuple[Expected, ...]
    allowed: tuple[Expected, ...]
    raises: str | None
    launch: tuple[str, ...]
    source: str

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name.removesuffix('.metal')}"

    @property
    def kernel(self) -> str:
        return self.launch[0]

    def keyword(self, name: str) -> str | None:
        prefix = f"{name}="
        return next((word[len(prefix) :] for word in self.launch if word.startswith(prefix)), None)

    def arguments(self, seed: int = 7) -> list[Argument]:
        """Fresh arguments, the same ones every time."""
        generator = torch.Generator().manual_seed(seed)
        words = [word for word in self.launch[1:] if not re.match(r"[a-z_]+(=|$)", word)]
        made: list[Argument] = []
        for word in words:
            again = _AGAIN.fullmatch(word)
            made.append(_again(made, again) if again else _argument(word, generator))
        return made


def read(path: Path) -> BadKernel:
    source = path.read_text()
    matches = map(_DIRECTIVE.match, source.splitlines())
    directives = [match.groups() for match in matches if match]
    texts = {name: [text for key, text in directives if key == name] for name, _ in directives}
    expected = [text for text in texts.get("expect", []) if text != "nothing"]
    return BadKernel(
        path,
        tuple(_expected(text) for text in expected),
        tuple(_expected(text) for text in texts.get("allow", [])),
        next(iter(texts.get("raises", [])), None),
        tuple(" ".join(texts["launch"]).split()),
        source,
    )


def all_kernels() -> list[BadKernel]:
    return [read(path) for path in sorted(CORPUS.rglob("*.metal"))]


def run(bad: BadKernel, arguments: list[Argument]) -> None:
    """Launch the kernel as its comment says; a refusal that the comment names is no failure."""
    library = anymetal.compile_shader(bad.source, name=str(bad.path))
    memory = bad.keyword("memory")

    def launch() -> None:
        getattr(library, bad.kernel)(
            *arguments,
            threads=_sizes(bad.keyword("threads")),
            group_size=_sizes(bad.keyword("group_size")),
            threadgroup_memory={0: int(memory)} if memory else None,
            arg_casts=bad.keyword("casts"),
        )

    if bad.raises is None:
        launch()
    else:
        with pytest.raises(Exception) as caught:
            launch()
        assert bad.raises in [cls.__name__ for cls in type(caught.value).__mro__]


def run_checked(bad: BadKernel, arguments: list[Argument] | None = None) -> Report:
    if arguments is None:
        arguments = bad.arguments()
    with anymetal.check(outputs=_outputs(bad, arguments), nan="nan" in bad.launch) as report:
        run(bad, arguments)
    return report


def _outputs(bad: BadKernel, arguments: list[Argument]) -> list[Argument] | None:
    text = bad.keyword("outputs")
    if text is None:
        return None
    return [] if text == "none" else [arguments[int(index)] for index in text.split(",")]


def _expected(text: str) -> Expected:
    kind, severity, *rest = text.split()
    facts = dict(zip(rest[::2], rest[1::2], strict=True))
    numbers = {key: int(facts[key]) for key in ("line", "other", "index", "count") if key in facts}
    return Expected(kind, severity, buffer=facts.get("buffer"), **numbers)


def _again(made: list[Argument], match: re.Match[str]) -> torch.Tensor:
    tensor = made[int(match[1])]
    assert isinstance(tensor, torch.Tensor)
    return tensor[int(match[2]) :] if match[2] else tensor


def _argument(word: str, generator: torch.Generator) -> Argument:
    match = _TENSOR.fullmatch(word)
    if word.startswith("["):
        return [_number(item) for item in word.strip("[]").split(",")]  # type: ignore[return-value]
    if match is None:
        return _number(word)
    dtype = getattr(torch, match[1])
    shape = [int(size) for size in match[2].split(",")]
    offset = int(match[3] or 0)
    storage = torch.zeros(math.prod(shape) + offset, dtype=dtype)
    tensor = storage[offset:].view(shape)
    tensor.copy_(_contents(match[5], shape, generator))
    if match[4]:
        return tensor.t() if match[4] == "t" else tensor[:, : shape[1] // 2]
    return tensor


def _number(word: str) -> int | float:
    return float(word) if "." in word else int(word)


def _contents(text: str, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    if text == "zeros":
        return torch.zeros(shape)
    if text == "random":
        return torch.randn(shape, generator=generator)
    if text == "digits":
        return torch.randperm(math.prod(shape), generator=generator).view(shape) % 16
    if text == "range":
        return torch.arange(math.prod(shape)).view(shape)
    values = torch.tensor([float(value) for value in text.split(",")])
    return values.expand(shape) if values.numel() == 1 else values.view(shape)


def _sizes(text: str | None) -> tuple[int, ...] | None:
    return tuple(int(size) for size in text.split(",")) if text else None
