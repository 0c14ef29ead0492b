"""Cross entropy, Kullback-Leibler divergence and the LoRA products."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from conformance.case import FLOAT_SUM, HALF, Launch, case, check, normal, unwritten

FILE = "training_kernels.metal"
GROUP = 256


def cross_entropy_rows(dtype: torch.dtype, shared: int) -> Launch:
    rows, vocabulary = 5, 1003
    logits = normal(rows, vocabulary, dtype=dtype) * 3
    targets = torch.randint(vocabulary, (rows,), dtype=torch.int32)
    losses = unwritten(rows)
    expected = cross_entropy(logits.double(), targets.long(), reduction="none")
    return Launch(
        (logits, targets, losses, rows, vocabulary),
        (rows * GROUP,),
        (GROUP,),
        [check("losses", losses, expected)],
        {0: shared * 4} if shared else {},
    )


case(FILE, "cross_entropy_fwd", FLOAT_SUM)(lambda: cross_entropy_rows(torch.float32, 16))
case(FILE, "cross_entropy_fwd_half", FLOAT_SUM)(lambda: cross_entropy_rows(torch.float16, 16))
case(FILE, "cross_entropy_fwd_bfloat", FLOAT_SUM)(lambda: cross_entropy_rows(torch.bfloat16, 0))


def log_probabilities(rows: int, vocabulary: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.log_softmax(torch.randn(rows, vocabulary) * 2, -1).to(dtype)


def divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p.double().exp() * (p.double() - q.double())).sum(-1)


def divergence_rows(dtype: torch.dtype) -> Launch:
    rows, vocabulary = 4, 777
    p, q = (log_probabilities(rows, vocabulary, dtype) for _ in range(2))
    losses = unwritten(rows)
    return Launch(
        (p, q, losses, rows, vocabulary),
        (rows * GROUP,),
        (GROUP,),
        [check("losses", losses, divergence(p, q))],
        {0: 8 * 4},
    )


case(FILE, "kl_div_fwd", FLOAT_SUM)(lambda: divergence_rows(torch.float32))
case(FILE, "kl_div_fwd_bfloat", FLOAT_SUM)(lambda: divergence_rows(torch.bfloat16))


def top_divergence(dtype: torch.dtype, group: int) -> Launch:
    """One thread a row in float, one threadgroup a row in bfloat."""
    rows, vocabulary, top = 6, 500, 40
    p, q = (log_probabilities(rows, vocabulary, dtype) for _ in range(2))
    indices = p.float().topk(top, -1).indices
    losses = unwritten(rows)
    expected = divergence(p.gather(-1, indices), q.gather(-1, indices))
    arguments = (p, q, indices.to(torch.int32), losses, rows, vocabulary, top)
    return Launch(arguments, (rows * group,), (group,), [check("losses", losses, expected)])


case(FILE, "kl_div_topk_fwd", FLOAT_SUM)(lambda: top_divergence(torch.float32, 1))
case(FILE, "kl_div_topk_fwd_bfloat", FLOAT_SUM)(lambda: top_divergence(torch.bfloat16, GROUP))


@case(FILE, "lora_linear_fwd", FLOAT_SUM)
def lora_linear() -> Launch:
    rows, inputs, outputs, rank, scale = 13, 70, 45, 4, 0.5
    x, weight = normal(rows, inputs), normal(outputs, inputs)
    down, up = normal(rank, inputs), normal(outputs, rank)
    out = unwritten(rows, outputs)
    wide = x.double()
    expected = wide @ weight.double().T + scale * (wide @ down.double().T @ up.double().T)
    return Launch(
        (x, weight, down, up, out, scale, rows, inputs, outputs, rank),
        (outputs, rows),
        (32, 8),
        [check("out", out, expected)],
    )


@case(FILE, "lora_add_fwd_half_vec4", HALF)
def lora_add() -> Launch:
    count, scale = 2048, 0.25
    base, lora = (normal(count, dtype=torch.float16) for _ in range(2))
    out = unwritten(count, dtype=torch.float16)
    expected = base.double() + scale * lora.double()
    arguments = (base, lora, out, scale, count)
    return Launch(arguments, (count // 4,), (64,), [check("out", out, expected)])
