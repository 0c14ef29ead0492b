"""The earlier form of a declaration, by schema; see `anymetal.ops.declare` for today's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch._library.autograd import Info, make_autograd_impl

from anymetal.ops.declare.checks import FLOATS
from anymetal.ops.declare.derivatives import has_tangents, with_tangents
from anymetal.ops.declare.dtypes import Autocast, register_autocast
from anymetal.ops.declare.kernel_file import kernel_file
from anymetal.ops.declare.operator import (
    DEVICES,
    LIBRARY,
    NAMESPACE,
    OPERATORS,
    Case,
    Cost,
)
from anymetal.ops.declare.operator import Operator as Declared
from anymetal.ops.declare.signature import Signature
from anymetal.policy.tuning_cache import register_source

__all__ = ["DEVICES", "FLOATS", "LIBRARY", "NAMESPACE", "OPERATORS", "Case", "Cost", "Operator"]

Function = TypeVar("Function", bound=Callable[..., Any])

AUTOCAST = {
    "matmul": Autocast("lower", like="matmul"),
    "linear": Autocast("lower", like="linear"),
    "addmm": Autocast("lower", like="addmm"),
    "quantized_linear": Autocast("lower", like="linear"),
    "scaled_dot_product_attention": Autocast("lower", like="scaled_dot_product_attention"),
    "paged_attention": Autocast("lower", like="scaled_dot_product_attention"),
}


class Operator(Declared[..., Any]):
    source: str

    def __init__(
        self,
        schema: str,
        source: str,
        reference: Callable[..., Any],
        cases: Sequence[Case] = (),
        baseline: Callable[..., Any] | None = None,
        cost: Callable[..., Cost] | None = None,
        dtypes: Sequence[torch.dtype] = FLOATS,
        differentiable: bool = True,
        naive: Callable[..., Any] | None = None,
        bench: Sequence[Case] = (),
    ) -> None:
        self.name = schema.split("(", 1)[0]
        self.mixed, self.mutates, self.results = None, (), ("output",)
        self.twice = False
        self.reference, self.cases, self.baseline, self.cost = (
            reference,
            list(cases),
            baseline,
            cost,
        )
        self.dtypes, self.naive, self.bench = tuple(dtypes), naive, list(bench)
        self._differentiable = differentiable
        LIBRARY.define(schema)  # type: ignore[no-untyped-call]
        arguments = self.overload._schema.arguments
        self.signature = Signature(
            schema,
            {a.name: a.default_value for a in arguments},
            frozenset(a.name for a in arguments if a.kwarg_only),
        )
        self.no_gradient = "it is a gradient, which has none itself"
        self.autocast = AUTOCAST.get(self.name)
        register_autocast(self, LIBRARY)
        self.kernels = kernel_file(source)
        register_source(self.name, lambda: self.kernels.text)
        OPERATORS[self.name] = self

    @property
    def differentiable(self) -> bool:
        return self._differentiable

    def forward(self, function: Function) -> Function:
        """Registers what the operator does with tensors of memory."""
        for key in DEVICES:
            LIBRARY.impl(self.name, function, key)  # type: ignore[no-untyped-call]
        return function

    def fake(self, function: Function) -> Function:
        """Registers the shapes and dtypes of the results, for tracing."""
        torch.library.register_fake(self.qualified, function, lib=LIBRARY)
        return function

    def gradient(  # type: ignore[override]
        self, setup: Callable[..., None], backward: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Registers what to keep of a call, and the gradient made of it."""
        recorded = make_autograd_impl(self.overload, Info(backward, setup))

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            values = self.signature.bind(args, kwargs)
            if has_tangents(values):
                return with_tangents(self, values)
            return recorded(keyset, *args, **kwargs)

        LIBRARY.impl(self.name, kernel, "Autograd", with_keyset=True)  # type: ignore[no-untyped-call]
        return backward

    def without_gradient(self, reason: str) -> None:
        """Registers that there is no gradient: an error that says so, never a silent detach."""

        def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            del ctx, inputs, output

        def backward(ctx: Any, *gradients: Any) -> Any:
            del ctx, gradients
            raise RuntimeError(f"{self.qualified} has no gradient: {reason}")

        self.gradient(setup, backward)
