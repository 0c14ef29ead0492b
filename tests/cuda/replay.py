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


def _differences(got: torch.Tensor, wanted: torch.Tensor) -> tuple[int, float]:
    """Bytes that differ, and the largest relative error where they are read as float32."""
    bytes_ = int((got != wanted).sum())
    whole = len(got) // 4 * 4
    ours, theirs = (x[:whole].view(torch.float32).double() for x in (got, wanted))
    both = torch.isfinite(ours) & torch.isfinite(theirs)
    error = ((ours - theirs).abs() / theirs.abs().clamp_min(1e-30))[both]
    return bytes_, float(error.max()) if len(error) else 0.0


def run(launch: dict[str, Any]) -> str:
    """What came of one launch: equal, different or the error."""
    text, defines, fast_math = launch["source"]
    library = compile_shader(text, defines=dict(defines), fast_math=fast_math)
    kernel = library.specialize(launch["kernel"], launch["constants"])
    before = {key: data.cuda() for key, data in _moved(launch["before"]).items()}
    args = [_argument(row, before) for row in launch["arguments"][1]]
    kernel(*args, **launch["keywords"])
    torch.cuda.synchronize()
    worst = ""
    for key, wanted in _moved(launch["after"]).items():
        count, error = _differences(before[key].cpu(), wanted)
        if count:
            worst = f"{count} of {len(wanted)} bytes differ, relative error as float32 {error:.2g}"
    return worst or "equal"


def main(files: list[str]) -> None:
    counts: Counter[str] = Counter()
    for launch in (one for file in files for one in pickle.loads(Path(file).read_bytes())):
        try:
            result = run(launch)
        except (AnymetalError, RuntimeError, ValueError, TypeError) as error:
            result = f"{type(error).__name__}: {str(error)[:200]}"
            if "CUDA error" in result:
                print(launch["kernel"], launch["keywords"], result)
                raise
        counts["equal" if result == "equal" else "not equal"] += 1
        if result != "equal":
            print(f"{launch['kernel']} {launch['constants']} {launch['keywords']}: {result}")
    print(dict(counts))


if __name__ == "__main__":
    main(sys.argv[1:])
