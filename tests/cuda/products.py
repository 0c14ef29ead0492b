"""Products of matrices by the tiles that a GPU has for large ones, on small and odd shapes.

    python tests/cuda/products.py --compile products.bundle
    ANYMETAL_BUNDLE=products.bundle python tests/cuda/products.py

The first compiles the kernels on any machine; the second compares results with float64's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from anymetal import ops
from anymetal.policy.policy import override

sys.path.insert(0, str(Path(__file__).parent))
from bundling import write_kernels

# m, k, n: less than a tile, one more, whole tiles, no multiple of anything.
SHAPES = ((16, 8, 24), (129, 33, 130), (128, 64, 256), (200, 100, 72), (131, 517, 263), (9, 1, 300))
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def products(device: str) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Operands in every layout: by rows, by columns, with a gap between rows."""
    generator = torch.Generator().manual_seed(18)
    for m, k, n in SHAPES:
        for dtype in DTYPES:
            a, b = (torch.randn(size, generator=generator) for size in ((m, k), (k, n)))
            a, b = (one.to(dtype).to(device) for one in (a, b))
            label = f"{m} x {k} x {n} {dtype}"
            yield label, a, b
            yield f"{label}, B by columns", a, b.T.contiguous().T
            yield f"{label}, A by columns", a.T.contiguous().T, b
            yield f"{label}, rows apart", torch.cat((a, a), 1)[:, :k], b


def main(path: Path | None) -> None:
    with override("matmul", "tiles", max_results=0), override("matmul", "dots", max_rows=0):
        if path is not None:
            write_kernels(path, _request_all)
            return
        wrong = 0
        for label, a, b in products("cuda"):
            exact = a.double() @ b.double()
            allowed = 2 * torch.finfo(a.dtype).eps * (a.double().abs() @ b.double().abs())
            excess = float(((ops.matmul(a, b).double() - exact).abs() - allowed).max())
            if not excess <= 0:
                wrong += 1
                print(f"{label}: {excess:.2e} beyond what is allowed", flush=True)
        print(f"{wrong} of {len(list(products('cpu')))} products are wrong")


def _request_all() -> None:
    for _, a, b in products("cpu"):
        ops.matmul(a, b)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    main(parser.parse_args().compile)
