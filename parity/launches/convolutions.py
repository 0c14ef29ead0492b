"""Convolutions as products: two and three dimensions, and the general form."""

from __future__ import annotations

import math

from parity.launches.launch import Case, Launch, Plain, Value, groups_of, launches

_INPUT, _FILTER = (6, 5, 7), (2, 3, 3)  # the last of them, for two dimensions


def _dense(*shape: int) -> tuple[int, ...]:
    return tuple(math.prod(shape[at + 1 :]) for at in range(len(shape)))


def _parameters(
    dimensions: int, channels: int, outputs: int, *, flip: bool
) -> tuple[dict[str, Plain], tuple[int, ...], tuple[int, ...]]:
    """MLXConvParams of an image, padded by one, and the sizes of the filter and of the result."""
    image, filter_ = _INPUT[-dimensions:], _FILTER[-dimensions:]
    result = tuple(size + 3 - one for size, one in zip(image, filter_, strict=True))
    ones = (1,) * dimensions
    values: dict[str, Plain] = {
        **{"N": 2, "C": channels, "O": outputs, "groups": 1, "flip": int(flip)},
        **{"iS": image, "wS": filter_, "oS": result},
        **dict.fromkeys(("str", "pad", "kdil", "idil"), ones),
        "in_strides": _dense(2, *image, channels),
        "wt_strides": _dense(outputs, *filter_, channels),
        "out_strides": _dense(2, *result, outputs),
    }
    return values, filter_, result


def _jumps(strides: tuple[int, ...], filter_: tuple[int, ...], step: int) -> dict[str, Plain]:
    """How far a loader's pointer goes from one place of the filter to the next, by direction."""
    back, jumps = 0, {}
    for axis, name in zip(range(len(filter_), 0, -1), "whd", strict=False):
        jumps[f"inp_jump_{name}"] = strides[axis] - back
        back += (filter_[axis - 1] - 1) * strides[axis]
    return {**jumps, "inp_jump_c": step - back}


def _product(
    case: Case, channels: int, first: int, *, padded: int = 0, flip: bool = False
) -> tuple[dict[str, Plain], dict[str, Plain], tuple[int, ...]]:
    """The parameters of the convolution and of the product, and the tiles of the latter."""
    rows, columns, depth, simds_m, simds_n = case.numbers(first, 5)
    dimensions = 3 if case.function.endswith("3d") else 2
    outputs = columns if columns > 8 else 5
    values, filter_, result = _parameters(dimensions, channels, outputs, flip=flip)
    m, k = 2 * math.prod(result), math.prod(filter_) * channels
    strides = values["in_strides"]
    assert isinstance(strides, tuple)
    product: dict[str, Plain] = {
        **{"M": m, "N": outputs, "K": k},
        "gemm_k_iterations": -(-math.prod(filter_) * (padded or channels) // depth),
        **_jumps(strides, filter_, depth),
        **{"tiles_n": 1, "tiles_m": -(-m // rows), "swizzle_log": 0},
    }
    return values, product, (rows, simds_m, simds_n)


def _launch(values: dict[str, Value], product: dict[str, Plain], tiles: tuple[int, ...]) -> Launch:
    group = (32, tiles[2], tiles[1])
    count = product["tiles_m"]
    assert isinstance(count, int)
    m, n, k = (product[name] for name in "MNK")
    assert isinstance(m, int)
    assert isinstance(n, int)
    assert isinstance(k, int)
    elements = max(1 << 14, m * n, n * k)
    return Launch(values, groups_of((1, count, 1), group), group, elements=elements)


@launches("implicit_gemm_conv_2d")
def _two(case: Case) -> list[Launch]:
    """Few channels are rounded up to a power of two for a thread's reads."""
    few = case.number(6)
    padded = 1 << (few - 1).bit_length() if few else 0
    values, product, tiles = _product(case, few or 32, 1, padded=padded)
    return [_launch({"params": values, "gemm_params": product}, product, tiles)]


@launches("implicit_gemm_conv_3d")
def _three(case: Case) -> list[Launch]:
    values, product, tiles = _product(case, 16, 1)
    return [_launch({"params": values, "gemm_params": product}, product, tiles)]


@launches("implicit_gemm_conv_2d_general")
def _general(case: Case) -> list[Launch]:
    """Strides of two, once with channels that fill tiles and once with others."""
    aligned = case.chance("align C")
    values, product, tiles = _product(case, 32 if aligned else 21, 1, flip=case.chance("flip"))
    result = tuple(-(-(size + 3 - one) // 2) for size, one in zip((5, 7), (3, 3), strict=True))
    values |= {"str": (2, 2), "oS": result}
    m = 2 * math.prod(result)
    product |= {"M": m, "tiles_m": -(-m // tiles[0]), "gemm_k_iterations": 2}
    jumps: dict[str, Plain] = {
        **dict.fromkeys(("f_wgt_jump_h", "f_wgt_jump_w", "f_out_jump_h", "f_out_jump_w"), 1),
        **{"adj_out_h": result[0], "adj_out_w": result[1]},
        **{"adj_out_hw": math.prod(result), "adj_implicit_m": m},
    }
    base: dict[str, Plain] = {"weight_base": 0, "weight_size": 3}
    arguments: dict[str, Value] = {"params": values, "gemm_params": product}
    arguments |= {"jump_params": jumps, "base_h": base, "base_w": base}
    launch = _launch(arguments, product, tiles)
    return [Launch(**{**vars(launch), "constants": {"align_C": aligned}})]
