"""torch's functions that our operators replace: activations to quantised products.

Each takes torch's arguments and returns the result, or the reason why torch keeps the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anymetal import ops
from anymetal.ops.attention.arguments import MOST_WIDTH
from anymetal.ops.declare import FLOATS
from anymetal.ops.quantised.schemes import SCHEMES, words_of
from anymetal.overrides.table import row

Tensor = torch.Tensor
Optional = torch.Tensor | None
Result = Tensor | str
INDICES = (torch.int64, torch.int32)

_FLOATS = "float32, float16 and bfloat16"
_SAME = "one dtype for all tensors, or torch.autocast"

# --- activations ----------------------------------------------------------------------------------


@row(
    "activations",
    "nn.functional.silu",
    operators=("silu",),
    applies=_FLOATS,
    elsewhere="inplace=True: autograd's rules for overwritten tensors are torch's",
)
def silu(input: Tensor, inplace: bool = False) -> Result:
    return "inplace=True" if inplace else ops.silu(input)


@row(
    "activations",
    "nn.functional.gelu",
    operators=("gelu",),
    applies=f"{_FLOATS}, both approximations",
    elsewhere="another word for `approximate`, which torch refuses",
)
def gelu(input: Tensor, *, approximate: str = "none") -> Result:
    if approximate not in ("none", "tanh"):
        return f"approximate={approximate!r}"
    return ops.gelu(input, approximate=approximate)


@row(
    "activations",
    "sigmoid",
    "nn.functional.sigmoid",
    "Tensor.sigmoid",
    operators=("sigmoid",),
    applies=_FLOATS,
    elsewhere="out=; integers, which torch converts",
)
def sigmoid(input: Tensor) -> Result:
    return ops.sigmoid(input)


# --- norms ----------------------------------------------------------------------------------------


def _is_rearranged(input: Tensor) -> bool:
    """torch's group norm keeps channels_last; ours gives rows in order."""
    return input.dim() > 3 and not input.is_contiguous()


@row(
    "norm",
    "nn.functional.layer_norm",
    operators=("layer_norm",),
    applies=f"{_FLOATS}; {_SAME}",
    elsewhere="tensors of several dtypes, whose result's dtype depends on the device",
)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
) -> Result:
    return ops.layer_norm(input, list(normalized_shape), weight, bias, eps)


@row(
    "norm",
    "layer_norm",
    operators=("layer_norm",),
    applies=f"{_FLOATS}; {_SAME}",
    elsewhere="tensors of several dtypes",
)
def aten_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,  # which of torch's kernels, and torch itself ignores it
) -> Result:
    return ops.layer_norm(input, list(normalized_shape), weight, bias, eps)


@row(
    "norm",
    "nn.functional.rms_norm",
    "rms_norm",
    operators=("rms_norm",),
    applies=f"{_FLOATS}; {_SAME}",
    elsewhere="tensors of several dtypes",
)
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Optional = None,
    eps: float | None = None,
) -> Result:
    return ops.rms_norm(input, list(normalized_shape), weight, eps)


@row(
    "norm",
    "nn.functional.group_norm",
    operators=("group_norm",),
    applies=f"{_FLOATS}; {_SAME}; dense rows",
    elsewhere="channels_last, whose order torch's result keeps",
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
) -> Result:
    if _is_rearranged(input):
        return "not contiguous"
    return ops.group_norm(input, num_groups, weight, bias, eps)


@row(
    "norm",
    "group_norm",
    operators=("group_norm",),
    applies=f"{_FLOATS}; {_SAME}; dense rows",
    elsewhere="channels_last, whose order torch's result keeps",
)
def aten_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,  # which of torch's kernels
) -> Result:
    return group_norm(input, num_groups, weight, bias, eps)


# --- softmax --------------------------------------------------------------------------------------


def _softmax(function: Any, input: Tensor, dim: int | None, dtype: torch.dtype | None) -> Result:
    if dim is None:
        return "dim=None"
    if dtype is not None and dtype not in FLOATS:
        return f"dtype={dtype}"
    result: Tensor = function(input, dim, dtype)
    return result


_OF_SOFTMAX: dict[str, Any] = {
    "applies": f"{_FLOATS}, also as `dtype`",
    "elsewhere": "dim=None, which torch warns about; dtype=float64; out=",
}


@row("softmax", "nn.functional.softmax", operators=("softmax",), **_OF_SOFTMAX)
def functional_softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> Result:
    return _softmax(ops.softmax, input, dim, dtype)


@row("softmax", "softmax", "Tensor.softmax", operators=("softmax",), **_OF_SOFTMAX)
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Result:
    return _softmax(ops.softmax, input, dim, dtype)


@row("softmax", "nn.functional.log_softmax", operators=("log_softmax",), **_OF_SOFTMAX)
def functional_log_softmax(
    input: Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> Result:
    return _softmax(ops.log_softmax, input, dim, dtype)


@row("softmax", "log_softmax", "Tensor.log_softmax", operators=("log_softmax",), **_OF_SOFTMAX)
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Result:
    return _softmax(ops.log_softmax, input, dim, dtype)


# --- attention ------------------------------------------------------------------------------------


@row(
    "attention",
    "nn.functional.scaled_dot_product_attention",
    operators=("scaled_dot_product_attention",),
    applies=f"{_FLOATS}, masks, causal, grouped queries, heads of at most {MOST_WIDTH} elements",
    elsewhere="dropout, whose random numbers are torch's; a mask beside is_causal, which torch"
    " refuses; wider heads",
    integers=(torch.bool,),
)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Result:
    if dropout_p != 0.0:
        return "dropout"
    if attn_mask is not None and is_causal:
        return "attn_mask beside is_causal"
    if not query.dim() == key.dim() == value.dim() >= 3:
        return "tensors of different ranks, or without heads"
    if max(query.shape[-1], value.shape[-1]) > MOST_WIDTH:
        return f"heads of more than {MOST_WIDTH} elements"
    if attn_mask is not None and not 2 <= attn_mask.dim() <= query.dim():
        return f"attn_mask of {attn_mask.dim()} dimensions"
    return ops.scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
    )


# --- embedding ------------------------------------------------------------------------------------


def _not_of_tables(input: Tensor, max_norm: float | None, sparse: bool) -> str | None:
    if max_norm is not None:
        return "max_norm"
    if sparse:
        return "sparse=True"
    return None if input.dtype in INDICES else f"indices of {input.dtype}"


@row(
    "embedding",
    "nn.functional.embedding",
    operators=("embedding",),
    applies=f"{_FLOATS}; int32 and int64 indices; padding_idx, scale_grad_by_freq",
    elsewhere="max_norm, which writes into the table; sparse=True, whose gradient is sparse",
    integers=INDICES,
)
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # of max_norm, which torch keeps
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Result:
    return _not_of_tables(input, max_norm, sparse) or ops.embedding(
        input, weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq
    )


@row(
    "embedding",
    "nn.functional.embedding_bag",
    operators=("embedding_bag",),
    applies=f"{_FLOATS}; every mode, offsets, per_sample_weights, padding_idx",
    elsewhere="max_norm; sparse=True; indices and offsets of two dtypes; scale_grad_by_freq",
    integers=INDICES,
)
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Optional = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,  # of max_norm, which torch keeps
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Optional = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Result:
    reason = _not_of_tables(input, max_norm, sparse)
    if reason is not None:
        return reason
    if input.dim() != 2 and offsets is None:
        return "a vector of indices without offsets"
    if input.dim() == 2 and offsets is not None:
        return "rows of indices with offsets"
    if offsets is not None and offsets.dtype != input.dtype:
        return "indices and offsets of two dtypes"
    if scale_grad_by_freq:
        return "scale_grad_by_freq"
    return ops.embedding_bag(
        input,
        weight,
        offsets,
        mode=mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )


# --- losses ---------------------------------------------------------------------------------------


def _needs_gradient(*tensors: Optional) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


@row(
    "losses",
    "nn.functional.cross_entropy",
    operators=("cross_entropy",),
    applies=f"{_FLOATS}; targets as classes or shares, weights, label_smoothing, every reduction",
    elsewhere="gradients of weights or of targets; size_average and reduce, which torch warns"
    " about",
    integers=(torch.int64,),
)
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Optional = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Result:
    if size_average is not None or reduce is not None:
        return "size_average or reduce"
    if _needs_gradient(target, weight):
        return "gradient of the target or of weights"
    return ops.cross_entropy(
        input,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@row(
    "losses",
    "nn.functional.kl_div",
    operators=("kl_div",),
    applies=f"{_FLOATS}, tensors of one shape, every reduction, log_target",
    elsewhere="shapes that torch broadcasts; torch.autocast; size_average and reduce; "
    'reduction="mean", which torch warns about',
    autocast=False,
)
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Result:
    if size_average is not None or reduce is not None:
        return "size_average or reduce"
    if reduction == "mean":
        return 'reduction="mean"'
    if input.shape != target.shape:
        return "shapes that are broadcast"
    return ops.kl_div(input, target, reduction=reduction, log_target=log_target)


# --- indexing -------------------------------------------------------------------------------------

_OF_INDEXING: dict[str, Any] = {
    "applies": f"{_FLOATS} with int64 indices",
    "elsewhere": "other dtypes of elements; sparse_grad=True; out=",
    "integers": (torch.int64,),
}


def _not_floating(input: Tensor) -> str | None:
    return None if input.is_floating_point() else f"elements of {input.dtype}"


@row("indexing", "gather", "Tensor.gather", operators=("gather",), **_OF_INDEXING)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Result:
    if sparse_grad:
        return "sparse_grad=True"
    if input.dim() != index.dim():
        return "an index of another rank"
    return _not_floating(input) or ops.gather(input, dim, index)


@row("indexing", "index_select", "Tensor.index_select", operators=("index_select",), **_OF_INDEXING)
def index_select(input: Tensor, dim: int, index: Tensor) -> Result:
    return _not_floating(input) or ops.index_select(input, dim, index)


@row("indexing", "index_add", "Tensor.index_add", operators=("index_add",), **_OF_INDEXING)
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Result:
    return _not_floating(input) or ops.index_add(input, dim, index, source, alpha=alpha)


@row("indexing", "scatter_add", "Tensor.scatter_add", operators=("scatter_add",), **_OF_INDEXING)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Result:
    if not input.dim() == index.dim() == src.dim():
        return "an index of another rank"
    return _not_floating(input) or ops.scatter_add(input, dim, index, src)


# --- matmul ---------------------------------------------------------------------------------------

_OF_PRODUCTS: dict[str, Any] = {
    "applies": f"{_FLOATS}; {_SAME}",
    "elsewhere": "tensors of several dtypes, which torch refuses; out=; integers",
}


@row("matmul", "nn.functional.linear", operators=("linear",), **_OF_PRODUCTS)
def linear(input: Tensor, weight: Tensor, bias: Optional = None) -> Result:
    if weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return "a weight that is no matrix, or a bias of another shape"
    return ops.linear(input, weight, bias)


@row(
    "matmul", "matmul", "Tensor.matmul", "Tensor.__matmul__", operators=("matmul",), **_OF_PRODUCTS
)
def matmul(input: Tensor, other: Tensor) -> Result:
    return ops.matmul(input, other)


@row("matmul", "mm", "Tensor.mm", operators=("matmul",), **_OF_PRODUCTS)
def mm(input: Tensor, mat2: Tensor) -> Result:
    if not input.dim() == mat2.dim() == 2:
        return "no matrices"
    return ops.matmul(input, mat2)


@row("matmul", "bmm", "Tensor.bmm", operators=("matmul",), **_OF_PRODUCTS)
def bmm(input: Tensor, mat2: Tensor) -> Result:
    if not input.dim() == mat2.dim() == 3 or input.shape[0] != mat2.shape[0]:
        return "no batches of one size"
    return ops.matmul(input, mat2)


@row("matmul", "addmm", "Tensor.addmm", operators=("addmm",), **_OF_PRODUCTS)
def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> Result:
    if input.dim() > 2 or not mat1.dim() == mat2.dim() == 2:
        return "no matrices"
    return ops.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


# --- quantised ------------------------------------------------------------------------------------

_GROUP = 32  # columns that share a scale in ours
_INT8 = SCHEMES["int8"]


@row(
    "quantised",
    "_weight_int8pack_mm",
    operators=("quantized_linear",),
    applies=f"rows of whole {_GROUP}s, scales of the activations' dtype",
    elsewhere="other widths; where a gradient is needed, which torch does not have",
    integers=(torch.int8,),
    autocast=False,
)
def weight_int8pack_mm(input: Tensor, mat2: Tensor, scales: Tensor) -> Result:
    if mat2.dtype != torch.int8 or input.dim() != 2 or mat2.dim() != 2 or scales.dim() != 1:
        return "no matrix of int8 with a scale a row"
    if input.shape[1] != mat2.shape[1] or scales.shape[0] != mat2.shape[0]:
        return "shapes that do not fit"
    if mat2.shape[1] % _GROUP or mat2.numel() == 0:
        return f"rows that are no multiple of {_GROUP}"
    if _needs_gradient(input, scales):
        return "needs a gradient"
    # Ours counts codes from -128, and has them in an order of its own.
    words = words_of(torch.bitwise_xor(mat2.contiguous().view(torch.uint8), 128), _INT8.bits)
    groups = scales[:, None].expand(-1, mat2.shape[1] // _GROUP).contiguous()
    weight = ops.Quantized(words, groups, None, _INT8, _GROUP)
    return ops.quantized_linear(input, weight)
