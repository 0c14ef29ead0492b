"""gather, scatter_add, index_select and index_add along any dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal.ops.declare import Call, Case, Cost, Gradients, operator
from anymetal.ops.declare.checks import check_input, check_like, check_shape
from anymetal.ops.indexing.places import add_into, check_index, dimension, take_into

SOURCE = "indexing.metal"
Tensor = torch.Tensor


def _case(
    shape: Sequence[int], dim: int, index: Sequence[int], source: Sequence[int] | None, **named: Any
) -> Case:
    """A tensor, a dimension and indices of it, and by `source` what is added; int32 where odd."""

    def make(
        dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> tuple[list[Any], dict[str, Any]]:
        places = max(shape[dim] if shape else 1, 1)
        indices = torch.randint(0, places, tuple(index), generator=generator)
        indices = indices.int() if places % 2 else indices
        args: list[Any] = [torch.randn(tuple(shape), generator=generator).to(dtype).to(device)]
        args += [dim, indices.to(device)]
        if source is not None:
            values = torch.randn(tuple(source), generator=generator)
            args.append(values.to(dtype).to(device))
        return args, dict(named)

    words = ["x".join(map(str, sizes)) or "scalar" for sizes in (shape, index)]
    return Case(f"{words[0]} dim={dim} index {words[1]}", make)


def _check_beside(
    name: str, index: Tensor, other: Tensor, argument: str, dim: int | None = None
) -> None:
    """`index` must have the rank of `other` and nowhere more elements, along `dim` perhaps."""
    if index.dim() != other.dim():
        raise RuntimeError(
            f"{name}: Index tensor must have the same number of dimensions as {argument} tensor,"
            f" got {index.dim()} and {other.dim()}"
        )
    pairs = enumerate(zip(index.shape, other.shape, strict=True))
    wrong = [i for i, (mine, most) in pairs if mine > most and i != dim]
    if wrong:
        apart = "" if dim is None else f" apart from dimension {dim}"
        raise RuntimeError(
            f"{name}: Size does not match at dimension {wrong[0]}: expected index"
            f" {list(index.shape)} to be no larger than {argument} {list(other.shape)}{apart}"
        )


def _beside(tensor: Tensor, index: Tensor, dim: int) -> Tensor:
    """The part of a tensor that an index of its rank reaches."""
    for i, size in enumerate(index.shape):
        if i != dim and tensor.shape[i] != size:
            tensor = tensor.narrow(i, 0, size)
    return tensor


def _ints(index: Tensor) -> Tensor:
    return index.long()


# --- gather and scatter_add -----------------------------------------------------------------------


@operator(
    source=SOURCE,
    reference=lambda input, dim, index: torch.gather(input, dim, _ints(index)),
    cases=[
        _case((3, 0), 1, (3, 0), None),
        _case((), 0, (), None),
        _case((7, 5), 0, (31, 5), None),
        _case((3, 33, 4), 1, (2, 40, 3), None),
        _case((2, 9, 33), -2, (2, 5, 33), None),
    ],
    bench=[_case((512, 1024), 1, (512, 1024), None)],
    cost=lambda input, dim, index: Cost(
        read=index.nbytes + index.numel() * input.element_size(),
        write=index.numel() * input.element_size(),
    ),
    gradient_in_part=True,  # where no index names a place
)
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements of `input` at the places along `dim` that `index` names, as torch.gather."""
    check_input("gather", input)
    check_index("gather", "index", index, input)
    _check_beside("gather", index, input, "input", dimension("gather", input, dim))
    return input.new_empty(index.shape)


@gather.run
def _(output: Tensor, input: Tensor, dim: int, index: Tensor) -> None:
    dim = dimension("gather", input, dim)
    take_into(gather, output, _beside(input, index, dim), dim, index, each=True)


@gather.backward(keep=["index"])
def _(call: Call, grad: Tensor) -> Gradients:
    zeros = grad.new_zeros(call.like("input").shape)
    return {"input": scatter_add(zeros, call.dim, call.index, grad)}


@operator(
    source=SOURCE,
    reference=lambda input, dim, index, src: torch.scatter_add(input, dim, _ints(index), src),
    cases=[
        _case((3, 0), 1, (3, 0), (3, 0)),
        _case((7, 5), 0, (31, 5), (31, 5)),
        _case((3, 33, 4), 1, (2, 40, 3), (2, 40, 3)),
    ],
    bench=[_case((512, 1024), 1, (512, 1024), (512, 1024))],
    cost=lambda input, dim, index, src: Cost(
        read=index.nbytes + src.nbytes + input.nbytes, write=input.nbytes
    ),
    in_part=True,
)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`input` with elements of `src` added at the places along `dim` that `index` names.

    As torch.scatter_add. Where torch asks for deterministic algorithms, elements that go to one
    place are added in their order.
    """
    check_input("scatter_add", input)
    check_like("scatter_add", "src", src, "input", input)
    check_index("scatter_add", "index", index, input)
    _check_beside("scatter_add", index, input, "self", dimension("scatter_add", input, dim))
    _check_beside("scatter_add", index, src, "src")
    return input.new_empty(input.shape)


@scatter_add.run
def _(output: Tensor, input: Tensor, dim: int, index: Tensor, src: Tensor) -> None:
    dim = dimension("scatter_add", input, dim)
    output.copy_(input)
    reached = _beside(output, index, dim)
    source = _beside(src, index, dim)
    if source.dim():
        source = source.narrow(dim, 0, index.shape[dim])
    sums = reached.contiguous()
    add_into(scatter_add, sums, dim, index, source, each=True)
    if sums is not output:
        reached.copy_(sums)


@scatter_add.backward(keep=["index"])
def _(call: Call, grad: Tensor) -> Gradients:
    found: dict[str, Tensor] = {}
    if call.needs("input"):
        found["input"] = grad
    if call.needs("src"):
        taken, shape = gather(grad, call.dim, call.index), call.like("src").shape
        past = [(0, size - mine) for mine, size in zip(taken.shape, shape, strict=True)]
        found["src"] = torch.nn.functional.pad(taken, [n for pair in past[::-1] for n in pair])
    return found


# --- index_select and index_add -------------------------------------------------------------------


@operator(
    source=SOURCE,
    reference=lambda input, dim, index: torch.index_select(input, dim, _ints(index)),
    cases=[
        _case((3, 0), 0, (2,), None),
        _case((7, 33), 0, (31,), None),
        _case((3, 32, 3), -2, (40,), None),
        _case((4, 31), 1, (5,), None),
    ],
    bench=[_case((4096, 512), 0, (4096,), None), _case((512, 4096), 1, (512,), None)],
    cost=lambda input, dim, index: Cost(
        read=index.nbytes + index.numel() * input[:1].numel() * input.element_size(),
        write=index.numel() * input[:1].numel() * input.element_size(),
    ),
    gradient_in_part=True,  # where no index names a place
)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices of `input` at the places along `dim` that `index` names, as torch.index_select."""
    check_input("index_select", input)
    check_index("index_select", "index", index, input)
    _check_vector("index_select", index)
    at = dimension("index_select", input, dim)
    if input.dim() == 0:
        return input.new_empty([])
    return input.new_empty([*input.shape[:at], index.numel(), *input.shape[at + 1 :]])


@index_select.run
def _(output: Tensor, input: Tensor, dim: int, index: Tensor) -> None:
    dim = dimension("index_select", input, dim)
    take_into(index_select, output, input, dim, index, each=False)


@index_select.backward(keep=["index"])
def _(call: Call, grad: Tensor) -> Gradients:
    zeros = grad.new_zeros(call.like("input").shape)
    return {"input": index_add(zeros, call.dim, call.index, grad)}


def _check_vector(name: str, index: Tensor) -> None:
    if index.dim() > 1:
        raise IndexError(
            f"{name}: Index is supposed to be a vector, but got dim: {index.dim()} with shape"
            f" {list(index.shape)}"
        )


@operator(
    source=SOURCE,
    reference=lambda input, dim, index, source, alpha=1.0: torch.index_add(
        input, dim, _ints(index), source, alpha=alpha
    ),
    cases=[
        _case((3, 0), 0, (2,), (2, 0)),
        _case((7, 33), 0, (31,), (31, 33)),
        _case((3, 32, 3), -2, (40,), (3, 40, 3), alpha=-0.5),
        _case((4, 31), 1, (5,), (4, 5)),
    ],
    bench=[_case((4096, 512), 0, (4096,), (4096, 512))],
    cost=lambda input, dim, index, source, **_: Cost(
        read=index.nbytes + source.nbytes + input.nbytes, write=input.nbytes
    ),
    in_part=True,
)
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1.0
) -> Tensor:
    """`input` with alpha times the slices of `source` added at the places that `index` names.

    As torch.index_add. Where torch asks for deterministic algorithms, slices that go to one place
    are added in their order.
    """
    name = "index_add"
    check_input(name, input)
    check_like(name, "source", source, "input", input)
    check_index(name, "index", index, input)
    _check_vector(name, index)
    at = dimension(name, input, dim)
    expected = [*input.shape[:at], index.numel(), *input.shape[at + 1 :]] if input.dim() else []
    check_shape(name, "source", source, expected, "that of 'input' with one slice for each index")
    return input.new_empty(input.shape)


@index_add.run
def _(
    output: Tensor, input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1.0
) -> None:
    output.copy_(input)
    dim = dimension("index_add", input, dim)
    add_into(index_add, output, dim, index, source, each=False, alpha=alpha)


@index_add.backward(keep=["index"])
def _(call: Call, grad: Tensor) -> Gradients:
    found: dict[str, Tensor] = {}
    if call.needs("input"):
        found["input"] = grad
    if call.needs("source"):
        taken = index_select(grad, call.dim, call.index)
        found["source"] = taken if call.alpha == 1.0 else call.alpha * taken
    return found
