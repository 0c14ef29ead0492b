"""Operators that write into their first argument, such as `silu_`, with a gradient.

torch.library.register_autograd takes functional operators only, so the gradient here is an
autograd.Function that marks the argument as changed, registered under the operator's own name:
torch.compile sees one operator and never looks inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from anymetal.ops.declare.declare import DEVICES, LIBRARY, NAMESPACE

Kept = torch.Tensor | None


@dataclass(frozen=True)
class InPlace:
    """`run` does it; `keep` gives what `gradient` needs, before it is overwritten.

    `gradient(grad, kept, args)` gives one gradient an argument. Without `keep`, `kept` is the
    result.
    """

    schema: str
    run: Callable[..., None]
    gradient: Callable[..., tuple[Any, ...]]
    keep: Callable[..., Kept] | None = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.schema.split("(", 1)[0])
        LIBRARY.define(self.schema)  # type: ignore[no-untyped-call]
        for key in DEVICES:
            LIBRARY.impl(self.name, self.run, key)  # type: ignore[no-untyped-call]
        autograd = self._with_gradient
        LIBRARY.impl(self.name, autograd, "Autograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", lambda *args: None, lib=LIBRARY)

    def __call__(self, tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        """Runs the operator and returns its first argument, as torch's functions do."""
        getattr(torch.ops.anymetal, self.name)(tensor, *args)
        return tensor

    def below_autograd(self, *args: Any) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            getattr(torch.ops.anymetal, self.name)(*args)

    def _with_gradient(self, *args: Any) -> None:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            _Changed.apply(self, *args)  # type: ignore[no-untyped-call]
            return
        self.below_autograd(*args)
        # What autograd kept of this tensor is no longer true; this lets it notice.
        torch.autograd.graph.increment_version(args[0])


class _Changed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operator: InPlace, *args: Any) -> torch.Tensor:
        kept = operator.keep(*args) if operator.keep is not None else args[0]
        operator.below_autograd(*args)
        ctx.mark_dirty(args[0])
        ctx.save_for_backward(kept)
        ctx.operator = operator
        # Gradients need the other arguments' numbers, shapes and dtypes, not their values.
        ctx.others = tuple(
            torch.empty_like(arg, device="meta") if isinstance(arg, torch.Tensor) else arg
            for arg in args
        )
        result: torch.Tensor = args[0]
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        (kept,) = ctx.saved_tensors
        return (None, *ctx.operator.gradient(gradients[0], kept, ctx.others))
