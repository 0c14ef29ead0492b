"""The cases by topic; importing this fills `conformance.case.CASES`."""

from conformance.cases import (
    activations,
    attention,
    factorisations,
    indexing,
    linear_algebra,
    losses,
    norms,
    optimizers,
    quantised,
    rotary,
    softmax,
    special_functions,
)

__all__ = [
    "activations",
    "attention",
    "factorisations",
    "indexing",
    "linear_algebra",
    "losses",
    "norms",
    "optimizers",
    "quantised",
    "rotary",
    "softmax",
    "special_functions",
]
