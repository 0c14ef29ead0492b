"""Time a kernel so that the number means something: RMSNorm beside torch's own, as a table or JSON.

    python examples/benchmark.py
    python examples/benchmark.py --json out.json

What a careless benchmark gets wrong is done here: results are compared before anything is timed,
the device is synchronised around each window, the first runs are dropped, contenders take turns,
and a row says what it was (device, dtype, shape, variant). For all operators: `anymetal bench`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from anymetal import ops

DEVICE = "mps" if torch.backends.mps.is_available() else "cpu"
SHAPES = [(64, 256), (16, 4096)]
DROPPED, ROUNDS = 3, 12


def synchronise() -> None:
    if DEVICE == "mps":
        torch.mps.synchronize()


def microseconds(call: Callable[[], object]) -> float:
    synchronise()
    start = time.perf_counter()
    call()
    synchronise()
    return 1e6 * (time.perf_counter() - start)


def row(shape: tuple[int, int], dtype: torch.dtype) -> dict[str, Any]:
    x = torch.randn(shape, dtype=dtype, device=DEVICE)
    weight = torch.rand(shape[1], dtype=dtype, device=DEVICE)
    contenders: dict[str, Callable[[], torch.Tensor]] = {
        "ours": lambda: ops.rms_norm(x, weight, eps=1e-6),
        "torch": lambda: torch.nn.functional.rms_norm(x, shape[1:], weight, eps=1e-6),
    }
    exact = x.cpu().double()
    exact = exact * (exact.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.cpu().double()
    bound = 4 * torch.finfo(dtype).eps
    errors = {}
    for name, call in contenders.items():
        errors[name] = float((call().cpu().double() - exact).abs().max() / exact.abs().max())
        if not errors[name] < bound:
            raise SystemExit(f"{name}, {shape}, {dtype}: wrong by {errors[name]}, nothing to time")

    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(DROPPED + ROUNDS):
        for name, call in contenders.items():  # in turns: a busy moment hits both
            times[name].append(microseconds(call))
    kept = {name: statistics.median(values[DROPPED:]) for name, values in times.items()}
    ops.rms_norm(x, weight, eps=1e-6)
    return {
        "operator": "rms_norm",
        "device": DEVICE,
        "dtype": str(dtype).removeprefix("torch."),
        "shape": "x".join(map(str, shape)),
        "variant": str(ops.variants.last()),
        "ours_us": round(kept["ours"], 1),
        "torch_us": round(kept["torch"], 1),
        "ratio": round(kept["ours"] / kept["torch"], 2),
        "error": errors["ours"],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args(arguments)
    rows = [row(shape, dtype) for dtype in (torch.float32, torch.float16) for shape in SHAPES]
    for found in rows:
        print(
            f"{found['dtype']:8} {found['shape']:>9}  ours {found['ours_us']:7.1f} us"
            f"  torch {found['torch_us']:7.1f} us  {found['ratio']:5.2f}  {found['variant']}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if len(rows) != 2 * len(SHAPES):
        raise SystemExit("not every row was measured")


if __name__ == "__main__":
    main()
