"""What collectives give, for all simdgroups of a grid at once: arrays have one row a simdgroup.

Lanes outside the mask take no part. A lane that reads from one of them, or from outside its group,
gets its own value (anymetal/collective.h).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from .scalars import Array

Mask = npt.NDArray[np.bool_]
LANES = 32

_LANE = np.arange(LANES)


def rows(values: Array) -> Array:
    """One row of lanes a simdgroup; components of vectors stay last."""
    return values.reshape(-1, LANES, *values.shape[1:])


def _spread(mask: Mask, like: Array) -> Mask:
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))


def read(values: Array, active: Mask, source: Array, width: int) -> Array:
    """Each lane reads lane `source` of its group of `width`."""
    table, mask, wanted = rows(values), rows(active), rows(source).astype(np.int64)
    inside = (wanted >= 0) & (wanted < width)
    absolute = _LANE // width * width + np.where(inside, wanted, 0)
    readable = inside & np.take_along_axis(mask, absolute, axis=1)
    chosen = np.where(readable, absolute, _LANE)
    simd = np.arange(len(table))[:, None]
    return table[simd, chosen].reshape(values.shape)


def first_active(active: Mask, width: int) -> npt.NDArray[np.int64]:
    """The first active lane of each lane's group, counted within the group."""
    groups = active.reshape(-1, width)
    return np.repeat(groups.argmax(axis=1), width)


def shift_and_fill(
    values: Array, filling: Array, active: Mask, distance: Array, modulo: int
) -> Array:
    table, fill, mask = rows(values), rows(filling), rows(active)
    position = _LANE % modulo + rows(distance).astype(np.int64)
    source = _LANE // modulo * modulo + position % modulo
    simd = np.arange(len(table))[:, None]
    outside = (position < 0) | (position >= modulo)
    near = (position >= -modulo) & (position < 2 * modulo)
    moved = np.where(_spread(outside, table), fill[simd, source], table[simd, source])
    readable = near & np.take_along_axis(mask, source, axis=1)
    return np.where(_spread(readable, table), moved, table).reshape(values.shape)


# ---- Reductions and scans ------------------------------------------------------------------------

_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _neutral(name: str, kind: np.dtype[np.generic]) -> Array:
    if name in ("min", "max"):
        if kind.kind == "f":
            return np.asarray(np.inf if name == "min" else -np.inf, kind)
        limits = np.iinfo(kind)
        return np.asarray(limits.max if name == "min" else limits.min, kind)
    return np.asarray({"and": -1, "product": 1}.get(name, 0)).astype(kind)


def reduce(name: str, values: Array, active: Mask, width: int) -> Array:
    """Over the active lanes of each group; the order is that of the headers, a tree."""
    bare = np.where(_spread(active, values), values, _neutral(name, values.dtype))
    groups = bare.reshape(-1, width, *values.shape[1:])
    half = width // 2
    with np.errstate(all="ignore"):
        while half:
            groups = _OPERATIONS[name](groups[:, :half], groups[:, half : 2 * half])
            half //= 2
    return np.repeat(groups, width, axis=1).reshape(values.shape)


def scan(name: str, values: Array, active: Mask, inclusive: bool, width: int) -> Array:
    bare = np.where(_spread(active, values), values, _neutral(name, values.dtype))
    groups = bare.reshape(-1, width, *values.shape[1:])
    result = np.empty_like(groups)
    so_far = np.broadcast_to(_neutral(name, values.dtype), groups[:, 0].shape)
    with np.errstate(all="ignore"):
        for lane in range(width):
            after = _OPERATIONS[name](so_far, groups[:, lane])
            result[:, lane] = after if inclusive else so_far
            so_far = after
    return result.reshape(values.shape)


def ballot(votes: Mask, active: Mask, width: int) -> Array:
    """One bit for each active lane of the group that voted yes."""
    groups = (votes & active).reshape(-1, width)
    weights = (1 << np.arange(width, dtype=np.uint64)).astype(np.uint64)
    return np.repeat((groups * weights).sum(axis=1), width).astype(np.uint32)


# ---- The functions by name -----------------------------------------------------------------------


def collective(name: str, arguments: list[Array], active: Mask, modulo: int) -> Array:
    """`simd_...` or `quad_...` of the arguments of all lanes."""
    prefix, rest = name.split("_", 1)
    width = LANES if prefix == "simd" else 4
    own = np.tile(_LANE % width, len(active) // LANES)
    if rest in _OPERATIONS:
        return reduce(rest, arguments[0], active, width)
    if rest.startswith("prefix_"):
        _, kind, operation = rest.split("_")
        return scan(operation, arguments[0], active, kind == "inclusive", width)
    if "_and_fill_" in rest:
        distance = arguments[2].astype(np.int64)
        distance = distance if rest.endswith("down") else -distance
        return shift_and_fill(arguments[0], arguments[1], active, distance, min(modulo, width))
    if rest in _VOTES:
        return _VOTES[rest](arguments, active, width)
    return read(arguments[0], active, _source(rest, arguments, active, own, width), width)


def _source(rest: str, arguments: list[Array], active: Mask, own: Array, width: int) -> Array:
    if rest == "broadcast_first":
        return first_active(active, width)
    number = arguments[1].astype(np.int64)
    sources: dict[str, Callable[[], Array]] = {
        "broadcast": lambda: number,
        "shuffle": lambda: number,
        "shuffle_xor": lambda: own ^ number,
        "shuffle_down": lambda: own + number,
        "shuffle_up": lambda: own - number,
        "shuffle_rotate_down": lambda: (own + number) % width,
        "shuffle_rotate_up": lambda: (own - number) % width,
    }
    return sources[rest]()


def _is_first(arguments: list[Array], active: Mask, width: int) -> Array:
    return np.tile(_LANE % width, len(active) // LANES) == first_active(active, width)


_VOTES: dict[str, Callable[[list[Array], Mask, int], Array]] = {
    "ballot": lambda a, active, width: ballot(a[0].astype(bool), active, width),
    "active_threads_mask": lambda a, active, width: ballot(active, active, width),
    "any": lambda a, active, width: ballot(a[0].astype(bool), active, width) != 0,
    "all": lambda a, active, width: ballot(~a[0].astype(bool), active, width) == 0,
    "is_first": _is_first,
}
