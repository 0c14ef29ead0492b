"""How operators are declared.

An operator is one typed function. It checks its arguments and makes room for the results, which is
all that tracing needs, and a second function fills them:

    @operator(source="softplus.metal", reference=F.softplus, cases=[random_case((0,)), ...])
    def softplus(input: Tensor, beta: float = 1.0) -> Tensor:
        \"\"\"log(1 + exp(beta * x)) / beta.\"\"\"
        check_input("softplus", input)
        return torch.empty_like(input)

    @softplus.run
    def _(output: Tensor, input: Tensor, beta: float = 1.0) -> None:
        launch_map(softplus, "softplus", as_rows(input, output), beta)

The schema, the fake, the public function with its docstring, the tests and the rows in health and
benchmarks follow. The gradient is an operator too: it names what it needs (`grad`, arguments and
results of the first), and its reference and cases follow from the first's:

    @softplus.gradient(of=["input"])
    def softplus_backward(grad: Tensor, input: Tensor, beta: float = 1.0) -> Tensor: ...

or a function that gives gradients by the arguments' names (`call` holds what `keep` names):

    @matmul.backward(keep=["input", "other"])
    def _(call: Call, grad: Tensor) -> Gradients:
        return {"input": matmul(grad, call.other.mT), "other": matmul(call.input.mT, grad)}

A mutating operator names what it writes and has no results; its reference writes too. Where it is
annotated to return a tensor, the Python call returns the first that it wrote:

    @operator(
        ...,
        mutates=["input"],
        functional=silu,  # what is written, where it is differentiated; or no_gradient="..."
        reference=lambda input: input.copy_(F.silu(input.clone())),
    )
    def silu_(input: Tensor) -> Tensor:
        check_writable("silu_", "input", input)
        return input

    @silu_.run
    def _(input: Tensor) -> None: ...

Many tensors are lists, whether read or written. An operator without a gradient says why:

    @operator(..., mutates=["params"], no_gradient="an optimizer's step has none")
    def sgd_step(params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        check_lists(...)

An operator that is made of others computes its results in the function, and nothing is left to
run. Its gradient is theirs, and nothing is computed twice; with a `backward` of its own it may keep
less:

    @operator(..., made_of_others=True)
    def cholesky_inverse(L: Tensor) -> Tensor:
        return cholesky_solve(torch.eye(L.shape[-1]), L)

A function of many arguments, be it `run`, the reference or the cost, may take them as one object,
so that the declaration alone lists them:

    @sgd_step.run
    @on_call
    def _(call: Arguments) -> None:
        run_tables(sgd_step, call.params, call.grads, lr=call.lr)

`mixed` says what happens to tensors of several dtypes, `autocast` what torch.autocast does,
`twice` that gradients of gradients may be taken from the reference. Tangents of forward mode are
the reference's wherever there is a gradient. What an operator cannot do, it refuses with a reason.
"""

from anymetal.ops.declare import variants
from anymetal.ops.declare.checks import FLOATS
from anymetal.ops.declare.derivatives import Call, Gradients
from anymetal.ops.declare.dtypes import Autocast
from anymetal.ops.declare.operator import (
    NAMESPACE,
    OPERATORS,
    AnyOperator,
    Case,
    Cost,
    Operator,
    operator,
)
from anymetal.ops.declare.signature import Arguments, on_call

__all__ = [
    "FLOATS",
    "NAMESPACE",
    "OPERATORS",
    "AnyOperator",
    "Arguments",
    "Autocast",
    "Call",
    "Case",
    "Cost",
    "Gradients",
    "Operator",
    "on_call",
    "operator",
    "variants",
]
