"""One declaration an operator; from it come registration, tests, benchmarks, health and docs.

An operator is a schema of torch.library with a kernel behind it. Its forward and its fake (the
shapes alone) are plain functions; its gradient is another operator, so that torch.compile can trace
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from anymetal.ops.declare.kernel_file import SUFFIXES, KernelFile
from anymetal.policy.tuning_cache import register_source

NAMESPACE = "anymetal"
DEVICES = ("CPU", "MPS")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
OPERATORS: dict[str, Operator] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Cost:
    """The least memory traffic of a call, in bytes, and its arithmetic."""

    read: int
    write: int
    flops: int = 0


@dataclass(frozen=True)
class Case:
    """One way to call an operator: `make(dtype, device, generator)` gives args and kwargs."""

    name: str
    make: Callable[[torch.dtype, torch.device, torch.Generator], tuple[list[Any], dict[str, Any]]]


@dataclass
class Operator:
    """An operator `anymetal::name`. `reference` is called in float64, `baseline` is torch's own.

    `naive` is the composition of plain torch operators that people write without a fused one, and
    `bench` the larger cases that are timed; without them the cases of the tests are.
    """

    schema: str
    source: str
    reference: Callable[..., Any]
    cases: Sequence[Case] = ()
    baseline: Callable[..., Any] | None = None
    cost: Callable[..., Cost] | None = None
    dtypes: Sequence[torch.dtype] = FLOATS
    differentiable: bool = True
    naive: Callable[..., Any] | None = None
    bench: Sequence[Case] = ()
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.schema.split("(", 1)[0]
        if self.name in OPERATORS:
            raise ValueError(f"operator {self.name!r} is declared twice")
        LIBRARY.define(self.schema)  # type: ignore[no-untyped-call]
        self.kernels = KernelFile(self.source)
        register_source(self.name, lambda: self.kernels.text)
        OPERATORS[self.name] = self

    @property
    def qualified(self) -> str:
        return f"{NAMESPACE}::{self.name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(torch.ops.anymetal, self.name)(*args, **kwargs)

    def forward(self, function: Function) -> Function:
        """Registers what the operator does with tensors of memory."""
        for key in DEVICES:
            LIBRARY.impl(self.name, function, key)  # type: ignore[no-untyped-call]
        return function

    def fake(self, function: Function) -> Function:
        """Registers the shapes and dtypes of the results, for tracing."""
        torch.library.register_fake(self.qualified, function, lib=LIBRARY)
        return function

    def gradient(
        self, setup: Callable[..., None], backward: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Registers what to keep of a call, and the gradient made of it."""
        torch.library.register_autograd(self.qualified, backward, setup_context=setup, lib=LIBRARY)
        return backward

    def no_gradient(self, reason: str) -> None:
        """Registers that there is no gradient: an error that says so, never a silent detach."""

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            del ctx, inputs, output

        def backward(ctx: Any, *gradients: Any) -> Any:
            del ctx, gradients
            raise RuntimeError(f"{self.qualified} has no gradient: {reason}")

        self.gradient(setup, backward)

    def kernel(self, name: str, tensor: torch.Tensor) -> Callable[..., None]:
        """The instance of a kernel for a tensor's dtype and device."""
        return self.kernels.kernel(f"{name}_{self.suffix(tensor)}", tensor.device)

    def suffix(self, tensor: torch.Tensor) -> str:
        if tensor.dtype not in self.dtypes:
            expected = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
            raise TypeError(f"{self.name}: dtype {tensor.dtype} is not supported; use {expected}")
        return SUFFIXES[tensor.dtype]
