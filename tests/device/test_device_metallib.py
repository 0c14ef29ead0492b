"""torch.mps.load_metallib on the virtual device."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "air"))
import modules


def test_kernels_of_a_metallib_run_on_mps_tensors(tmp_path: Path) -> None:
    data = modules.metallib(modules.function("row_mean", modules.ROW_MEAN))
    file = tmp_path / "row_mean.metallib"
    file.write_bytes(data)
    x = torch.randn(3, 33)
    for source in (data, bytearray(data), file, str(file)):
        out = torch.zeros(3, device="mps")
        library = torch.mps.load_metallib(source)
        library.row_mean(x.to("mps"), out, 33, threads=192, group_size=64)
        torch.testing.assert_close(out.cpu(), x.mean(1))
