"""Matrices and what is done to their product go in; the kernel that fits their shape is launched.

Operands are read where they lie: rows or columns side by side, batches broadcast by strides of
zero. Only a matrix with neither is copied.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from anymetal.errors import PolicyError
from anymetal.nouns import SIMDGROUP
from anymetal.ops.declare import variants
from anymetal.ops.declare.kernel_file import SUFFIXES, kernel_file
from anymetal.ops.declare.layout import aligned
from anymetal.policy.policy import Choice, choose

KERNELS = kernel_file("matmul/matmul.metal")
# Functions of a sum, as the kernels call them; None is `none` there.
ACTIVATIONS = (None, "relu", "silu", "gelu", "gelu_tanh")
# Dimensions of a batch that kernels walk; operands with more are copied, which makes them one.
_BATCH_DIMENSIONS = KERNELS.constant("batch_dimensions")
_OPERANDS = ("a", "b", "c", "bias", "residual")
# Rows that the kernels for few rows are made for, and columns that a simdgroup of `dots` takes.
_ROWS = (1, 4, 8)
_COLUMNS_AT_ONCE = KERNELS.constant("columns_at_once")
# Sums over k are made of sums over about sqrt(k) of it, which rounds least; at least of so many.
_LEAST_AT_ONCE = 64


def broadcast(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The shape of both together. torch's function imports sympy, which takes a first call of two
    plain matrices a fifth of a second."""
    if not (first and second):
        return tuple(first or second)
    return tuple(torch.broadcast_shapes(first, second))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Epilogue:
    """What becomes of a sum: f(alpha * sum + beta * bias) + residual.

    Both tensors are broadcast to the shape of the result. Where `is_gradient`, the residual is
    multiplied by the slope of f instead.
    """

    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    activation: str | None = None
    alpha: float = 1.0
    beta: float = 1.0
    is_gradient: bool = False


@dataclass(frozen=True)
class Operand:
    """A matrix for each entry of a batch: the memory, and the steps to its next element."""

    tensor: torch.Tensor
    row: int
    column: int
    batch: tuple[int, ...]

    def transposed(self) -> Operand:
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True)
class Product:
    """C = A B: m x k times k x n, once for each entry of the batch."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: Operand
    b: Operand
    c: Operand
    bias: Operand
    residual: Operand

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.a, self.b, self.c, self.bias, self.residual

    def with_operands(self, operands: Sequence[Operand], **changes: Any) -> Product:
        a, b, c, bias, residual = operands
        return replace(self, a=a, b=b, c=c, bias=bias, residual=residual, **changes)

    def transposed(self) -> Product:
        """The same numbers as the product of the transposed matrices."""
        a, b, *others = (operand.transposed() for operand in self.operands)
        return self.with_operands([b, a, *others], m=self.n, n=self.m)

    @property
    def a_is_transposed(self) -> bool:
        """Whether A is stored column-major; a single column or row is either."""
        return self.a.column != 1 and self.k != 1

    @property
    def b_is_transposed(self) -> bool:
        return self.b.column != 1 and self.n != 1

    def numbers(self, epilogue: Epilogue, depth: int, split: int) -> dict[str, Any]:
        """`Numbers` of shared/product.h."""
        padding = _BATCH_DIMENSIONS - len(self.batch)
        batch_strides = zip(*(operand.batch for operand in self.operands), strict=True)
        strides = {
            name: {"row": operand.row, "column": operand.column}
            for name, operand in zip(_OPERANDS, self.operands, strict=True)
        }
        return {
            **strides,
            "m": self.m,
            "n": self.n,
            "k": self.k,
            "at_once": depth * max(1, round(max(_LEAST_AT_ONCE, self.k**0.5) / depth)),
            "split": split,
            "activation": epilogue.activation or "none",
            "has_bias": epilogue.bias is not None,
            "has_residual": epilogue.residual is not None,
            "in_fours": self.c.column == 1
            and Lines(self.c, self.m, self.c.row, self.n).in_vectors(4),
            "is_gradient": epilogue.is_gradient,
            "alpha": epilogue.alpha,
            "beta": epilogue.beta,
            "batch": [1] * padding + list(self.batch),
            "batch_strides": [(0,) * len(_OPERANDS)] * padding + list(batch_strides),
        }


# --- how the operands lie -------------------------------------------------------------------------


def product_of(
    a: torch.Tensor, b: torch.Tensor, output: torch.Tensor, epilogue: Epilogue
) -> Product:
    """[..., m, k] times [..., k, n] into a dense [..., m, n]; batches are broadcast."""
    batch = output.shape[:-2]
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    bias = output if epilogue.bias is None else epilogue.bias
    residual = output if epilogue.residual is None else epilogue.residual
    shapes = [(m, k), (k, n), (m, n), (m, n), (m, n)]
    operands = [
        _operand(tensor, (*batch, *shape), output)
        for tensor, shape in zip(
            (_readable(a), _readable(b), output, bias, residual), shapes, strict=True
        )
    ]
    product = Product(m, n, k, tuple(batch), *operands)
    if not batch:
        return product
    product = _folded(_collapsed(product))
    if len(product.batch) <= _BATCH_DIMENSIONS:
        return product
    a, b = (t.expand(*batch, *t.shape[-2:]).contiguous() for t in (a, b))
    dense_bias, dense_residual = (
        _dense(t, output.shape) for t in (epilogue.bias, epilogue.residual)
    )
    epilogue = replace(epilogue, bias=dense_bias, residual=dense_residual)
    return product_of(a, b, output, epilogue)


def _dense(tensor: torch.Tensor | None, shape: Sequence[int]) -> torch.Tensor | None:
    return None if tensor is None else tensor.expand(shape).contiguous()


def _readable(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix itself where its rows or its columns are dense, otherwise a copy.

    A single row may have any steps, but many of them will be folded into one matrix.
    """
    sizes, strides = matrix.shape[-2:], matrix.stride()[-2:]
    if any(stride == 1 != size for size, stride in zip(sizes, strides, strict=True)):
        return matrix
    alone = matrix.shape[:-2].numel() == 1 or sizes.numel() == 1
    return matrix if alone and 1 in sizes else matrix.contiguous()


def _operand(tensor: torch.Tensor, shape: Sequence[int], output: torch.Tensor) -> Operand:
    """A tensor without elements is never read: any memory stands for it."""
    strides = tensor.expand(shape).stride()
    memory = tensor if tensor.numel() else output
    return Operand(memory, strides[-2], strides[-1], tuple(strides[:-2]))


def _collapsed(product: Product) -> Product:
    """Neighbouring dimensions of the batch that all operands walk as one become one."""
    sizes: list[int] = []
    steps: list[list[int]] = []
    for dimension, size in enumerate(product.batch):
        here = [operand.batch[dimension] for operand in product.operands]
        if size == 1:
            continue
        if sizes and all(o == size * i for o, i in zip(steps[-1], here, strict=True)):
            sizes[-1], steps[-1] = sizes[-1] * size, here
        else:
            sizes, steps = [*sizes, size], [*steps, here]
    operands = [
        replace(operand, batch=tuple(step[i] for step in steps))
        for i, operand in enumerate(product.operands)
    ]
    return product.with_operands(operands, batch=tuple(sizes))


def _folded(product: Product) -> Product:
    """A batch of A that one B is multiplied with becomes more rows of A; the same for B."""
    rows = _batch_as_rows(product)
    if rows is not product:
        return rows
    columns = _batch_as_rows(product.transposed())
    return product if columns.batch == product.batch else columns


def _batch_as_rows(product: Product) -> Product:
    if not product.batch or product.b.batch[-1] != 0:
        return product
    walked = [operand for operand in product.operands if operand is not product.b]
    if product.m > 1 and any(o.batch[-1] != product.m * o.row for o in walked):
        return product
    row_steps = [o.batch[-1] if product.m == 1 else o.row for o in product.operands]
    operands = [
        replace(operand, row=operand.row if i == 1 else row_steps[i], batch=operand.batch[:-1])
        for i, operand in enumerate(product.operands)
    ]
    m = product.m * product.batch[-1]
    return _batch_as_rows(product.with_operands(operands, m=m, batch=product.batch[:-1]))


@dataclass(frozen=True)
class Lines:
    """An operand as dense lines: how many, how far apart, and of what length."""

    operand: Operand
    count: int
    step: int
    length: int

    def in_vectors(self, width: int) -> bool:
        """Whether all accesses of `width` neighbouring elements are whole and aligned."""
        steps = [*self.operand.batch, self.step if self.count > 1 else 0]
        whole = self.length % width == 0 and all(step % width == 0 for step in steps)
        return whole and aligned(self.operand.tensor, width)


_FORMS = {8: "vec8", 4: "vec4", 1: "scalar"}


def _width(*lines: Lines, largest: int = 4) -> int:
    """How many neighbouring elements an access takes."""
    return next(
        width
        for width in _FORMS
        if width == 1 or (width <= largest and all(each.in_vectors(width) for each in lines))
    )


# --- which kernel ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """A product about to be computed for an operator, which the policy is asked for by name."""

    operator: str
    product: Product
    epilogue: Epilogue

    def run(self) -> None:
        product = self.product
        few = self._choice("few_rows", "dots")
        if min(product.m, product.n) <= min(few.values["max_rows"], _ROWS[-1]):
            self._few_rows(few)
        elif product.a_is_transposed and product.b_is_transposed:
            # There are no kernels for two column-major operands: (A B)^T = B^T A^T has neither.
            replace(self, product=product.transposed())._tiles()
        else:
            self._tiles()

    def _choice(self, shape_class: str, strategy: str) -> Choice:
        output = self.product.c.tensor
        return choose(
            operator=self.operator,
            dtype=variants.DTYPE_NAMES[output.dtype],
            shape_class=shape_class,
            device=output.device.type,
            strategy=strategy,
        )

    def _tile_choice(self) -> Choice:
        """Tiles of the shape of C, and small ones where large ones would be few."""
        product = self.product
        small = self._choice("small_matrix", "tiles")
        if math.prod(product.batch) * product.m * product.n <= small.values["max_results"]:
            return small
        tall, wide = (self._choice(name, "tiles") for name in ("tall_matrix", "wide_matrix"))
        if product.n <= tall.values["max_columns"]:
            return tall
        return (
            wide if product.m <= wide.values["max_rows"] else self._choice("large_matrix", "tiles")
        )

    def _tiles(self) -> None:
        product, choice = self.product, self._tile_choice()
        rows, columns = choice.values["rows"], choice.values["columns"]
        layout = "tn" if product.a_is_transposed else "nt" if product.b_is_transposed else "nn"
        name = f"tiles_{tile_name(choice, product.c.tensor.dtype)}_{layout}"
        a, b = product.a, product.b
        m, n, k = product.m, product.n, product.k
        width = _width(
            Lines(a, k, a.column, m) if product.a_is_transposed else Lines(a, m, a.row, k),
            Lines(b, n, b.column, k) if product.b_is_transposed else Lines(b, k, b.row, n),
            largest=choice.values.get("width", 4) if _is_narrow(choice) else 4,
        )
        groups = (-(-product.n // columns), -(-product.m // rows))
        self._kernel(name, width)(
            *self._arguments(choice.values["depth"]),
            threads=(groups[0] * choice.group_size, groups[1], math.prod(product.batch)),
            group_size=(choice.group_size, 1, 1),
        )

    def _few_rows(self, choice: Choice) -> None:
        product = self.product
        if product.m > product.n:
            replace(self, product=product.transposed())._few_rows(choice)
            return
        rows = next(rows for rows in _ROWS if rows >= product.m)
        columns = self._choice("few_rows", "columns")
        if (
            product.b.row != 1
            and product.b.column == 1
            and product.n >= columns.values["min_columns"]
        ):
            self._columns(rows, columns)
        else:
            self._dots(rows, choice)

    def _dots(self, rows: int, choice: Choice) -> None:
        product = self.product
        few = self._choice("few_results", "dots")
        sets = -(-product.n // _COLUMNS_AT_ONCE)
        if sets * math.prod(product.batch) <= few.values["max_columns"] // _COLUMNS_AT_ONCE:
            choice = few
        simdgroups = choice.group_size // SIMDGROUP
        split = choice.values["split"]
        if simdgroups % split:
            raise PolicyError(
                f"{choice.origin}: split is {split}, but the {choice.group_size} threads of a"
                f" threadgroup are {simdgroups} simdgroups, which is no multiple of it"
            )
        a, b = product.a, product.b
        m, n, k = product.m, product.n, product.k
        dense = a.column == 1 and b.row == 1
        width = _width(Lines(a, m, a.row, k), Lines(b, n, b.column, k)) if dense else 1
        self._kernel(f"dots_{rows}", width)(
            *self._arguments(split=split),
            threads=(
                -(-sets // (simdgroups // split)) * choice.group_size,
                1,
                math.prod(product.batch),
            ),
            group_size=(choice.group_size, 1, 1),
        )

    def _columns(self, rows: int, choice: Choice) -> None:
        product = self.product
        width = _width(Lines(product.b, product.k, product.b.row, product.n))
        groups = -(-product.n // (SIMDGROUP * width))
        self._kernel(f"columns_{rows}", width)(
            *self._arguments(),
            threads=(groups * choice.group_size, 1, math.prod(product.batch)),
            group_size=(choice.group_size, 1, 1),
        )

    def _kernel(self, name: str, width: int) -> Callable[..., None]:
        output = self.product.c.tensor
        variants.record(self.operator, output.dtype, name, width)
        return KERNELS.kernel(f"{name}_{_FORMS[width]}_{SUFFIXES[output.dtype]}", output.device)

    def _arguments(self, depth: int = 1, split: int = 1) -> tuple[Any, ...]:
        numbers = self.product.numbers(self.epilogue, depth, split)
        return (*(operand.tensor for operand in self.product.operands), numbers)


def tile_name(choice: Choice, dtype: torch.dtype) -> str:
    """The tile that a policy asks for, as the kernels are named; an error where there is none."""
    asked = _tile(choice)
    *_, high, wide = asked
    tiles = _tiles_there("(?:NARROW_)?TILES" if dtype.itemsize == 2 else "TILES")
    if asked not in tiles or choice.group_size != SIMDGROUP * high * wide:
        known = "; ".join("{}x{}x{} in {}x{} simdgroups".format(*tile) for tile in tiles)
        raise PolicyError(
            f"{choice.origin}: matmul has no tile of rows {asked[0]}, columns {asked[1]}, depth"
            f" {asked[2]} for {choice.group_size} threads with simdgroup_rows {high}; there are"
            f" {known}"
        )
    return "{}x{}x{}_{}x{}".format(*asked)


def _tile(choice: Choice) -> tuple[int, ...]:
    """Rows, columns, steps along k, and simdgroups below and beside each other."""
    values, high = choice.values, choice.values["simdgroup_rows"]
    wide = choice.group_size // (SIMDGROUP * high)
    return values["rows"], values["columns"], values["depth"], high, wide


def _is_narrow(choice: Choice) -> bool:
    """Whether a tile is there for elements of 16 bits alone, eight of which are one access."""
    return _tile(choice) in _tiles_there("NARROW_TILES")


@functools.cache
def _tiles_there(word: str) -> list[tuple[int, ...]]:
    """The tiles that matmul.metal has instances of, by the macro that makes them."""
    lines = re.findall(rf"^{word}\(([\d, ]+)\)$", KERNELS.text, re.MULTILINE)
    return [tuple(int(number) for number in line.split(",")) for line in lines]


def launch(
    operator: str, a: torch.Tensor, b: torch.Tensor, result: torch.Tensor, epilogue: Epilogue
) -> None:
    """The product of two matrices, or batches of them, into `result`, which is dense."""
    if result.numel() == 0:
        return
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    product = product_of(a, b, result.view(*batch, a.shape[-2], b.shape[-1]), epilogue)
    Launch(operator, product, epilogue).run()
