"""The report of a comparison: a table to read, an error with the first bad element to raise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from anymetal.checker.finding import Finding
from anymetal.checker.terminal import plain_finding
from anymetal.evidence.judge import Judgement
from anymetal.evidence.tables import as_text, new_table
from anymetal.testing.cases import Case


class ComparisonError(AssertionError):
    """A kernel and its reference differ; the message has the first bad element."""


@dataclass(frozen=True)
class BadElement:
    """The first element of a result whose error is beyond the bound."""

    result: int  # which of several
    index: tuple[int, ...]
    got: object
    torch_value: object
    exact: object

    def __str__(self) -> str:
        which = f"result {self.result}, " if self.result else ""
        return (
            f"{which}element {list(self.index)} is {self.got!r}; float64 has {self.exact!r},"
            f" torch {self.torch_value!r}"
        )


@dataclass(frozen=True)
class Line:
    """One case: what became of it."""

    case: Case
    judgement: Judgement
    gradient: Judgement | None
    findings: tuple[Finding, ...]
    bad: BadElement | None = None
    bad_in: str = "result"  # or gradient

    @property
    def passed(self) -> bool:
        gradient = self.gradient is None or self.gradient.passed
        return self.judgement.passed and gradient and not self.findings

    @property
    def verdict(self) -> str:
        if self.passed:
            return "ok"
        if not self.judgement.passed:
            return "raised" if "raised" in (self.judgement.fault or "") else "wrong"
        return "checker" if self.findings else "gradient"

    def reasons(self) -> Iterator[str]:
        """What is wrong, the first bad element before everything else."""
        if self.bad is not None:
            yield f"{self.bad_in}: {self.bad}"
        if not self.judgement.passed:
            yield f"result: {self.judgement}, bound {_bound(self.judgement)}"
        if self.gradient is not None and not self.gradient.passed:
            yield f"gradient: {self.gradient}, bound {_bound(self.gradient)}"
        yield from (plain_finding(finding) for finding in self.findings)


@dataclass(frozen=True)
class Comparison:
    """All cases of a comparison, in order. `print` shows them as a table."""

    name: str
    lines: tuple[Line, ...]
    checked: bool

    @property
    def passed(self) -> bool:
        """Whether every case agrees."""
        return all(line.passed for line in self.lines)

    @property
    def failures(self) -> tuple[Line, ...]:
        """The cases that do not."""
        return tuple(line for line in self.lines if not line.passed)

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        text = as_text(self.table())
        return text + (f"\n\n{self.message()}" if self.failures else "")

    def table(self) -> Table:
        """One row a case."""
        shown = new_table(
            *("shape", "dtype", "layout", "values"),
            right=("error", "torch's", "×", "grad ×"),
            last="verdict",
        )
        for line in self.lines:
            case, judged = line.case, line.judgement
            gradient = "-" if line.gradient is None else _times(line.gradient)
            shown.add_row(
                *(case.shape_text, case.dtype_text, case.layout, case.values),
                *(f"{judged.error:.1e}", f"{judged.torch_error:.1e}", _times(judged), gradient),
                line.verdict,
                style="" if line.passed else "red",
            )
        return shown

    def message(self) -> str:
        """What is wrong with the first case that fails, and how many fail."""
        failures = self.failures
        if not failures:
            return f"{self.name}: {len(self.lines)} cases agree with float64"
        case = failures[0].case
        head = (
            f"{self.name} fails in {len(failures)} of {len(self.lines)} cases; the first: shape"
            f" {case.shape_text}, {case.dtype_text}, {case.layout}, {case.values} values"
        )
        return "\n".join([head, *(f"  {reason}" for reason in failures[0].reasons())])

    def raise_failures(self) -> None:
        """ComparisonError where a case fails."""
        if not self.passed:
            raise ComparisonError(self.message())


def _bound(judgement: Judgement) -> str:
    return f"{judgement.bound:.2g}"


def _times(judgement: Judgement) -> str:
    return f"{judgement.in_torch_errors:.2f}" if judgement.fault is None else "-"
