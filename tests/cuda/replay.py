"""Runs recorded launches on a GPU and compares with what the CPU engines gave, bit by bit.

`python tests/cuda/replay.py FILE...` on a machine with torch and a GPU, with ANYMETAL_BUNDLE naming
the bundle that `python tests/cuda/pack.py` made of the same files.
"""

from __future__ import annotations

import pickle
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from anymetal import compile_shader
from anymetal.errors import AnymetalError

Storages = dict[int, torch.Tensor]

EQUAL, NANS, HIDDEN_NANS = "equal", "bits of NaN", "bits of NaN, seen as integers"
# Kernels of header tests whose results may differ, in any dtype; and in those of 16 bits alone.
MAY_DIFFER = {
    **dict.fromkeys(("draw", "add", "push"), "the order of atomics"),
    **dict.fromkeys(("products", "matmul"), "sums of the tensor cores"),
    "partial": "lanes that are not there",
}
MAY_DIFFER_IN_16_BITS = {
    **dict.fromkeys(("evaluate", "of_1", "of_2", "of_4"), "functions of halves"),
    "run": "lanes that are not there",
}
_SMALL = ("torch.int16", "torch.float16", "torch.bfloat16")
# What integers of a test may be the bits of, by their size.
HIDDEN = {2: (torch.float16, torch.bfloat16), 4: (torch.float32,)}


def _moved(packed: dict[int, bytes]) -> Storages:
    return {
        key: torch.frombuffer(bytearray(zlib.decompress(data)) or bytearray(1), dtype=torch.uint8)
        for key, data in packed.items()
    }


def _argument(row: Any, storages: Storages) -> Any:
    kind, *parts = row
    if kind == "value":
        return parts[0]
    if kind == "list":
        return [_argument(part, storages) for part in parts[0]]
    place, dtype, offset, shape, stride = parts
    made = torch.tensor([], dtype=getattr(torch, dtype), device=storages[place].device)
    return made.set_(storages[place].untyped_storage(), offset, shape, stride)


def _differing(got: torch.Tensor, wanted: torch.Tensor) -> str:
    """How many elements differ, NaNs aside, and by how much; empty where none does."""
    ours, theirs = (x.cpu().reshape(-1) for x in (got, wanted))
    wrong = ours != theirs
    if not wrong.any():
        return ""
    if not got.is_floating_point():
        kinds = HIDDEN.get(got.itemsize, ())
        if any(_are_nans(ours[wrong], theirs[wrong], kind) for kind in kinds):
            return HIDDEN_NANS
        first = f"{int(ours[wrong][0]):#x} for {int(theirs[wrong][0]):#x}"
        return f"{int(wrong.sum())} of {len(ours)} {got.dtype} differ: {first}"
    wrong &= ~(ours.isnan() & theirs.isnan())
    if not wrong.any():
        return ""
    ours, theirs = ours[wrong].double(), theirs[wrong].double()
    error = ((ours - theirs).abs() / theirs.abs().clamp_min(1e-300)).max()
    first = f"{float(ours[0])!r} for {float(theirs[0])!r}"
    return f"{len(ours)} of {len(wrong)} {got.dtype} differ, by {float(error):.2g}: {first}"


def _are_nans(ours: torch.Tensor, theirs: torch.Tensor, kind: torch.dtype) -> bool:
    return bool((ours.view(kind).isnan() & theirs.view(kind).isnan()).all())


def run(launch: dict[str, Any]) -> str:
    """What came of one launch: equal, different or the error."""
    text, defines, fast_math, language = launch["source"]
    library = compile_shader(text, defines=dict(defines), fast_math=fast_math, language=language)
    kernel = library.specialize(launch["kernel"], launch["constants"])
    before = {key: data.cuda() for key, data in _moved(launch["before"]).items()}
    args = [_argument(row, before) for row in launch["arguments"][1]]
    kernel(*args, **launch["keywords"])
    torch.cuda.synchronize()
    wanted = _moved(launch["after"])
    if all(torch.equal(before[key].cpu(), wanted[key]) for key in wanted):
        return EQUAL
    rows = [row for row in launch["arguments"][1] if row[0] == "tensor"]
    found = (_differing(_argument(row, before), _argument(row, wanted)) for row in rows)
    return "; ".join(sorted(set(filter(None, found)))) or NANS


def reason(launch: dict[str, Any], result: str) -> str:
    """Why a result may differ; empty where it may not."""
    text, _, fast_math, _ = launch["source"]
    if fast_math or "fast::" in text:
        return "fast math"
    if all(any(dtype in part for dtype in _SMALL) for part in result.split("; ")):
        return MAY_DIFFER_IN_16_BITS.get(launch["kernel"], "")
    return MAY_DIFFER.get(launch["kernel"], "")


def main(files: list[str]) -> int:
    """The number of launches whose results differ and should not."""
    counts: Counter[str] = Counter()
    unexpected = 0
    for launch in (one for file in files for one in pickle.loads(Path(file).read_bytes())):
        try:
            result = run(launch)
        except (AnymetalError, RuntimeError, ValueError, TypeError) as error:
            result = f"{type(error).__name__}: {str(error)[:200]}"
            if "CUDA error" in result:
                print(launch["kernel"], launch["keywords"], result)
                raise
        known = result if result in (EQUAL, NANS, HIDDEN_NANS) else "different"
        counts[known] += 1
        if known == "different":
            why = reason(launch, result)
            unexpected += not why
            shape = f"{launch['constants']} {launch['keywords']}"
            print(f"{launch['kernel']} {shape}: {why or 'UNEXPECTED'}, {result}")
    print(dict(counts))
    return unexpected


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
