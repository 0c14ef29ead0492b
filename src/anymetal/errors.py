"""Every exception anymetal raises on purpose, and every warning it gives about kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anymetal.nouns import Position


class AnymetalError(Exception):
    """Base of all errors of this package."""


class ToolchainError(AnymetalError, RuntimeError):
    """clang or LLVM is missing, or the two are of different versions."""


class KernelSyntaxError(AnymetalError, SyntaxError):
    """The source does not compile; the text is the compiler's, with the author's lines."""


class UnsupportedError(KernelSyntaxError):
    """Valid Metal that anymetal does not run: textures, ray tracing, Metal 4 tensors."""


class UnsetConstantError(AnymetalError, RuntimeError):
    """A kernel uses function constants that have no value."""


class KernelTimeout(AnymetalError, RuntimeError):
    """A kernel made no progress for longer than the time limit."""


class KernelFault(AnymetalError, RuntimeError):
    """A kernel touched memory that is not there or, with `overflow`, used up its stack."""

    def __init__(self, message: str, *, overflow: bool = False) -> None:
        super().__init__(message)
        self.overflow = overflow


@dataclass(frozen=True)
class FailedAssertion:
    """An `assert` of a kernel that did not hold, in the thread at this position of the grid."""

    text: str
    position: Position
    thread: tuple[int, int, int]


class KernelAssertion(AnymetalError, AssertionError):
    """An `assert` in a kernel did not hold; `failures` are the first ones, one for each thread."""

    def __init__(self, kernel: str, failures: tuple[FailedAssertion, ...]) -> None:
        first = failures[0]
        place = f"{first.position.file}:{first.position.line}"
        x, y, z = first.thread
        thread = f"({x}, {y}, {z})" if y or z else str(x)
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        super().__init__(
            f"kernel '{kernel}': assertion failed: {first.text}, at {place}, in thread {thread} of"
            f" the grid{more}"
        )
        self.failures = failures


class CheckError(AnymetalError, AssertionError):
    """`check(raise_on_error=True)` has found errors; `report` has all findings."""

    def __init__(self, report: Any) -> None:
        super().__init__(str(report))
        self.report = report


class MissingArgument(AnymetalError, RuntimeError):
    """A call passes no argument for a buffer that the kernel uses."""


class EngineError(AnymetalError, RuntimeError):
    """An engine cannot run this kernel."""


class Unsuitable(EngineError):
    """This engine cannot run a kernel, or not with these threadgroups; another one may."""


class LimitError(EngineError, ValueError):
    """More threads, threadgroup memory or buffers than an Apple GPU has, and where, if known."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.position = position


class MetallibError(AnymetalError, ValueError):
    """A metallib is damaged, or a kernel in it uses what anymetal does not know."""


class BundleError(AnymetalError, ValueError):
    """A file of kernels compiled ahead of time cannot be used, or lacks a kernel."""


class PolicyError(AnymetalError, ValueError):
    """A launch policy is missing, or a file of policies has a mistake."""


class ProjectError(AnymetalError, ValueError):
    """`[tool.anymetal]` of a pyproject.toml has a mistake."""


class BuildFileError(AnymetalError, ValueError):
    """A build.toml of a kernel project has a mistake, or no Metal in it."""


class KernelWarning(UserWarning):
    """Something in a source that compiles here and that Apple's compiler refuses."""


class OutOfBlocks(AnymetalError, RuntimeError):
    """A paged cache has fewer free blocks than new tokens need; it is as it was before."""


class WeightsError(AnymetalError, ValueError):
    """A file of weights cannot be read, or does not fit the model, which is untouched."""
