"""Attention, in tiles and for single queries, and the gated delta rule."""

from __future__ import annotations

from anymetal.nouns import Scalar
from parity.launches.launch import (
    SPECIAL,
    Case,
    Launch,
    Value,
    groups_of,
    half_zero,
    launches,
    unit,
    zeros,
)


@launches("attention")
def _tiles(case: Case) -> list[Launch]:
    """Two heads of queries for one of keys; the last tiles are not full, or all are."""
    rows, columns, depth, _, simds_m, simds_n = case.numbers(1, 6)
    aligned_q, aligned_k = case.chance("align Q"), case.chance("align K")
    queries = 2 * rows if aligned_q else rows + 5
    keys = 2 * columns if aligned_k else 2 * columns + 3
    has_mask = case.chance("mask")
    parameters = {
        **{"B": 1, "H": 2, "D": depth, "qL": queries, "kL": keys, "gqa_factor": 2, "scale": 0.2},
        **{"NQ": 2, "NK": 2 if aligned_k else 3, "NQ_aligned": queries // rows},
        **{"NK_aligned": 2, "qL_rem": queries % rows, "kL_rem": keys % columns},
        "qL_off": keys - queries,
        **dict.fromkeys(("Q_strides", "O_strides"), (2 * queries * depth, queries * depth, depth)),
        **dict.fromkeys(("K_strides", "V_strides"), (keys * depth, keys * depth, depth)),
    }
    values: dict[str, Value] = {
        "params": parameters,
        "mask_params": {"M_strides": (0, queries * keys, keys)},
    }
    if case.template[7] == "bool":
        values["mask"] = half_zero
    constants: dict[str, Scalar] = {
        "align_Q": aligned_q,
        "align_K": aligned_k,
        "has_mask": has_mask,
        "do_causal": case.chance("causal"),
        "has_sinks": case.chance("sinks"),
        "save_lse": case.chance("lse"),
    }
    group = (32, simds_m, simds_n)
    elements = 2 * max(queries, keys) * max(depth, keys)
    threads = groups_of((2, 2, 1), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


def _masks(case: Case, keys: int, queries: int) -> tuple[dict[str, Value], dict[str, Scalar]]:
    """No mask, a causal one, one of bools or one of numbers, as the name has it."""
    has_mask = case.chance("mask")
    is_bool = has_mask and case.chance("bool")
    values: dict[str, Value] = {
        "bmask": half_zero,
        "mask_kv_seq_stride": 1,
        "mask_q_seq_stride": keys,
        "mask_head_stride": keys * queries,
        "num_q_heads": 2,
        "scale": 0.2,
    }
    constants: dict[str, Scalar] = {
        "has_mask": has_mask,
        "query_transposed": case.chance("transposed"),
        "do_causal": not has_mask and case.chance("causal"),
        "bool_mask": is_bool,
        "float_mask": has_mask and not is_bool,
        "has_sinks": case.chance("sinks"),
        "blocks": 4,
    }
    return values, constants


@launches("sdpa_vector")
def _vector(case: Case) -> list[Launch]:
    depth, width = case.numbers(1, 2)
    keys, queries = 45, 2
    values, constants = _masks(case, keys, queries)
    values |= {"gqa_factor": 2, "N": keys}
    values |= {"k_head_stride": keys * depth, "k_seq_stride": depth}
    values |= {"v_head_stride": keys * width, "v_seq_stride": width}
    elements = keys * max(depth, width)
    threads = (2 * 1024, queries, 1)
    return [Launch(values, threads, (1024, 1, 1), elements=elements, constants=constants)]


@launches("sdpa_vector_2pass_1(_gqa)?")
def _vector_in_blocks(case: Case) -> list[Launch]:
    depth, width = case.numbers(1, 2)
    is_grouped = case.function.endswith("gqa")
    heads, queries = (case.number(3), 1) if is_grouped else (2, 2)
    keys = 45
    values, constants = _masks(case, keys, queries)
    values |= {"N": keys, "k_head_stride": keys * depth, "k_seq_stride": depth}
    values |= {"v_head_stride": keys * width, "v_seq_stride": width}
    group = (32, heads, queries)
    elements = 2 * max(keys, 4 * heads * queries) * max(depth, width)
    threads = groups_of((2, 1, 4), group)
    return [Launch(values, threads, group, elements=elements, constants=constants)]


@launches("sdpa_vector_2pass_2")
def _blocks_together(case: Case) -> list[Launch]:
    blocks = 64
    values: dict[str, Value] = {"blocks": blocks, "sums": unit}
    elements = 4 * blocks * case.number(1)
    return [Launch(values, (2048, 2, 1), (1024, 1, 1), elements=elements)]


@launches("sdpa_blocked_scale_copy")
def _scaled_copy(case: Case) -> list[Launch]:
    values: dict[str, Value] = {
        **{"scale": 0.3, "heads": 2, "rows": 5, "head_dim": 16, "q_offset": 3},
        "q_strides": (2 * 160, 160, 16),
    }
    return [Launch(values, (16, 5, 4), (16, 5, 4), SPECIAL)]


@launches("sdpa_blocked_causal_mask")
def _causal_mask(case: Case) -> list[Launch]:
    return [Launch({"tile_rows": 8, "columns": 19}, (8, 16), (8, 16))]


@launches("gated_delta_(seq|vjp_seq|fused_chunk)")
def _gated_delta(case: Case) -> list[Launch]:
    """Two of the heads, eight of their rows (or rows of tiles): each is for itself."""
    depth, width, key_heads, heads, step = case.numbers(1, 5)
    steps = 5
    values: dict[str, Value] = {
        "T": steps,
        **dict.fromkeys(("g", "beta", "b"), unit),
        **dict.fromkeys(("dq", "dk", "dg", "db"), zeros),
    }
    states = 2 * (-(-steps // step) if "chunk" not in case.function else 1) * width * depth
    elements = max(steps * max(key_heads * depth, heads * width), states)
    constants: dict[str, Scalar] = {"save_state": case.chance("state")}
    return [Launch(values, (32, 8, 2), (32, 4, 1), elements=elements, constants=constants)]
