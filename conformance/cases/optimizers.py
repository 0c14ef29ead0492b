"""AdamW steps: packed, scalar, four at a time, in float, half and bfloat."""

from __future__ import annotations

import torch

from conformance.case import BFLOAT, FLOAT, HALF, Launch, case, check, normal

FILE = "training_kernels.metal"
RATE, BETA1, BETA2, EPSILON, DECAY, STEP = 1e-2, 0.9, 0.999, 1e-8, 0.05, 3


def adamw(dtype: torch.dtype, count: int, per_thread: int, with_count: int | None) -> Launch:
    """`with_count` is the length the kernel is told, in its own units; None where it takes none."""
    parameters, gradients = normal(count, dtype=dtype), normal(count, dtype=dtype)
    mean, square = normal(count) * 0.1, normal(count).square() * 0.1
    correction1, correction2 = 1 - BETA1**STEP, 1 - BETA2**STEP

    wide = gradients.double()
    new_mean = BETA1 * mean.double() + (1 - BETA1) * wide
    new_square = BETA2 * square.double() + (1 - BETA2) * wide.square()
    update = (new_mean / correction1) / ((new_square / correction2).sqrt() + EPSILON)
    new_parameters = parameters.double() * (1 - RATE * DECAY) - RATE * update

    settings = (RATE, BETA1, BETA2, EPSILON, DECAY, correction1, correction2)
    lengths = () if with_count is None else (with_count,)
    threads = (count + per_thread - 1) // per_thread
    return Launch(
        (parameters, gradients, mean, square, *settings, *lengths),
        (threads,),
        (64,),
        [
            check("parameters", parameters, new_parameters),
            check("mean", mean, new_mean),
            check("square", square, new_square),
        ],
    )


case(FILE, "adamw_step", FLOAT)(lambda: adamw(torch.float32, 2048, 4, None))
case(FILE, "adamw_step_scalar", FLOAT)(lambda: adamw(torch.float32, 1001, 1, None))
case(FILE, "adamw_step_multi", FLOAT)(lambda: adamw(torch.float32, 1001, 1, 1001))
case(FILE, "adamw_step_ilp4", FLOAT, "2036 values: the last thread has one vector")(
    lambda: adamw(torch.float32, 2036, 16, 509)
)
case(FILE, "adamw_step_half", HALF)(lambda: adamw(torch.float16, 2048, 4, None))
case(FILE, "adamw_step_half_ilp4", HALF)(lambda: adamw(torch.float16, 2048, 16, 512))
case(FILE, "adamw_step_bfloat_scalar", BFLOAT)(lambda: adamw(torch.bfloat16, 1001, 1, None))
case(FILE, "adamw_step_bfloat", BFLOAT)(lambda: adamw(torch.bfloat16, 2048, 4, None))
