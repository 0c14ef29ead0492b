"""What the elements of a paged cache are: floats as they come, or floats of 8 bits with scales."""

from __future__ import annotations

import torch

from anymetal.ops.declare import FLOATS
from anymetal.ops.declare.checks import check_dtype, check_like, check_shape, check_size
from anymetal.ops.declare.kernel_file import SUFFIXES

Tensor = torch.Tensor
Scale = float | Tensor | None

FP8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_NAMES = {dtype: name for name, dtype in FP8.items()}
_CHOICES = ("auto", "fp8", *FP8)
CACHES = (*FLOATS, *_NAMES, torch.uint8)
# Kernels compute the offset of a key with 32 bits.
_MOST_OFFSET = 2**32 - 1


def cache_format(operator: str, cache: Tensor, kv_cache_dtype: str) -> str:
    """The word for a cache's elements in the names of kernels: float, half, bfloat or fp8_..."""
    if kv_cache_dtype not in _CHOICES:
        raise ValueError(
            f"{operator}: argument 'kv_cache_dtype' expects one of {', '.join(_CHOICES)}, got"
            f" {kv_cache_dtype!r}"
        )
    named = "fp8_e4m3" if kv_cache_dtype == "fp8" else kv_cache_dtype
    if cache.dtype == torch.uint8:
        if named == "auto":
            raise ValueError(
                f"{operator}: argument 'key_cache' is uint8, which does not say what its bytes"
                " are. Pass kv_cache_dtype='fp8_e4m3' or 'fp8_e5m2'"
            )
        return named
    own = _NAMES.get(cache.dtype) or SUFFIXES[cache.dtype]
    if named not in ("auto", own):
        raise ValueError(
            f"{operator}: argument 'kv_cache_dtype' is {kv_cache_dtype!r}, but 'key_cache' is"
            f" {str(cache.dtype).removeprefix('torch.')}. Pass a uint8 cache, or 'auto'"
        )
    return own


def check_caches(
    operator: str, model: str, like: Tensor, key_cache: Tensor, value_cache: Tensor
) -> None:
    """Two caches of one shape and dtype, for keys that are `like` the tensor called `model`."""
    dtypes = (like.dtype, *_NAMES, torch.uint8)
    check_dtype(operator, "key_cache", key_cache, dtypes)
    check_like(operator, "value_cache", value_cache, "key_cache", key_cache)
    for name, cache in (("key_cache", key_cache), ("value_cache", value_cache)):
        check_size(operator, name, cache)
        if cache.dim() != 4:
            raise ValueError(
                f"{operator}: argument '{name}' expects shape [blocks, block_size, kv_heads,"
                f" head_size], got {list(cache.shape)}"
            )
        if cache.device != like.device:
            raise ValueError(
                f"{operator}: argument '{name}' is on {cache.device}, but '{model}' is on"
                f" {like.device}"
            )
    check_shape(operator, "value_cache", value_cache, key_cache.shape, "that of 'key_cache'")
    if key_cache.shape[1] == 0:
        raise ValueError(
            f"{operator}: argument 'key_cache' of shape {list(key_cache.shape)} has blocks of no"
            " keys"
        )


def check_scale(operator: str, name: str, scale: Tensor | None, cache: Tensor) -> None:
    """A scale for the whole cache, or one a head."""
    if scale is None:
        return
    check_dtype(operator, name, scale, (torch.float32,))
    heads = cache.shape[2]
    if scale.numel() not in (1, heads) or scale.dim() > 1:
        raise ValueError(
            f"{operator}: argument '{name}' expects one number or {heads} (one a head of"
            f" 'key_cache'), got shape {list(scale.shape)}"
        )
    if scale.device != cache.device:
        raise ValueError(
            f"{operator}: argument '{name}' is on {scale.device}, but 'key_cache' is on"
            f" {cache.device}"
        )


def as_scale(scale: Scale, device: torch.device) -> Tensor | None:
    """A scale as the operators take it: numbers become tensors."""
    if scale is None or isinstance(scale, Tensor):
        return scale
    return torch.tensor([float(scale)], dtype=torch.float32, device=device)


def scales_for(scale: Tensor | None, cache: Tensor) -> Tensor:
    """A scale as kernels take it, one a head; they do not read one that was not given."""
    if scale is None:
        return torch.empty(1, device=cache.device)
    return scale.reshape(-1).float().expand(cache.shape[2]).contiguous()


def stored(cache: Tensor) -> Tensor:
    """The cache as kernels take it: bytes where it is of 8-bit floats."""
    return cache.view(torch.uint8) if cache.dtype in _NAMES else cache


def check_span(operator: str, name: str, tensor: Tensor) -> None:
    """ValueError for a view that is spread over more memory than kernels reach."""
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if tensor.numel() and last > _MOST_OFFSET:
        raise ValueError(
            f"{operator}: argument '{name}' of shape {list(tensor.shape)} with strides"
            f" {list(tensor.stride())} ends {last} elements after its start, kernels reach"
            f" {_MOST_OFFSET}. Pass it with .contiguous()"
        )


def decoded(cache: Tensor, kv_cache_dtype: str, dtype: torch.dtype) -> Tensor:
    """A cache's numbers with torch's operators, for references."""
    if cache.dtype == torch.uint8:
        cache = cache.view(FP8["fp8_e4m3" if kv_cache_dtype == "fp8" else kv_cache_dtype])
    return cache.to(dtype)
